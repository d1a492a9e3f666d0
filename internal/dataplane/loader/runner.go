package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/codegen/env"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/host/local"
	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Limits of BPF_PROG_RUN, net/bpf/test_run.c.
const (
	minFrame = 14       // an Ethernet header
	MaxFrame = 64 << 10 // 17 pages of fragments behind the first buffer; one IP packet
	noSlot   = math.MaxUint32
)

// Return values of the two kinds of program, linux/bpf.h.
const (
	XdpDrop     = 1
	xdpTx       = 3
	tcxNext     = math.MaxUint32 // TCX_NEXT, -1
	tcxPass     = 0
	TcxDrop     = 2
	tcxRedirect = 7
	keepAll     = math.MaxUint32 // of a filter of sockets
)

// Runner runs a compiled policy on frames with BPF_PROG_RUN: the very program of the kernel,
// without an interface. It is not safe for concurrent use.
type Runner struct {
	program  *codegen.Program
	Loaded   *Loaded
	entry    *ebpf.Program // where frames come in: that of loaded, or one that hands them on to it
	hook     ebpf.ProgramType
	link     packet.Link
	trace    []byte // memory of the map LastSlot, nil without one
	counters []byte // memory of the map Counters
	clock    []byte // memory of the map Clock, nil without one
	heads    []head
	answer   []byte // room for the answer to a SYN, if the policy has cookies
	answered int    // bytes of the last
	sets     map[string]*sets.Memory
}

// head is the head of the memory of a row, mapped.
type head struct {
	row    *state.Row
	memory []byte
}

// Head returns the head of the memory of a row, nil if the program has none.
func (r *Runner) Head(what state.Contents) []byte {
	for _, h := range r.heads {
		if h.row.What == what {
			return h.memory
		}
	}
	return nil
}

// NewRunner loads a program. Compile it with Target.Trace, or Eval cannot tell which slot decided.
// It needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; errors of the machine match kernel.ErrRefused.
func NewRunner(p *codegen.Program) (*Runner, error) { return newRunner(p, nil) }

