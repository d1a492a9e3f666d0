package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/perf"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"levee/internal/filter/capture"
	"levee/internal/filter/codegen"
	"levee/internal/filter/plan"
	"levee/internal/kernel"
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
	// Verdict takes packets with this one only: "pass", "drop" (answered ones too), or "" for all.
	Verdict string
	// Rule takes packets that this one decided: a label, or a line of the policy. "" takes all.
	Rule string
}

// MostSnap is how many bytes of a packet can be captured.
const MostSnap = 16 << 10

// Captured is a packet after it was judged.
type Captured struct {
	At time.Time
	// ID is the lower 8 bits of the program's generation, 16 of the CPU, and 40 that count the
	// packets of the CPU which the filter takes: those that are missing were lost.
	ID      uint64
	Queue   int
	Rule    SlotCounter // what decided, without counts
	Verdict string      // pass, drop, or answer
	Code    int         // what the program returned
	AtTC    bool
	Bytes   int    // of the whole frame
	Packet  []byte // the first of them; it is overwritten when the function returns
	Link    packet.Link
}

// CaptureLosses are the packets since the capture began.
type CaptureLosses = capture.Losses

// Capture hands on packets after an interface's policy has judged them, until ctx ends, there is no
// policy any more, or the function returns false. A policy that is replaced is followed within a
// second. The policy's program goes to one that captures when it has judged a packet. That one
// turns itself off when this process has not been heard of for captureLease.
func Capture(ctx context.Context, o Capturing, tell func(Captured) bool) (CaptureLosses, error) {
	c := &capturing{Capturing: o}
	defer c.close()
	if err := c.follow(ctx); err != nil {
		return CaptureLosses{}, err
	}
	for going := true; going && ctx.Err() == nil && c.hook != nil; {
		var err error
		if going, err = c.read(tell); err != nil {
			return c.losses(), err
		}
		if time.Since(c.looked) > time.Second {
			if err := c.follow(ctx); err != nil && ctx.Err() == nil {
				return c.losses(), err
			}
		}
	}
	return c.losses(), nil
}

type capturing struct {
	Capturing
	looked time.Time
	hook   *captureHook // nil: there is no policy any more
	before CaptureLosses
	only   net.Listener // a name that only one process can have
}

func (c *capturing) close() {
	c.hook.close()
	if c.only != nil {
		c.only.Close()
	}
}

// captureHook is what captures from the program of a generation.
type captureHook struct {
	g        *description
	coll     *ebpf.Collection
	reader   *perf.Reader
	clock    *kernel.Clock
	programs *ebpf.Map // from which the policy's program takes it
	rows     []byte    // of counters, with a note behind each
	epoch    time.Time // of CLOCK_MONOTONIC
}

func (h *captureHook) close() {
	if h == nil {
		return
	}
	h.turn(0)
	if h.rows != nil {
		_ = unix.Munmap(h.rows)
	}
	if h.programs != nil {
		_ = h.programs.Delete(uint32(0))
		h.programs.Close()
	}
	if h.reader != nil {
		h.reader.Close()
	}
	if h.coll != nil {
		h.coll.Close()
	}
}

// turn says in each CPU's row whether a program captures.
func (h *captureHook) turn(on uint32) {
	for at := len(h.g.Slots) * plan.SlotBytes; at < len(h.rows); at += h.g.RowBytes {
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&h.rows[at])), on)
	}
}

// id is the number of a packet.
func (h *captureHook) id(cpu int, n uint64) uint64 {
	return uint64(h.g.Generation)<<56 | uint64(uint16(cpu))<<40 | n&(1<<40-1)
}

// read hands on what there is.
func (c *capturing) read(tell func(Captured) bool) (going bool, err error) {
	if err := c.hook.renew(); err != nil {
		return false, err
	}
	c.hook.reader.SetDeadline(time.Now().Add(200 * time.Millisecond))
	for {
		record, err := c.hook.reader.Read()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("read captured packets: %w", err)
		case record.LostSamples > 0:
			continue // the program has counted them
		}
		e, frame, err := capture.Parse(record.RawSample, c.Snap)
		if err != nil {
			return false, err
		}
		h := c.hook
		p := Captured{At: h.epoch.Add(e.Time), ID: h.id(record.CPU, e.ID), Queue: e.Queue,
			Verdict: verdictOf(h.g.Mode, e.Verdict), Code: e.Verdict, AtTC: h.g.Mode.AtTC(),
			Bytes: e.Bytes, Packet: frame, Link: h.g.Link}
		if e.Slot < len(h.g.Slots) {
			p.Rule = h.g.Slots[e.Slot].counter()
		}
		if !tell(p) {
			return false, nil
		}
		if time.Since(c.looked) > time.Second {
			return true, nil
		}
	}
}

// follow attaches to the program in force, if it does not capture from that already.
func (c *capturing) follow(ctx context.Context) error {
	c.looked = time.Now()
	var next *captureHook
	same := false
	err := transact(ctx, func(s *store) error {
		a, err := s.find(c.Dev)
		if err != nil {
			return err
		}
		defer a.Close()
		g := a.current()
		if h := c.hook; h != nil && h.g.Generation == g.Generation {
			same = true
			return nil
		}
		next = &captureHook{g: g}
		return c.attach(s, a, next)
	})
	switch {
	case same:
		return nil
	case err != nil && c.hook == nil:
		next.close()
		return err
	}
	if c.hook != nil {
		c.before = c.losses()
		c.hook.close()
		c.hook = nil
	}
	if err == nil {
		c.hook = next
		return nil
	}
	next.close()
	if gone := new(notAttachedError); errors.As(err, &gone) {
		return nil // so the capture ends
	}
	return err
}

