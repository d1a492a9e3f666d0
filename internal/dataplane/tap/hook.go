package tap

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/capture"
	"levee/internal/filter/codegen"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// follower keeps a program behind that of an interface's policy, also when that is replaced. The
// policy's program goes to it when it has judged a packet. It turns itself off when this process
// has not been heard of for the lease. There is one such program of each role for an interface.
type follower struct {
	dev   string
	role  uint32 // state.Looks, state.Samples or state.Flows
	Lease time.Duration
	// program makes the program for a policy.
	program func(g *store.Description, j capture.Judge, hz uint64) (*ebpf.CollectionSpec,
		*ebpf.ProgramSpec, error)
	// fill fills maps of the program before packets come; nil: there is nothing to fill.
	fill func(*ebpf.Collection) error
	// beside opens what else the policy has; nil: nothing is needed.
	beside func(*store.Store, *attach.Attachment, *store.Description) error
	leave  func() // is called before the program of a policy goes
	looked time.Time
	only   sole

	Mu     sync.Mutex // hook is replaced, and renewed
	Hook   *captureHook
	failed error // of the last renewal
	lapsed bool  // the lease ended before it was renewed
}

// newFollower is one that looks at packets.
func newFollower(dev string) follower {
	return follower{dev: dev, role: state.Looks, Lease: captureLease}
}

func (f *follower) Close() {
	f.replace(nil)
	f.only.Release()
}

// replace puts another hook in the place of the one that there is.
func (f *follower) replace(next *captureHook) {
	if f.Hook != nil && f.leave != nil {
		f.leave()
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Hook.close()
	f.Hook = next
}

// renew renews the lease until it is told to stop. Whoever reads may be held up by what he writes
// to, and packets are counted nonetheless.
func (f *follower) renew() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	tick := time.NewTicker(captureLease / 6)
	go func() {
		defer close(ended)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			f.Mu.Lock()
			if f.Hook != nil {
				f.lapsed = f.lapsed || f.Hook.clock.Now() > f.Hook.until
				f.failed = f.Hook.Renew(f.Lease)
			}
			f.Mu.Unlock()
		}
	}()
	return func() { close(end); <-ended }
}

// renewed says whether the lease could be renewed.
func (f *follower) renewed() error {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return f.failed
}

// Follow attaches to the program in force, if there is none behind that already.
func (f *follower) Follow(ctx context.Context) error {
	f.looked = time.Now()
	var next *captureHook
	same := false
	err := generation.TransactOn(ctx, f.dev, func(s *store.Store, a *attach.Attachment) error {
		g := a.Current()
		behind := g
		if sh := a.Shadow(); sh != nil {
			behind = sh
		}
		// Numbers of generations come again, and a shadow that has come and gone has taken the
		// program's place.
		if h := f.Hook; h != nil && h.G.Program == g.Program &&
			h.behind.Program == behind.Program && h.has() {
			same = true
			return nil
		}
		next = &captureHook{G: g, behind: behind, role: f.role, steps: s.Steps}
		return f.attach(s, a, next)
	})
	switch {
	case same:
		return nil
	case err == nil:
		f.replace(next)
		return nil
	}
	next.close()
	if f.Hook == nil {
		return err
	}
	f.replace(nil)
	if gone := new(generation.NotAttachedError); errors.As(err, &gone) {
		return nil // so whoever follows ends
	}
	return err
}

func (f *follower) attach(s *store.Store, a *attach.Attachment, h *captureHook) error {
	g := h.G
	if _, ok := codegen.MapOf(g.Maps, state.HoldsCapture); !ok {
		return fmt.Errorf("the policy on %s was loaded by an older levee, which does not say what "+
			"decided: load it again with `levee up`", f.dev)
	}
	place, what := "behind", "captures from %s already, or watches its decisions"
	switch f.role {
	case state.Samples:
		place, what = "samples", "takes samples of %s already"
	case state.Flows:
		place, what = "flows", "reads flows of %s already"
	}
	err := f.only.take(s, a.Key, place)
	if errors.Is(err, errTaken) {
		return fmt.Errorf("somebody else "+what+": one at a time", f.dev)
	}
	if err != nil {
		return err
	}
	if h.clock, err = s.Jiffies(); err != nil {
		return err
	}
	behind := h.behind // a shadow hands on what the policy in force decided
	name, _ := codegen.MapOf(behind.Maps, codegen.Counters)
	counters, err := s.OpenPinned(a.Key, behind.Generation, name)
	if err == nil && counters == nil {
		err = fmt.Errorf("the policy on %s has gone", f.dev)
	}
	if err != nil {
		return err
	}
	defer counters.Close()
	j := capture.Judge{TC: g.Mode.AtTC(), Frags: g.Frags, Called: g.Joined,
		NumSlots: len(g.Slots),
		RowBytes: behind.RowBytes, Rows: int(counters.ValueSize()) / behind.RowBytes,
		Note: len(behind.Slots) * plan.SlotBytes}
	spec, p, err := f.program(g, j, h.clock.HZ())
	if err != nil {
		return err
	}
	name, _ = codegen.MapOf(behind.Maps, state.HoldsCapture)
	h.Programs, err = s.OpenPinned(a.Key, behind.Generation, name)
	if err == nil && h.Programs == nil {
		err = fmt.Errorf("the policy on %s has gone", f.dev)
	}
	if err != nil {
		return err
	}
	if h.Programs.MaxEntries() < 2*f.role {
		return fmt.Errorf("the policy on %s was loaded by an older levee, which has no place for "+
			"this: load it again with `levee up`", f.dev)
	}
	if f.beside != nil {
		if err := f.beside(s, a, g); err != nil {
			return err
		}
	}
	return h.load(spec, p, counters, f)
}

