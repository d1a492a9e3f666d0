package gen

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"levee/internal/filter/assembler"
	"levee/internal/lab"
)

// Frames are packets that are sent as they are, one after the other and again from the first, as
// live frames and as fast as it goes: a trace of many different packets at the rate of a flood.
type Frames struct {
	// Frames are whole Ethernet frames, at most MaxFrame bytes each. All are sent at the length of
	// the longest, or 64 bytes, zero-filled behind their end, which Ethernet allows. Their Ethernet
	// addresses are replaced by those of the lab.
	Frames [][]byte
}

// MaxFrame is the longest frame of a trace, in bytes; maxTrace the most bytes of all.
const (
	MaxFrame = 1536
	maxTrace = 1 << 28
	minTrace = 64 // length of a frame
)

// Maps of the program that sends a trace.
const (
	traceMap = "frames"
	tallyMap = "tally"
)

// tally is the value of tallyMap: what the program counts. Offsets below.
type tally struct{ next, sent, errors uint64 }

const (
	tallyNext   = 0
	tallySent   = 8
	tallyErrors = 16
	tallyBytes  = 24
)

func (f *Frames) check() error {
	if len(f.Frames) == 0 {
		return errors.New("the trace has no frames")
	}
	for i, b := range f.Frames {
		if len(b) < 14 || len(b) > MaxFrame {
			return fmt.Errorf("frame %d of the trace has %d bytes: must be 14 to %d", i, len(b),
				MaxFrame)
		}
	}
	if n := len(f.Frames) * f.stride(); n > maxTrace {
		return fmt.Errorf("a trace of %d bytes: the most is %d", n, maxTrace)
	}
	return nil
}

// stride returns the length that all frames are sent at, a multiple of 8.
func (f *Frames) stride() int {
	longest := slices.MaxFunc(f.Frames, func(a, b []byte) int { return len(a) - len(b) })
	return max(minTrace, (len(longest)+7)&^7)
}

// memory returns the frames one behind the other, with the addresses of a device of a lab.
func (f *Frames) memory(dev device) []byte {
	stride := f.stride()
	b := make([]byte, stride*len(f.Frames))
	for i, frame := range f.Frames {
		to := b[i*stride:]
		copy(to, frame)
		copy(to, dev.dst[:])
		copy(to[6:], dev.mac[:])
	}
	return b
}

// program writes the next frame of the trace over the packet and sends it to the device. It sends
// no more than limit: a test run that a signal interrupts starts again with its full count.
func (f *Frames) program(dev device, limit uint64) asm.Instructions {
	stride := f.stride()
	b := assembler.New()
	b.Emit(
		asm.LoadMem(asm.R7, asm.R1, 0, asm.Word), // xdp_md.data
		asm.LoadMem(asm.R8, asm.R1, 4, asm.Word), // xdp_md.data_end
		asm.LoadMapValue(asm.R9, 0, 0).WithReference(tallyMap),
		asm.LoadMem(asm.R1, asm.R9, tallySent, asm.DWord),
		asm.LoadImm(asm.R2, int64(limit), asm.DWord),
		asm.JGE.Reg(asm.R1, asm.R2, "drop"),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, int32(stride)),
		asm.JGT.Reg(asm.R1, asm.R8, "short"),
		asm.LoadMem(asm.R1, asm.R9, tallyNext, asm.DWord),
		asm.JLT.Imm(asm.R1, int32(len(f.Frames)), "copy"),
		asm.Mov.Imm(asm.R1, 0),
	)
	b.Label("copy")
	b.Emit(
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.Mul.Imm(asm.R2, int32(stride)),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R9, tallyNext, asm.R1, asm.DWord),
		asm.LoadMapValue(asm.R3, 0, 0).WithReference(traceMap),
		asm.Add.Reg(asm.R3, asm.R2),
	)
	for i := int16(0); i < int16(stride); i += 8 {
		b.Emit(asm.LoadMem(asm.R4, asm.R3, i, asm.DWord),
			asm.StoreMem(asm.R7, i, asm.R4, asm.DWord))
	}
	b.Emit(
		asm.LoadMem(asm.R1, asm.R9, tallySent, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R9, tallySent, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, int32(dev.index)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
	)
	b.Label("short")
	b.Emit(
		asm.LoadMem(asm.R1, asm.R9, tallyErrors, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R9, tallyErrors, asm.R1, asm.DWord),
	)
	b.Label("drop")
	b.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return()) // XDP_DROP
	return b.MustFinish()
}

