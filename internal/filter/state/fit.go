package state

import (
	"fmt"

	"levee/internal/filter/flow"
	"levee/internal/quantity"
)

// Parts of the memory of a machine. All state of a policy takes a share of it, unless the policy
// says how many connections may be known: these may take more.
const (
	share   = 128
	mostFor = 4 // connections
)

// NoMemory is the error where the connections of a policy need too much of the machine's memory.
type NoMemory struct {
	Asked  int
	Most   int    // that may be asked for
	Takes  int    // bytes
	Memory uint64 // of the machine, bytes
}

func (e *NoMemory) Error() string { return e.What() + ": " + e.Do() }

// What is what is wrong.
func (e *NoMemory) What() string {
	return fmt.Sprintf("connections max %d takes %s, more than a quarter of the memory of this "+
		"machine, %s", e.Asked, bytes(e.Takes), bytes(int(e.Memory)))
}

// Do is what to do about it.
func (e *NoMemory) Do() string { return fmt.Sprintf("write at most connections max %d", e.Most) }

// Fit gives connections their room: what a policy asks for, else what its other memories leave of
// the share of a machine's memory. 0 is a policy that does not say, and a machine that nobody
// knows.
func (u *Use) Fit(asked int, memory uint64) error {
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
		u.Room = flow.Within(int(memory/share) - u.Bytes() + u.Room.Bytes())
	}
	return nil
}

// Bytes is what all memories take.
func (u *Use) Bytes() (n int) {
	for _, r := range u.In() {
		for _, m := range r.Maps(u) {
			n += m.Bytes
		}
	}
	return n
}

func bytes(n int) string { return quantity.Print(float64(n), "bytes") }
