package tap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/net/bpf"

	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/capture"
	"levee/internal/filter/codegen/env"
	"levee/internal/lang/action"
	"levee/internal/packet"
)

// Capturing says what is captured.
type Capturing struct {
	Dev string
	// Filter makes the filter for packets of a link layer; nil takes every packet. It is asked
	// again where the interface gets a program for another one.
	Filter func(packet.Link) ([]bpf.Instruction, error)
	Snap   int // bytes of each packet, at most MostSnap
	Rate   int // packets a second and CPU
	// Verdict takes packets with this one only: "pass", "drop" (answered ones too), "redirect", or
	// "" for all.
	Verdict string
	// Rule takes packets that this one decided: a label, or a line of the policy. "" takes all.
	Rule string
	// Begun is called when the capture begins; nil is nobody.
	Begun func()
	// Each question is answered by a call of Drained, once all packets have been handed on that
	// were judged before it; nil: nobody asks.
	Questions <-chan struct{}
	Drained   func()
}

// MostSnap limits the bytes of a packet that are captured.
const MostSnap = capture.MostCaptured

// Captured is a packet after it was judged.
type Captured struct {
	At time.Time
	// ID is the lower 8 bits of the program's generation, 16 of the CPU, and 40 that count the
	// packets of the CPU which the filter takes: those that are missing were lost.
	ID      uint64
	CPU     int
	Queue   int
	Rule    generation.SlotCounter // what decided, without counts
	Verdict string                 // pass, drop, answer or redirect
	Code    int                    // what the program returned
	AtTC    bool
	Bytes   int    // of the whole frame
	Packet  []byte // the first of them; it is overwritten when the function returns
	Link    packet.Link
}

// CaptureLosses are the packets since the capture began.
type CaptureLosses = capture.Losses

// Capture hands on packets after an interface's policy has judged them, until ctx ends, there is no
// policy any more, or the function returns false. A policy that is replaced is followed within a
// second.
func Capture(ctx context.Context, o Capturing, tell func(Captured) bool) (CaptureLosses, error) {
	c := NewCapturing(o)
	defer c.Close()
	if err := c.Follow(ctx); err != nil {
		return CaptureLosses{}, err
	}
	defer c.renew()()
	if c.Begun != nil {
		c.Begun()
	}
	if c.Questions != nil {
		listening, stop := context.WithCancel(ctx)
		defer stop()
		go c.listen(listening)
	}
	for going := true; going && ctx.Err() == nil && c.Hook != nil; {
		var err error
		if going, err = c.Read(tell); err != nil {
			return c.losses(), err
		}
		if time.Since(c.looked) > time.Second {
			if err := c.Follow(ctx); err != nil && ctx.Err() == nil {
				return c.losses(), err
			}
		}
	}
	return c.losses(), nil
}

type capturing struct {
	Capturing
	follower
	before   CaptureLosses
	asked    atomic.Uint64 // questions, and
	answered uint64        // how many of them are
}

// listen counts questions, and has whoever waits for packets look at once.
func (c *capturing) listen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.Questions:
		}
		c.asked.Add(1)
		c.Mu.Lock()
		if c.Hook != nil {
			_ = c.Hook.reader.Flush()
		}
		c.Mu.Unlock()
	}
}

func NewCapturing(o Capturing) *capturing {
	c := &capturing{Capturing: o, follower: newFollower(o.Dev)}
	c.program = c.spec
	c.leave = func() { c.before = c.losses() }
	return c
}

// spec makes the program for a policy.
func (c *capturing) spec(g *store.Description, j capture.Judge, hz uint64) (*ebpf.CollectionSpec,
	*ebpf.ProgramSpec, error) {
	o := capture.Options{Judge: j, Snap: c.Snap, Bound: max(1, c.Rate/int(hz)),
		Verdicts: codesOf(g.Mode, c.Verdict)}
	var err error
	if o.Slots, err = slotsOf(g, c.Rule); err != nil {
		return nil, nil, err
	}
	if c.Filter != nil {
		if o.Filter, err = c.Filter(g.Link); err != nil {
			return nil, nil, err
		}
	}
	return capture.Spec(o)
}