// load puts the program with its trace into the kernel.
func (f *Frames) load(dev device, limit uint64) (*ebpf.Collection, error) {
	trace := f.memory(dev)
	array := func(name string, size int, contents ...ebpf.MapKV) *ebpf.MapSpec {
		return &ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size),
			MaxEntries: 1, Contents: contents}
	}
	c, err := ebpf.NewCollection(&ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{
			traceMap: array(traceMap, len(trace), ebpf.MapKV{Key: uint32(0), Value: trace}),
			tallyMap: array(tallyMap, tallyBytes),
		},
		Programs: map[string]*ebpf.ProgramSpec{
			"trace": {Name: "levee_trace", Type: ebpf.XDP, Instructions: f.program(dev, limit),
				License: "Dual BSD/GPL"},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("loading the program that sends the trace: %w", err)
	}
	return c, nil
}

func runFrames(ctx context.Context, c Config, dev device) (Report, error) {
	f := c.Frames
	switch {
	case !dev.inLab:
		return Report{}, fmt.Errorf("a trace goes into a lab only: %w", lab.ErrForeign)
	case c.Rate > 0:
		return Report{}, errors.New("a trace is sent as fast as it goes: it takes no rate")
	case dev.index > math.MaxInt32:
		return Report{}, unix.EINVAL
	}
	objs, err := f.load(dev, c.Count)
	if err != nil {
		return Report{}, err
	}
	defer objs.Close()
	return counted(dev, objs.Programs["trace"],
		func(meter) (Report, error) { return f.run(ctx, c, objs) })
}

// run copies the frames to the device until the count or the time is reached.
func (f *Frames) run(ctx context.Context, c Config, objs *ebpf.Collection) (Report, error) {
	start := monotonic()
	deadline := start + uint64(c.Duration)
	var count tally
	some := uint64(firstRuns)
	for ctx.Err() == nil && count.sent < c.Count && monotonic() < deadline {
		began := monotonic()
		_, err := objs.Programs["trace"].Run(&ebpf.RunOptions{
			Data: make([]byte, f.stride()), Flags: liveFrames, BatchSize: fastBatch,
			Repeat: uint32(min(some, c.Count-count.sent)),
		})
		if err != nil {
			return Report{}, fmt.Errorf("running the program over live frames (needs Linux "+
				"5.18): %w", err)
		}
		some = nextRuns(some, time.Duration(monotonic()-began), aCall)
		if count, err = readTally(objs.Maps[tallyMap]); err != nil {
			return Report{}, err
		}
		if count.errors > 0 {
			return Report{}, fmt.Errorf("the program could not write %d frames", count.errors)
		}
		if c.Progress != nil {
			c.Progress(Progress{Sent: count.sent, Elapsed: time.Duration(monotonic() - start)})
		}
	}
	r := Report{Sent: count.sent, Bytes: count.sent * uint64(f.stride()),
		Duration: time.Duration(monotonic() - start)}
	r.Path, r.How = Live, "live frames (BPF_F_TEST_XDP_LIVE_FRAMES): an XDP program copies each "+
		"packet from a map"
	r.Achieved = achieved(r.Sent, r.Duration, false)
	return r, nil
}

func readTally(m *ebpf.Map) (tally, error) {
	var b []byte
	if err := m.Lookup(uint32(0), &b); err != nil {
		return tally{}, fmt.Errorf("reading the program's counts: %w", err)
	}
	word := binary.NativeEndian.Uint64
	return tally{word(b[tallyNext:]), word(b[tallySent:]), word(b[tallyErrors:])}, nil
}