func (c *capturing) attach(s *store, a *attachment, h *captureHook) error {
	g := h.g
	if _, ok := codegen.MapOf(g.Maps, codegen.Capture); !ok {
		return fmt.Errorf("the policy on %s was loaded by an older levee, which does not say what "+
			"decided: load it again with `levee up`", c.Dev)
	}
	if c.only == nil {
		// An abstract name belongs to the network namespace, and goes with the process.
		only, err := net.Listen("unix", "@levee/capture/"+a.key)
		if err != nil {
			return fmt.Errorf("somebody else captures from %s already", c.Dev)
		}
		c.only = only
	}
	o := capture.Options{TC: g.Mode.AtTC(), Frags: g.Frags, Snap: c.Snap, RowBytes: g.RowBytes,
		NumSlots: len(g.Slots), Verdicts: codesOf(g.Mode, c.Verdict)}
	var err error
	if o.Slots, err = g.slotsOf(c.Rule); err != nil {
		return err
	}
	if c.Filter != nil {
		if o.Filter, err = c.Filter(g.Link); err != nil {
			return err
		}
	}
	if h.clock, err = s.jiffies(); err != nil {
		return err
	}
	o.Bound = max(1, c.Rate/int(h.clock.HZ()))
	name, _ := codegen.MapOf(g.Maps, codegen.Counters)
	counters, err := s.openPinned(a.key, g.Generation, name)
	if err == nil && counters == nil {
		err = fmt.Errorf("the policy on %s has gone", c.Dev)
	}
	if err != nil {
		return err
	}
	defer counters.Close()
	o.Rows = int(counters.ValueSize()) / g.RowBytes
	name, _ = codegen.MapOf(g.Maps, codegen.Capture)
	h.programs, err = s.openPinned(a.key, g.Generation, name)
	if err == nil && h.programs == nil {
		err = fmt.Errorf("the policy on %s has gone", c.Dev)
	}
	if err != nil {
		return err
	}
	return h.load(o, counters)
}

// load loads a program that captures, and has the policy's go to it.
func (h *captureHook) load(o capture.Options, counters *ebpf.Map) error {
	spec, p, err := capture.Spec(o)
	if err != nil {
		return err
	}
	h.coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{capture.CountersMap: counters},
	})
	if err != nil {
		return kernel.Refuse(err, "load the program that captures")
	}
	if h.reader, err = perf.NewReader(h.coll.Maps[capture.EventsMap], captureRing); err != nil {
		return kernel.Refuse(err, "read captured packets")
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	h.epoch = time.Now().Add(-time.Duration(now.Nano())).Round(0)
	if h.rows, err = mapMemory(counters, o.Rows*o.RowBytes); err != nil {
		return err
	}
	if err := h.programs.Put(uint32(0), h.coll.Programs[p.Name]); err != nil {
		return kernel.Refuse(err, "have packets go to the program that captures")
	}
	return h.renew()
}

// captureLease is how long a program captures when nobody renews it.
const captureLease = 3 * time.Second

// renew has the program capture for another captureLease.
func (h *captureHook) renew() error {
	if err := h.coll.Variables["until"].Set(h.clock.Expiry(captureLease)); err != nil {
		return fmt.Errorf("have the program capture: %w", err)
	}
	h.turn(1)
	return nil
}

// captureRing is the memory of a CPU's packets that wait for the reader.
const captureRing = 1 << 20

// losses are those of all programs that captured so far.
func (c *capturing) losses() CaptureLosses {
	l := c.before
	if c.hook == nil {
		return l
	}
	var values []capture.Counts
	if err := c.hook.coll.Maps[capture.CPUsMap].Lookup(uint32(0), &values); err != nil {
		return l
	}
	return capture.Sum(l, values)
}

// slotsOf finds the slot of a rule, the first and the last of all if none is named.
func (d *description) slotsOf(rule string) (out [2]int, err error) {
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
	return [2]int{found[0], found[0]}, nil
}

// What programs return: include/uapi/linux/bpf.h and pkt_cls.h.
var (
	xdpCodes = map[string][]int{"drop": {1}, "pass": {2}, "answer": {3}}
	tcCodes  = map[string][]int{"drop": {2}, "pass": {-1, 0}, "answer": {7}}
)

func codesAt(m Mode) map[string][]int {
	if m.AtTC() {
		return tcCodes
	}
	return xdpCodes
}

// codesOf are the codes of a verdict, nil for all. An answer to a SYN is a drop: nothing goes on.
func codesOf(m Mode, verdict string) []int {
	codes := codesAt(m)
	if verdict == "drop" {
		return slices.Concat(codes["drop"], codes["answer"])
	}
	return codes[verdict]
}

// verdictOf is the word for a code.
func verdictOf(m Mode, code int) string {
	for word, codes := range codesAt(m) {
		if slices.Contains(codes, code) {
			return word
		}
	}
	return fmt.Sprint("code ", code)
}
