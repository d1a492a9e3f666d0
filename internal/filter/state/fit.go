package state

import (
	"fmt"

	"levee/internal/filter/flow"
	"levee/internal/filter/greylist"
	"levee/internal/quantity"
)

// Parts of the memory of a machine. All state of a policy but its greylists takes a share of it,
// unless the policy says how many connections may be known: these may take more.
const (
	share     = 128
	mostFor   = 4  // connections
	strangers = 60 // of greylists, beside that share: 64 MB of what the kernel leaves of 4 GB
)

// NoMemory is the error where the connections of a policy need too much of the machine's memory.
type NoMemory struct {
	Asked  int
	Most   int    // that may be asked for
	Takes  int    // bytes
	Memory uint64 // of the machine, bytes
}

func (e *NoMemory) Error() string { return e.What() + ": " + e.Do() }

// What says how much memory the policy asks for and how much there is.
func (e *NoMemory) What() string {
	return fmt.Sprintf("connections max %d takes %s, more than a quarter of the memory of this "+
		"machine, %s", e.Asked, bytes(e.Takes), bytes(int(e.Memory)))
}

// Do returns what to do about it.
func (e *NoMemory) Do() string { return fmt.Sprintf("write at most connections max %d", e.Most) }

// Fit sets the room of greylists and connections. asked is the policy's `connections max`, 0
// without it; memory is the machine's, in bytes, 0 if unknown. Without asked, connections get what
// other memories leave of the policy's share of the machine's memory. The error is a *NoMemory.
func (u *Use) Fit(asked int, memory uint64) error {
	u.Strangers = greylist.Usual
	if memory > 0 {
		u.Strangers = greylist.Within(int(memory / strangers))
	}
	switch {
	case asked > 0:
		u.Room = flow.RoomFor(asked)
		most := flow.Within(int(memory / mostFor))
		if memory == 0 || u.Room <= most {
			return nil
		}
		return &NoMemory{Asked: asked, Most: int(most), Takes: u.Room.Bytes(), Memory: memory}
	case memory == 0:
		u.Room = flow.MaxRoom
	default:
		u.Room = flow.MinRoom
		u.Room = flow.Within(int(memory/share) - u.Bytes() + u.greylists() + u.Room.Bytes())
	}
	return nil
}

// greylists returns what the memory of greylists takes.
func (u *Use) greylists() int {
	if !u.Keeps(HoldsGreylist) {
		return 0
	}
	return u.Strangers.Bytes()
}

// Bytes returns what all memories take.
func (u *Use) Bytes() (n int) {
	for _, r := range u.In() {
		for _, m := range r.Maps(u) {
			n += m.Bytes
		}
	}
	return n
}

func bytes(n int) string { return quantity.Print(float64(n), "bytes") }
