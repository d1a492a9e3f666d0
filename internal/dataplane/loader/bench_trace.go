package loader

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"levee/internal/filter/assembler"
	"levee/internal/filter/codegen"
	"levee/internal/kernel"
)

// Trace is many different frames that programs are run on in turn, so that neither caches nor
// branch predictors know the next one: what Bench measures for one frame again and again is a lower
// bound.
//
// BPF_PROG_RUN repeats one frame. So a small program writes the next frame of the trace over it and
// calls the program to be measured by a tail call through an array with one entry, which the
// kernel makes a direct jump (arch/x86/net/bpf_jit_comp.c, since 5.5). The same with an empty
// program behind it is the base: copying and jump cancel out.
type Trace struct {
	Frames  *ebpf.Map
	next    *ebpf.Map
	empty   *feeder
	base    *ebpf.Program
	Stride  int
	Count   int
	feeders []*feeder
}

// feeder is the small program with a jump of its own.
type feeder struct {
	Prog *ebpf.Program
	jump *ebpf.Map
}

// Limits of a trace: bytes of a frame, and frames.
const (
	MaxTraceFrame = 256
	maxTrace      = 1 << 20
)

// NewTrace takes frames of 14 to 256 bytes. All are run at the length of the longest, or 64 bytes,
// zero-filled behind their end.
func NewTrace(frames [][]byte) (*Trace, error) {
	if len(frames) == 0 || len(frames) > maxTrace {
		return nil, fmt.Errorf("measure program: a trace of %d frames, must be 1 to %d",
			len(frames), maxTrace)
	}
	longest := 64
	for _, f := range frames {
		if len(f) < minFrame || len(f) > MaxTraceFrame {
			return nil, fmt.Errorf("measure program: a frame of %d bytes, must be %d to %d", len(f),
				minFrame, MaxTraceFrame)
		}
		longest = max(longest, len(f))
	}
	t := &Trace{Stride: (longest + 7) &^ 7, Count: len(frames)}
	memory := make([]byte, t.Stride*t.Count)
	for i, f := range frames {
		copy(memory[i*t.Stride:], f)
	}
	if err := t.load(memory); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Trace) load(memory []byte) (err error) {
	if err := kernel.Privileged(); err != nil {
		return err
	}
	spec := ebpf.MapSpec{Name: "trace_frames", Type: ebpf.Array, KeySize: 4,
		ValueSize: uint32(len(memory)), MaxEntries: 1}
	if t.Frames, err = ebpf.NewMap(&spec); err != nil {
		return kernel.LoadError("make the map of a trace", err)
	}
	if err = t.Frames.Put(uint32(0), memory); err != nil {
		return kernel.LoadError("fill the map of a trace", err)
	}
	spec = ebpf.MapSpec{Name: "trace_next", Type: ebpf.Array, KeySize: 4, ValueSize: 8,
		MaxEntries: 1}
	if t.next, err = ebpf.NewMap(&spec); err != nil {
		return kernel.LoadError("make the map of a trace", err)
	}
	if t.base, err = emptyProgram(ebpf.XDP); err != nil {
		return err
	}
	t.empty, err = t.Feed(t.base, ebpf.AttachNone)
	return err
}