// Read hands on what there is, and answers the questions that were asked before.
func (c *capturing) Read(tell func(Captured) bool) (going bool, err error) {
	if err := c.renewed(); err != nil {
		return false, err
	}
	asked, until := c.asked.Load(), time.Now()
	if asked == c.answered {
		until = until.Add(200 * time.Millisecond)
	}
	c.Hook.reader.SetDeadline(until)
	for {
		err := c.Hook.reader.ReadInto(&c.Hook.record)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // and nothing was left
			for ; c.answered < asked; c.answered++ {
				c.Drained()
			}
			return true, nil
		case errors.Is(err, ringbuf.ErrFlushed): // a question
			return true, nil
		case err != nil:
			return false, fmt.Errorf("read captured packets: %w", err)
		}
		p, _, err := c.Hook.packet(c.Snap)
		if err != nil {
			return false, err
		}
		if !tell(p) {
			return false, nil
		}
		if time.Since(c.looked) > time.Second {
			return true, nil
		}
	}
}

// losses are those of all programs that captured so far.
func (c *capturing) losses() CaptureLosses {
	l := c.before
	if c.Hook == nil {
		return l
	}
	var values []capture.Counts
	if err := c.Hook.Coll.Maps[capture.CPUsMap].Lookup(uint32(0), &values); err != nil {
		return l
	}
	return capture.Sum(l, values)
}

// slotsOf finds the slot of a rule, the first and the last of all if none is named. A rule that
// decides nothing is an error: no packet would ever come of it.
func slotsOf(d *store.Description, rule string) (out [2]int, err error) {
	if rule == "" {
		return [2]int{0, len(d.Slots) - 1}, nil
	}
	var found []int
	for i, sl := range d.Slots {
		if sl.Label == rule || sl.Where == rule || fmt.Sprint(sl.Line) == rule && sl.Line > 0 {
			found = append(found, i)
		}
	}
	switch {
	case len(found) == 0:
		return out, fmt.Errorf("no rule of the policy has the label or the line %q: see "+
			"`levee status`", rule)
	case len(found) > 1:
		return out, fmt.Errorf("%d rules have the label %q: name one by its line", len(found),
			rule)
	}
	a, ok := action.Named(d.Slots[found[0]].Action)
	if ok && !a.MayDecide() {
		return out, fmt.Errorf("the rule %q is a %s, which decides no packet: name one that does, "+
			"or see with `levee watch` alone what logs tell of", rule, a)
	}
	return [2]int{found[0], found[0]}, nil
}

// What programs return: include/uapi/linux/bpf.h and pkt_cls.h.
var (
	xdpCodes = map[string][]int{"drop": {1}, "pass": {2}, "answer": {3},
		"redirect": {env.RedirectCode}}
	tcCodes = map[string][]int{"drop": {2}, "pass": {-1, 0}, "answer": {7}}
)

func codesAt(m store.Mode) map[string][]int {
	if m.AtTC() {
		return tcCodes
	}
	return xdpCodes
}

// codesOf are the codes of a verdict, nil for all. An answer to a SYN is a drop: nothing goes on.
func codesOf(m store.Mode, verdict string) []int {
	codes := codesAt(m)
	if verdict == "drop" {
		return slices.Concat(codes["drop"], codes["answer"])
	}
	return codes[verdict]
}

// IsVerdict says whether captures and watches can ask for a verdict; "" is for all.
func IsVerdict(word string) bool {
	return word == "" || word == "pass" || word == "drop" || word == "redirect"
}

// verdictOf is the word for a code.
func verdictOf(m store.Mode, code int) string {
	for word, codes := range codesAt(m) {
		if slices.Contains(codes, code) {
			return word
		}
	}
	return fmt.Sprint("code ", code)
}