// captureHook is a program behind that of a generation.
type captureHook struct {
	G        *store.Description
	behind   *store.Description // g, or its shadow: whose program hands the packets on
	role     uint32
	steps    store.Steps
	Coll     *ebpf.Collection
	name     string          // of the program in it
	reader   *ringbuf.Reader // nil: of samples, which have a ring of their own
	record   ringbuf.Record
	clock    *kernel.Clock
	until    uint64    // jiffies, when the lease ends
	Programs *ebpf.Map // from which the policy's program takes it
	Rows     []byte    // of counters, with a note behind each
	epoch    time.Time // of CLOCK_MONOTONIC
}

func (h *captureHook) close() {
	if h == nil {
		return
	}
	h.detach()
	if h.Rows != nil {
		_ = unix.Munmap(h.Rows)
	}
	if h.Programs != nil {
		h.Programs.Close()
	}
	if h.reader != nil {
		h.reader.Close()
	}
	if h.Coll != nil {
		h.Coll.Close()
	}
}

// detach has packets come no more.
func (h *captureHook) detach() {
	if !h.has() {
		return
	}
	h.Turn(false)
	if h.role != state.Looks {
		// Packets on their way here go on to the programs behind, which miss none.
		_ = h.steps.WaitForPrograms()
	}
	for _, place := range h.places() {
		_ = h.Programs.Delete(place) // it may be gone already
	}
}

// places returns the places of the program, the last of them that which all its programs have.
func (h *captureHook) places() (all []uint32) {
	for place := 2*h.role - 1; place >= h.role; place-- {
		all = append(all, place)
	}
	return all
}

// Turn says in each CPU's row whether a program is there.
func (h *captureHook) Turn(on bool) { generation.TurnRows(h.Rows, h.behind, h.role, on) }

// has reports whether packets go to this program. A shadow that has come takes them from it.
func (h *captureHook) has() bool {
	if h.Coll == nil || h.Programs == nil {
		return false
	}
	info, err := h.Coll.Programs[h.name].Info()
	if err != nil {
		return false
	}
	id, _ := info.ID()
	is, err := generation.HoldsProgram(h.Programs, h.role, uint32(id))
	return err == nil && is
}

// id returns the number of a packet.
func (h *captureHook) id(n uint64) uint64 { return uint64(h.G.Generation)<<56 | n&(1<<56-1) }

// packet returns what the event says that was read last, and the slot that decided.
func (h *captureHook) packet(snap int) (Captured, int, error) {
	e, frame, err := capture.Parse(h.record.RawSample, snap)
	if err != nil {
		return Captured{}, 0, err
	}
	p := Captured{At: h.epoch.Add(e.Time), ID: h.id(e.ID), CPU: int(e.ID >> capture.CountBits),
		Queue: e.Queue, Verdict: verdictOf(h.G.Mode, e.Verdict), Code: e.Verdict,
		AtTC: h.G.Mode.AtTC(), Bytes: e.Bytes, Packet: frame, Link: h.G.Link}
	if e.Slot < len(h.G.Slots) {
		p.Rule = generation.CounterOfSlot(h.G.Slots[e.Slot])
	}
	return p, e.Slot, nil
}

// load loads a program, and has the policy's go to it.
func (h *captureHook) load(spec *ebpf.CollectionSpec, p *ebpf.ProgramSpec, counters *ebpf.Map,
	f *follower) (err error) {
	h.name = p.Name
	replace := map[string]*ebpf.Map{capture.CountersMap: counters}
	if spec.Maps[capture.ProgramsMap] != nil {
		replace[capture.ProgramsMap] = h.Programs
	}
	h.Coll, err = ebpf.NewCollectionWithOptions(spec,
		ebpf.CollectionOptions{MapReplacements: replace})
	if err != nil {
		return kernel.Refuse(err, "load the program behind the policy's")
	}
	if f.fill != nil {
		if err := f.fill(h.Coll); err != nil {
			return err
		}
	}
	if events := h.Coll.Maps[capture.EventsMap]; events != nil {
		if h.reader, err = ringbuf.NewReader(events); err != nil {
			return kernel.Refuse(err, "read judged packets")
		}
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	h.epoch = time.Now().Add(-time.Duration(now.Nano())).Round(0)
	if h.Rows, err = store.MapMemory(counters, int(counters.ValueSize())); err != nil {
		return err
	}
	for _, place := range h.places() {
		if err := h.Programs.Put(place, h.Coll.Programs[p.Name]); err != nil {
			return kernel.Refuse(err, "have packets go to the program behind the policy's")
		}
	}
	return h.Renew(f.Lease)
}

// captureLease is the life of a program that nobody renews.
const captureLease = 3 * time.Second

// Renew has the program stay for another lease.
func (h *captureHook) Renew(lease time.Duration) error {
	h.until = h.clock.Expiry(lease)
	if err := h.Coll.Variables["until"].Set(h.until); err != nil {
		return fmt.Errorf("renew the program behind the policy's: %w", err)
	}
	h.Turn(true)
	return nil
}