// newRunner loads a program over maps that others have.
func newRunner(p *codegen.Program, replace map[string]*ebpf.Map) (*Runner, error) {
	l, err := Load(p, replace, nil)
	if err != nil {
		return nil, err
	}
	r := &Runner{program: p, Loaded: l, entry: l.Prog, hook: l.Prog.Type(), link: p.Link,
		sets: map[string]*sets.Memory{}}
	if m := l.Holding(codegen.LastSlot); m != nil {
		if r.trace, err = store.MapMemory(m, plan.TraceBytes()); err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.Untell()
	}
	if m := l.Holding(codegen.Clock); m != nil {
		if r.clock, err = store.MapMemory(m, 8); err != nil {
			return nil, errors.Join(err, r.Close())
		}
		now, _, err := kernel.Jiffies()
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&r.clock[0])), now)
	}
	for _, use := range l.Ledger {
		row := state.Of(use.Holds.What)
		if row == nil || row.SetClock == nil {
			continue
		}
		memory, err := store.MapMemory(l.Maps[use.Name], row.Head)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		if row.Older != nil {
			row.Older.Settle(memory, 0)
		}
		r.heads = append(r.heads, head{row, memory})
	}
	if r.Head(state.HoldsCookies) != nil {
		r.answer = make([]byte, MaxFrame)
	}
	m := l.Holding(codegen.Counters)
	if m == nil {
		return nil, errors.Join(errors.New("load program: it has no counters map"), r.Close())
	}
	if r.counters, err = store.MapMemory(m, int(m.ValueSize())); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	for _, ps := range p.Dynamic {
		if r.sets[ps.Name], err = sets.Access(l.Place(p, ps.Name), ps.Name, ps.Type,
			ps.Lease); err != nil {
			delete(r.sets, ps.Name)
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

// Eval judges one frame (as the program's link layer has it, without FCS, at most 64 KiB for XDP
// and about one page for TCX) and returns the slot that decided, an index into Slots, and Pass or
// Drop. Packet contents are not changed.
//
// The kernel refuses to run frames of less than 14 bytes. They cannot arrive on an Ethernet
// interface either, and hold no whole IP header; Eval answers for them itself, as
// truncated-ethernet or truncated-ip, by the policy's rules for malformed frames, and counts them
// where the program would.
func (r *Runner) Eval(frame []byte) (slot int, verdict action.Action, err error) {
	return r.EvalWith(frame, nil)
}

// EvalWith is Eval with a context: struct __sk_buff of include/uapi/linux/bpf.h, as far as
// BPF_PROG_RUN lets it be said.
func (r *Runner) EvalWith(frame, context []byte) (slot int, verdict action.Action, err error) {
	return r.run(r.entry, false, frame, context)
}

// run has a program judge a frame that arrives, or leaves.
func (r *Runner) run(by *ebpf.Program, leaves bool, frame, context []byte) (slot int,
	verdict action.Action, err error) {
	if r.trace == nil {
		return 0, action.Drop, errors.New("run program: it was not compiled with Target.Trace")
	}
	r.answered = 0
	if len(frame) < minFrame {
		slot, verdict = r.evalShort(len(frame), leaves)
		return slot, verdict, nil
	}
	if len(frame) > MaxFrame {
		return 0, action.Drop,
			fmt.Errorf("run program: a frame of %d bytes is above the kernel's limit of %d",
				len(frame), MaxFrame)
	}
	word := (*uint32)(unsafe.Pointer(&r.trace[0]))
	atomic.StoreUint32(word, noSlot)
	if ofService(by.Type()) {
		frame = asReceived(frame)
	}
	run := ebpf.RunOptions{Data: frame, DataOut: r.answer, Repeat: 1}
	if context != nil {
		run.Context = context
	}
	ret, err := by.Run(&run)
	if err != nil {
		return 0, action.Drop, runError(err, len(frame))
	}
	if ret == r.answerCode() {
		r.answered = len(run.DataOut)
	}
	decided := atomic.LoadUint32(word)
	if uint64(decided) >= uint64(len(r.program.Slots)) {
		return 0, action.Drop, fmt.Errorf("run program: it returned %d but reported no slot (%#x)",
			int32(ret), decided)
	}
	verdict, err = r.verdict(by.Type(), ret)
	if to := r.program.Slots[decided].Rule; to != nil && to.Ring != nil && err == nil &&
		(verdict == to.Ring.Else || verdict == action.Redirect) {
		verdict = action.Redirect // nobody reads the ring, or somebody does
	}
	return int(decided), verdict, err
}

// ofService reports whether programs of a type are given packets from their IP header on, or from
// behind it, where the frame to run them on has an Ethernet header.
func ofService(t ebpf.ProgramType) bool { return t == ebpf.CGroupSKB || t == ebpf.SocketFilter }

// asReceived puts an Ethernet header in front of an IP packet.
func asReceived(ip []byte) []byte {
	frame := make([]byte, minFrame+len(ip))
	binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
	if ip[0]>>4 == 6 {
		binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IPV6)
	}
	copy(frame[minFrame:], ip)
	return frame
}

// EvalLeaving judges one frame that leaves, like Eval. What passes is seen by the program that
// notes connections, where the policy has one. Where it says nothing of what leaves, the slot is
// -1.
func (r *Runner) EvalLeaving(frame []byte) (slot int, verdict action.Action, err error) {
	slot, verdict = -1, action.Pass
	if p := r.Loaded.Others[codegen.LeavingName]; p != nil {
		if slot, verdict, err = r.run(p, true, frame, nil); err != nil {
			return slot, verdict, err
		}
	}
	for _, l := range r.program.Links {
		if l.At != codegen.Egress || l.Program == codegen.LeavingName || verdict != action.Pass {
			continue
		}
		p := r.Loaded.Others[l.Program]
		run := ebpf.RunOptions{Data: frame, Repeat: 1}
		if ofService(p.Type()) {
			run.Data = asReceived(frame)
		}
		if _, err := p.Run(&run); err != nil {
			return slot, verdict, runError(err, len(frame))
		}
	}
	return slot, verdict, nil
}

// EnterBy has frames come in by a program that somebody makes, and that hands them on to the one
// that judges.
func (r *Runner) EnterBy(way func(judges *ebpf.Program) (*ebpf.Program, error)) error {
	p, err := way(r.Loaded.Prog)
	if err == nil {
		r.entry = p
	}
	return err
}

// evalShort does for a frame of less than 14 bytes what the program does for every
// malformed frame.
func (r *Runner) evalShort(n int, leaves bool) (int, action.Action) {
	first := slices.IndexFunc(r.program.Slots,
		func(s policy.Slot) bool { return s.Leaves == leaves })
	for i, s := range r.program.Slots {
		if s.Leaves != leaves || s.Reason != policy.ByRule || !s.Rule.Malformed {
			continue
		}
		r.count(i, n)
		if s.Action.Decides() {
			return i, s.Action.Verdict()
		}
	}
	reason := packet.TruncatedEthernet
	if r.link == packet.L3 {
		reason = packet.TruncatedIP
	}
	slot := first + int(reason) - 1 // of policy.Malformed
	r.count(slot, n)
	return slot, action.Drop
}

// Answer returns the frame that goes back in place of the one that Eval judged last, nil if none
// does.
func (r *Runner) Answer() []byte {
	if r.answered == 0 {
		return nil
	}
	return r.answer[:r.answered]
}

func (r *Runner) answerCode() uint32 {
	if r.hook == ebpf.SchedCLS {
		return tcxRedirect
	}
	return xdpTx
}

func (r *Runner) count(slot, n int) {
	c := (*store.Counter)(unsafe.Pointer(&r.counters[slot*codegen.SlotBytes]))
	c.Packets++
	c.Bytes += uint64(n)
}

func (r *Runner) verdict(hook ebpf.ProgramType, ret uint32) (action.Action, error) {
	pass := ret == attach.XdpPass
	drop := ret == XdpDrop || ret == r.answerCode() // an answer is no packet that goes on
	switch hook {
	case ebpf.SchedCLS:
		pass = ret == tcxPass || ret == tcxNext
		drop = ret == TcxDrop || ret == tcxRedirect
	case ebpf.CGroupSKB:
		pass, drop = ret == 1, ret == 0
	case ebpf.SocketFilter:
		pass, drop = ret == keepAll, ret == 0
	}
	switch {
	case hook == ebpf.XDP && ret == env.RedirectCode:
		return action.Redirect, nil
	case pass:
		return action.Pass, nil
	case drop:
		return action.Drop, nil
	}
	return action.Drop, fmt.Errorf("run program: it returned %d, neither pass nor drop", int32(ret))
}

func runError(err error, n int) error {
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		return kernel.Refuse(err,
			"run program: this kernel cannot run programs on frames from memory")
	case errors.Is(err, unix.EINVAL):
		return kernel.Refuse(err, "run program: this kernel does not run it on a frame of %d bytes",
			n)
	}
	return kernel.Refuse(err, "run program on a frame of %d bytes", n)
}

