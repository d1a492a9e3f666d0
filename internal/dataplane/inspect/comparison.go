package inspect

import "time"

// A driver that has taken a program need not ask it for packets, and one that did may stop: that a
// program is attached says nothing. So what an interface has received is compared with what its
// policy has judged (docs/explanation/decisions/0094-seen.md). Nothing of it costs a packet
// anything.

// JudgingState is the outcome of the comparison.
type JudgingState string

const (
	// NotYet: no packet has been judged since the policy came to the interface, and none has
	// come that should have been.
	NotYet JudgingState = "not yet"
	// Seen: packets have been judged, as far as any have come since.
	Seen JudgingState = "seen"
	// Still: the interface receives packets, and none of them is judged.
	Still JudgingState = "still"
	// Partly: less than half of what it receives is judged.
	Partly JudgingState = "partly"
)

// Failed says that packets come past the policy.
func (s JudgingState) Failed() bool { return s == Still || s == Partly }

// Comparison compares the packets that one interface received with those that its policy judged,
// and is kept from one look to the next. Times are of the monotonic clock, which all processes have
// in common.
type Comparison struct {
	Generation int           `json:"generation"`
	Ifindex    int           `json:"ifindex"`
	State      JudgingState  `json:"state"`
	Judged     uint64        `json:"judged"`   // when it was last looked at
	Received   uint64        `json:"received"` // the same
	Since      time.Duration `json:"since"`    // it was last found to judge, or came
	// Settled: what came before Since is counted in Base, also where a driver counts late.
	Settled bool   `json:"settled,omitempty"`
	Base    uint64 `json:"base,omitempty"`
	Past    uint64 `json:"past,omitempty"` // packets that came since Base, none of them judged
	Window  span   `json:"window"`
}

// span is a time in which packets are counted.
type span struct {
	Since    time.Duration `json:"since"`
	Judged   uint64        `json:"judged"`
	Received uint64        `json:"received"`
	Short    int           `json:"short,omitempty"` // such times in a row before it with too few
}

const (
	// Late is for how long a driver may count packets that it has handed on already: drivers of
	// cards that count themselves ask them each second or two (bnxt_en, igb, mlx4_en).
	Late = 2500 * time.Millisecond
	// few packets may be counted and judged nowhere, as one that was on its way.
	few = 3
	// A share is of a time longer than what is late in it, and has many packets.
	shareTime = 4 * Late
	shareMany = 1000
)

// Begin returns the comparison of a policy that has just come.
func Begin(generation, ifindex int, now time.Duration, received, judged uint64) Comparison {
	c := Comparison{Generation: generation, Ifindex: ifindex, State: NotYet}
	c.restart(now, received, judged)
	return c
}

func (c *Comparison) restart(now time.Duration, received, judged uint64) {
	c.Since, c.Received, c.Judged, c.Settled, c.Past = now, received, judged, false, 0
}

// Look takes in what was received and judged up to now. can: all that is received has to come to
// the program; whole: packet by packet, so that numbers can be compared, and not only whether there
// are any.
//
// Standing still is found in two steps: what a late driver counts of packets before is waited for,
// and only what comes after counts. So it takes `late` from the last packet that was judged, and a
// few packets.
func (c *Comparison) Look(now time.Duration, received, judged uint64, can, whole bool) {
	if received < c.Received { // the driver has begun anew
		c.Window = span{now, judged, received, 0}
	}
	switch {
	case judged != c.Judged:
		if c.State != Partly {
			c.State = Seen
		}
		c.restart(now, received, judged)
	case received < c.Received:
		c.restart(now, received, judged)
	case now-c.Since < Late:
	case !c.Settled:
		c.Settled, c.Base = true, received
	case can:
		if c.Past = received - c.Base; c.Past >= few {
			c.State = Still
		}
	}
	c.Received = received
	if whole {
		c.share(now)
	}
}

// share looks at how much of what was received was judged, window after window. What is counted
// late is in one of two.
func (c *Comparison) share(now time.Duration) {
	w := c.Window
	if w.Since == 0 {
		c.Window = span{now, c.Judged, c.Received, 0}
		return
	}
	received := c.Received - w.Received
	if now-w.Since < shareTime || received < shareMany {
		return
	}
	if short := (c.Judged-w.Judged)*2 < received; !short {
		w.Short = 0
		if c.State == Partly {
			c.State = Seen
		}
	} else if w.Short++; w.Short > 1 && c.State == Seen {
		c.State = Partly
	}
	c.Window = span{now, c.Judged, c.Received, w.Short}
}

// doubt says whether packets may have come past the policy between two looks, so that it is worth a
// third.
func (c *Comparison) doubt(received, judged uint64, whole bool) bool {
	came, was := received-c.Received, judged-c.Judged
	if received < c.Received || judged < c.Judged {
		return false
	}
	return came >= few && (was == 0 || whole && was < came/8)
}
