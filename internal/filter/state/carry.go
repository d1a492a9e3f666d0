package state

import (
	"time"

	"levee/internal/filter/flow"
	"levee/internal/filter/limit"
)

// Carrying are the memories of a program and of the next one, of another shape. The next does not
// judge yet; the other does, and writes.
type Carrying struct {
	From, To []byte
	Now, HZ  uint64      // in jiffies
	Trial    uint64      // for so many jiffies the other may judge again, in its memory
	Was, Is  limit.Shape // of limits
}

// Moving carries the contents of a memory into one of another shape, in two steps.
type Moving interface {
	// Follow takes what has come since, just before other programs judge.
	Follow(now, hz uint64)
	// Finish takes what has come since, once other programs judge since swapped.
	Finish(swapped, now, hz uint64)
}

// Older is the way in which a memory learns of connections that began before it.
type Older struct {
	// Settle has the program reckon with more of these until a time in jiffies.
	Settle func(head []byte, until uint64)
	// Settling is for how long that is, once the policy is in force.
	Settling time.Duration
	// Adopt notes one, at a time in jiffies, that the kernel's conntrack has.
	Adopt func(memory []byte, c flow.Older, now uint64)
	// Left says what goes on of a memory that is left for that of other interfaces.
	Left string
}
