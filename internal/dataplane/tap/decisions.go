package tap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/capture"
	"levee/internal/lang/diag"
)

// Deciding says which decisions are told.
type Deciding struct {
	Dev string
	// Verdict takes packets with this one only: "pass", "drop" (answered ones too), "redirect", or
	// "" for all.
	Verdict string
	// Reasons takes packets that were decided for one of these, as slots name them; nil is all.
	Reasons []string
	// Rule takes packets that this one decided: a label, or a line of the policy. "" takes all.
	Rule string
	Rate int // events a second and CPU, at most MostDecisions; half of them of one rule
	Snap int // bytes of each packet, at most capture.MostToldOf
	// Begun is called when reports begin; nil is nobody.
	Begun func()
}

// MostDecisions is the largest rate of reported decisions, a second and CPU.
const MostDecisions = capture.MostWatched

// Decided counts the packets that a watch has shown, and those that it lost.
type Decided struct {
	Shown uint64
	Losses
	// Lapsed: this process stood still for so long that packets came and went without it.
	Lapsed bool
}

// WatchDecisions tells of packets when an interface's policy has judged them, and once a second of
// losses, until ctx ends, there is no policy any more or event returns false. A policy that is
// replaced is followed within a second. Each packet that was chosen is told of or counted once.
func WatchDecisions(ctx context.Context, o Deciding, event func(Captured) bool,
	lost func(Losses)) (Decided, error) {
	d := NewDeciding(o)
	d.Event, d.Lost = event, lost
	return d.Watch(ctx)
}

type deciding struct {
	Deciding
	follower
	Event func(Captured) bool
	Lost  func(Losses)
	going bool // event wants more

	total  Decided
	mapped []byte         // pages with the
	rows   []byte         // rows of the program behind the policy; nil: there is none
	shown  []uint64       // by slot of the policy, and
	before []capture.Told // as it was told last
}

func NewDeciding(o Deciding) *deciding {
	d := &deciding{Deciding: o, follower: newFollower(o.Dev), going: true}
	d.program, d.leave = d.spec, d.finish
	return d
}

func (d *deciding) Watch(ctx context.Context) (Decided, error) {
	defer d.Close()
	err := d.Begin(ctx)
	if err != nil {
		return d.total, err
	}
	if d.Begun != nil {
		d.Begun()
	}
	stop := d.renew()
	for d.going && ctx.Err() == nil && d.Hook != nil && err == nil {
		if err = d.Read(); err == nil && time.Since(d.looked) > time.Second {
			d.look(false)
			if err = d.Begin(ctx); ctx.Err() != nil {
				err = nil
			}
		}
	}
	stop()
	d.Close()
	d.total.Lapsed = d.lapsed
	return d.total, err
}

// Begin follows the policy in force, and maps the rows of a program that is new.
func (d *deciding) Begin(ctx context.Context) error {
	if err := d.Follow(ctx); err != nil || d.Hook == nil || d.rows != nil {
		return err
	}
	m := d.Hook.Coll.Maps[capture.WatchedMap]
	size := int(m.ValueSize() * m.MaxEntries())
	rows, err := store.MapMemory(m, size)
	if err != nil {
		return err
	}
	d.mapped, d.rows = rows, rows[:size]
	n := len(d.Hook.G.Slots)
	d.shown, d.before = make([]uint64, n), make([]capture.Told, n)
	return nil
}

// spec makes the program for a policy.
func (d *deciding) spec(g *store.Description, j capture.Judge, hz uint64) (*ebpf.CollectionSpec,
	*ebpf.ProgramSpec, error) {
	slots, err := decidedBy(g, d.Rule, d.Reasons)
	if err != nil {
		return nil, nil, err
	}
	return capture.WatchSpec(capture.Watch{Judge: j, Snap: d.Snap, Rate: d.Rate, HZ: hz,
		Verdicts: codesOf(g.Mode, d.Verdict), Slots: slots})
}

// decidedBy lists the slots of a rule and of reasons.
func decidedBy(d *store.Description, rule string, reasons []string) (out []int, err error) {
	all, err := slotsOf(d, rule)
	if err != nil {
		return nil, err
	}
	for i := all[0]; i <= all[1]; i++ {
		if len(reasons) == 0 || slices.Contains(reasons, d.Slots[i].Reason) {
			out = append(out, i)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	what := "the policy"
	if rule != "" {
		what = "the rule " + diag.Quoted(rule)
	}
	return nil, fmt.Errorf("%s decides nothing for the reason %s", what,
		strings.Join(reasons, ", "))
}

// Read tells of what there is.
func (d *deciding) Read() error {
	if err := d.renewed(); err != nil {
		return err
	}
	d.Hook.reader.SetDeadline(time.Now().Add(100 * time.Millisecond))
	for d.going && time.Since(d.looked) <= time.Second {
		err := d.Hook.reader.ReadInto(&d.Hook.record)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("read decisions: %w", err)
		}
		d.tell()
	}
	return nil
}

// tell tells of the event that was read last.
func (d *deciding) tell() {
	if !d.going {
		return
	}
	p, slot, err := d.Hook.packet(d.Snap)
	if err != nil || slot >= len(d.Hook.G.Slots) {
		return // it counts as lost by the reader
	}
	d.going = d.Event(p)
	d.shown[slot]++
	d.total.Shown++
}

// look tells of losses since it was called last. At the end those are lost, too, which still lay in
// the ring.
func (d *deciding) look(end bool) {
	for i, now := range capture.ReadTold(d.rows, len(d.shown)) {
		was := d.before[i]
		l := Losses{Rule: generation.CounterOfSlot(d.Hook.G.Slots[i]), Bound: now.Above - was.Above,
			Ring: now.Full - was.Full}
		if end {
			l.Reader = now.Events - d.shown[i]
		}
		d.before[i] = now
		if l.Bound+l.Ring+l.Reader > 0 {
			d.total.Bound += l.Bound
			d.total.Ring += l.Ring
			d.total.Reader += l.Reader
			d.Lost(l)
		}
	}
}

// finish tells what is left of the program of a policy.
func (d *deciding) finish() {
	if d.rows == nil {
		return
	}
	d.Hook.detach()
	// An error leaves events in the ring, which count as lost by the reader.
	_ = Drain(d.Hook.reader, &d.Hook.record, d.tell)
	d.look(true)
	_ = unix.Munmap(d.mapped)
	d.mapped, d.rows, d.shown, d.before = nil, nil, nil, nil
}