// Slots returns the meaning of each counter and of the slot that Eval returns.
func (r *Runner) Slots() []policy.Slot { return r.program.Slots }

// Counters returns what each slot has counted since NewRunner, over all CPUs, in the order of
// Slots.
func (r *Runner) Counters() []store.Counter {
	out := make([]store.Counter, len(r.program.Slots))
	for _, row := range generation.Rows(r.counters, r.program.RowBytes, len(out)) {
		for i, c := range row {
			out[i].Packets += c.Packets
			out[i].Bytes += c.Bytes
		}
	}
	return out
}

// SetClock makes the program take a time in jiffies for the present one, which it did for that of
// NewRunner. It must have been compiled with Target.Clock. Leases of entries that are added begin
// by the kernel's clock.
func (r *Runner) SetClock(jiffies uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&r.clock[0])), jiffies)
	for _, h := range r.heads {
		h.row.SetClock(h.memory, jiffies)
	}
}

// Tell has the kernel tell a value of the packets that follow.
func (r *Runner) Tell(f field.Field, v uint64) {
	if r.trace != nil {
		binary.NativeEndian.PutUint64(r.trace[plan.TraceAt(f):], v)
	}
}

// Untell has the kernel answer nothing about the packets that follow.
func (r *Runner) Untell() {
	for _, f := range field.Remembered() {
		if info := f.Info(); info.Kernel != field.NoSide {
			r.Tell(f, info.Absent)
		}
	}
}

// SetOwn tells cookies whom a SYN has to be for, as `up` does.
func (r *Runner) SetOwn(macs [][6]byte, none []netip.Addr) error {
	m := r.Loaded.Holding(state.HoldsOwn)
	if m == nil {
		return nil
	}
	return PutOwn(m, &local.Own{MACs: macs, None: none})
}

// Leave runs the programs at egress on a frame, where the policy has any.
func (r *Runner) Leave(frame []byte) error {
	_, _, err := r.EvalLeaving(frame)
	return err
}

// ForgetLimits empties the budgets of all limits. Times in them wrap around after 19.5 hours or
// more: who compares across days with what is exact needs it.
func (r *Runner) ForgetLimits() error { return r.forget(state.HoldsLimit) }

// ForgetStreams has no stream be known any more. What a search has found has no end in time.
func (r *Runner) ForgetStreams() error { return r.forget(state.HoldsStreams) }

// forget empties what all memories of a kind hold behind their heads.
func (r *Runner) forget(what state.Contents) error {
	for _, use := range r.Loaded.Ledger {
		if use.Holds.What != what {
			continue
		}
		m := r.Loaded.Maps[use.Name]
		memory, err := store.MapMemory(m, int(m.ValueSize()))
		if err != nil {
			return err
		}
		clear(memory[state.Of(what).Head:])
		if err := unix.Munmap(memory); err != nil {
			return err
		}
	}
	return nil
}

// SetAdd puts an entry into a dynamic set of the program; lease 0 is the set's own. A set that the
// program does not look up is no error: the compiler leaves out what no rule can reach.
func (r *Runner) SetAdd(name string, e sets.Entry) error {
	s := r.sets[name]
	if s == nil {
		return nil
	}
	if err := sets.CheckEntries([]sets.Entry{e}, s.Typ); err != nil {
		return err
	}
	return s.AddEntry(e)
}

// SetDel deletes an entry of a dynamic set, if it is there.
func (r *Runner) SetDel(name string, e policy.Element) {
	if s := r.sets[name]; s != nil {
		s.Delete(e)
	}
}

// Close removes the program and its maps from the kernel.
func (r *Runner) Close() error {
	var errs []error
	memories := [][]byte{r.trace, r.counters, r.clock}
	for _, h := range r.heads {
		memories = append(memories, h.memory)
	}
	for _, b := range memories {
		if b != nil {
			errs = append(errs, unix.Munmap(b))
		}
	}
	for _, set := range r.sets {
		errs = append(errs, set.Close())
	}
	r.trace, r.counters, r.clock, r.sets = nil, nil, nil, nil
	r.heads = nil
	return errors.Join(append(errs, r.Loaded.Close())...)
}