// Feed makes the program that hands the frames of the trace to another. Both must have been loaded
// for the same kind of attachment (__bpf_prog_map_compatible, kernel/bpf/core.c).
func (t *Trace) Feed(to *ebpf.Program, attach ebpf.AttachType) (*feeder, error) {
	jump, err := ebpf.NewMap(&ebpf.MapSpec{Name: "trace_jump", Type: ebpf.ProgramArray, KeySize: 4,
		ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, kernel.LoadError("make the jump of a trace", err)
	}
	f := &feeder{jump: jump}
	t.feeders = append(t.feeders, f)
	if err := jump.Put(uint32(0), to); err != nil {
		return nil, kernel.LoadError("put the program behind a trace", err)
	}
	b := assembler.New()
	bounds := func() {
		b.Emit(
			asm.LoadMem(asm.R7, asm.R6, 0, asm.Word), // xdp_md.data
			asm.LoadMem(asm.R8, asm.R6, 4, asm.Word), // xdp_md.data_end
			asm.Mov.Reg(asm.R1, asm.R7),
			asm.Add.Imm(asm.R1, int32(t.Stride)),
		)
	}
	b.Emit(asm.Mov.Reg(asm.R6, asm.R1))
	bounds()
	b.Emit(
		asm.JLE.Reg(asm.R1, asm.R8, "whole"),
		// A program that answers has made the frame shorter.
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.Sub.Reg(asm.R2, asm.R8),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.FnXdpAdjustTail.Call(),
	)
	bounds()
	b.Emit(asm.JGT.Reg(asm.R1, asm.R8, "end"))
	b.Label("whole")
	b.Emit(
		asm.LoadMapValue(asm.R9, t.next.FD(), 0),
		asm.LoadMem(asm.R1, asm.R9, 0, asm.DWord),
		asm.JLT.Imm(asm.R1, int32(t.Count), "copy"),
		asm.Mov.Imm(asm.R1, 0),
	)
	b.Label("copy")
	b.Emit(
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.Mul.Imm(asm.R2, int32(t.Stride)),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R9, 0, asm.R1, asm.DWord),
		asm.LoadMapValue(asm.R3, t.Frames.FD(), 0),
		asm.Add.Reg(asm.R3, asm.R2),
	)
	// The words lie as a program reads them behind an Ethernet header: a load that needs two words
	// just stored waits until both are in the cache, and so for the misses of the packet before
	// (store forwarding). Frames from a device have been stored long before.
	copied := func(at int16, size asm.Size) {
		b.Emit(asm.LoadMem(asm.R4, asm.R3, at, size), asm.StoreMem(asm.R7, at, asm.R4, size))
	}
	copied(0, asm.Word)
	copied(4, asm.Half)
	for at := int16(6); at < int16(t.Stride)-2; at += 8 {
		copied(at, asm.DWord)
	}
	copied(int16(t.Stride)-2, asm.Half)
	b.Emit(
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, jump.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
	)
	b.Label("end")
	b.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return()) // XDP_ABORTED: never
	f.Prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "levee_trace", Type: ebpf.XDP, AttachType: attach, Instructions: b.MustFinish(),
		License: "Dual BSD/GPL",
	})
	return f, kernel.LoadError("load the program that runs a trace", err)
}

// Close removes what the trace has in the kernel.
func (t *Trace) Close() error {
	var errs []error
	for _, f := range t.feeders {
		errs = append(errs, f.Prog.Close(), f.jump.Close())
	}
	return errors.Join(append(errs, t.base.Close(), t.Frames.Close(), t.next.Close())...)
}

// TraceRun is a program on a trace, round by round.
type TraceRun struct {
	Trace  *Trace
	Feeder *feeder
	Frame  []byte
}

// OnTrace prepares measurements of the program, which must be of XDP, on a trace. They end with the
// trace.
func (r *Runner) OnTrace(t *Trace) (*TraceRun, error) {
	if r.hook != ebpf.XDP {
		return nil, errors.New("measure program: a trace runs XDP programs")
	}
	feeder, err := t.Feed(r.Loaded.Prog, r.program.Spec.Programs[r.program.Judge()].AttachType)
	if err != nil {
		return nil, err
	}
	return &TraceRun{t, feeder, make([]byte, t.Stride)}, nil
}

// Round measures the program against an empty one: empty, program, program, empty (A B B A), each
// over so many packets, from where in the trace the last ended. The result is ns a packet above the
// empty program, and of that with the test loop and copying. The kernel's clock cuts each mean to
// whole nanoseconds. The first round warms up: its figures are to be thrown away.
func (x *TraceRun) Round(packets int) (above, empty float64, err error) {
	if packets < 1 {
		return 0, 0, errors.New("measure program: a round needs a packet")
	}
	var ns [4]float64
	for i, p := range [4]*ebpf.Program{x.Trace.empty.Prog, x.Feeder.Prog, x.Feeder.Prog,
		x.Trace.empty.Prog} {
		ret, d, err := p.Benchmark(x.Frame, packets, nil)
		if err != nil {
			return 0, 0, runError(err, len(x.Frame))
		}
		if ret == 0 {
			return 0, 0,
				errors.New("measure program: the jump from the trace into the program failed")
		}
		ns[i] = float64(d.Nanoseconds())
	}
	empty = (ns[0] + ns[3]) / 2
	return (ns[1]+ns[2])/2 - empty, empty, nil
}

// Memory returns what the program and its maps take in the kernel, in bytes, as it charges them.
// The counters are of one row for each CPU.
func (r *Runner) Memory() (uint64, error) {
	var sum uint64
	last, _ := r.program.MapOf(codegen.LastSlot)
	for name, m := range r.Loaded.Maps {
		if name == last {
			continue
		}
		info, err := m.Info()
		if err != nil {
			return 0, kernel.Refuse(err, "ask the kernel about map %s", name)
		}
		n, ok := info.Memlock()
		if !ok {
			return 0, kernel.Refuse(unix.ENOTSUP, "ask the kernel for the memory of map %s", name)
		}
		sum += n
	}
	info, err := r.Loaded.Prog.Info()
	if err != nil {
		return 0, kernel.Refuse(err, "ask the kernel about the program")
	}
	if n, ok := info.Memlock(); ok {
		sum += n
	}
	return sum, nil
}
