package lookup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/kernel"
)

// traceLength is the number of addresses that a run looks up, a power of two: more than branch
// predictors and first-level caches remember.
const traceLength = 1 << 17

// unroll is the number of look-ups that a round of the loop makes, so that the loop costs little.
const unroll = 8

// timer is a program that looks up all addresses of a map. It is of the traffic control kind, which
// the kernel starts without the RCU grace periods of XDP test runs; the code of a look-up is the
// same.
type timer struct {
	coll   *ebpf.Collection
	addrs  *ebpf.Map
	prog   *ebpf.Program
	result *ebpf.Map
	within func(func() error) error // where the program must run, nil for anywhere
}

// newTimer loads the program around a structure, nil for the empty loop. Chained, where each
// address lies is worked out from the answer before, so that a look-up begins only when the last
// has ended; else the CPU overlaps them. The addresses and their order are the same. An answer that
// is given by a branch the CPU may predict, and go on with the next look-up meanwhile, as it does
// between packets.
func newTimer(b *Built, addrs *ebpf.Map, chained bool) (*timer, error) {
	code := assembler.New()
	code.Global("entry", assembler.Pointer("ctx"))
	// The callback finds the program's context through the stack: it may be given a pointer to that
	// only.
	code.Emit(asm.StoreMem(asm.R10, -8, asm.R1, asm.DWord))
	code.Loop(traceLength/unroll, "each", -8)
	code.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	code.Static("each", assembler.Number("round"), assembler.Pointer("ctx"))
	lookups(code, b, chained)
	if b != nil && b.functions != nil {
		b.functions(code)
	}
	spec := &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{
			"addrs": {Name: "addrs", Type: ebpf.Array, KeySize: 4, ValueSize: 16 * traceLength,
				MaxEntries: 1},
			"result": {Name: "result", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1},
		},
	}
	replace := map[string]*ebpf.Map{"addrs": addrs}
	if b != nil {
		for name, m := range b.maps {
			info, err := m.Info()
			if err != nil {
				return nil, kernel.Refuse(err, "ask the kernel about map %s", name)
			}
			spec.Maps[name] = shape(name, info)
			replace[name] = m
			if b.inner != nil && info.Type == ebpf.ArrayOfMaps {
				if info, err = b.inner.Info(); err != nil {
					return nil, kernel.Refuse(err, "ask the kernel about the inner map of %s", name)
				}
				spec.Maps[name].InnerMap = shape("inner", info)
			}
		}
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{
		"entry": {Name: "levee_lookups", Type: ebpf.SchedCLS, Instructions: code.MustFinish(),
			License: "Dual BSD/GPL"},
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace})
	if err != nil {
		return nil, kernel.LoadError("load the program that times look-ups", err)
	}
	t := &timer{coll: c, addrs: c.Maps["addrs"], prog: c.Programs["entry"],
		result: c.Maps["result"]}
	if b != nil {
		t.within = b.Within
	}
	return t, nil
}

// shape describes a map that is there.
func shape(name string, info *ebpf.MapInfo) *ebpf.MapSpec {
	return &ebpf.MapSpec{
		Name: name, Type: info.Type, KeySize: info.KeySize, ValueSize: info.ValueSize,
		MaxEntries: info.MaxEntries, Flags: info.Flags,
	}
}

// lookups writes a round of the loop, whose number is in R1; R2 points to the program's context,
// which is in R9 from then on.
func lookups(to *assembler.Builder, b *Built, chained bool) {
	to.Emit(
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LSh.Imm(asm.R6, 3), // times unroll
		asm.And.Imm(asm.R6, traceLength-unroll),
		asm.LoadMem(asm.R9, asm.R2, 0, asm.DWord),
		// The sum goes on from the round before: one that began with zero would not wait for it.
		asm.LoadMapValue(asm.R3, 0, 0).WithReference("result"),
		asm.LoadMem(asm.R7, asm.R3, 0, asm.DWord),
	)
	for i := range unroll {
		to.Emit(asm.Mov.Reg(asm.R1, asm.R6), asm.Or.Imm(asm.R1, int32(i)))
		if chained {
			// Always 0, which neither the kernel's compiler nor the CPU knows: an "and" waits for
			// its register.
			to.Emit(asm.Mov.Reg(asm.R2, asm.R7), asm.And.Imm(asm.R2, 0), asm.Or.Reg(asm.R1, asm.R2))
		}
		to.Emit(
			asm.LSh.Imm(asm.R1, 4),
			asm.LoadMapValue(asm.R3, 0, 0).WithReference("addrs"),
			asm.Add.Reg(asm.R3, asm.R1),
			asm.LoadMem(asm.R1, asm.R3, 0, asm.DWord),
			asm.LoadMem(asm.R2, asm.R3, 8, asm.DWord),
		)
		if b != nil {
			b.Code(to)
		} else { // the address itself is the answer, so that the chain is the same
			to.Emit(asm.Mov.Reg(asm.R0, asm.R1))
		}
		to.Emit(asm.Add.Reg(asm.R7, asm.R0))
	}
	to.Emit(
		asm.LoadMapValue(asm.R3, 0, 0).WithReference("result"),
		asm.StoreMem(asm.R3, 0, asm.R7, asm.DWord),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
}

func (t *timer) close() { t.coll.Close() }

// run returns the time of a look-up with the loop around it, in ns, and the sum of the answers.
func (t *timer) run() (ns float64, hits uint64, err error) {
	if err := t.result.Put(uint32(0), uint64(0)); err != nil {
		return 0, 0, err
	}
	var d time.Duration
	run := func() (err error) {
		_, d, err = t.prog.Benchmark(make([]byte, 64), 1, nil)
		return err
	}
	if t.within != nil {
		err = t.within(run)
	} else {
		err = run()
	}
	if err != nil {
		return 0, 0, kernel.Refuse(err, "run the program that times look-ups")
	}
	if err := t.result.Lookup(uint32(0), &hits); err != nil {
		return 0, 0, err
	}
	return float64(d.Nanoseconds()) / traceLength, hits, nil
}

// newAddresses makes the map of addresses for the programs.
func newAddresses() (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "addrs", Type: ebpf.Array, KeySize: 4,
		ValueSize: 16 * traceLength, MaxEntries: 1})
	return m, kernel.LoadError("make the map of addresses", err)
}

// fill puts the addresses there, as the registers carry them.
func fill(m *ebpf.Map, addrs []netip.Addr) error {
	if len(addrs) != traceLength {
		return errors.New("timing look-ups: wrong number of addresses")
	}
	value := make([]byte, 16*traceLength)
	for i, a := range addrs {
		b := a.AsSlice()
		if len(b) == 4 {
			binary.NativeEndian.PutUint64(value[16*i:], uint64(binary.BigEndian.Uint32(b)))
			continue
		}
		binary.NativeEndian.PutUint64(value[16*i:], binary.BigEndian.Uint64(b))
		binary.NativeEndian.PutUint64(value[16*i+8:], binary.BigEndian.Uint64(b[8:]))
	}
	if err := m.Put(uint32(0), value); err != nil {
		return fmt.Errorf("fill the map of addresses: %w", err)
	}
	return nil
}

// pair is both timers of a structure: a stream of look-ups and a chain of them.
type pair [2]*timer

func newPair(b *Built, addrs *ebpf.Map) (p pair, err error) {
	for i, chained := range []bool{false, true} {
		if p[i], err = newTimer(b, addrs, chained); err != nil {
			p.close()
			return p, err
		}
	}
	return p, nil
}

func (p pair) close() {
	for _, t := range p {
		if t != nil {
			t.close()
		}
	}
}

// round measures base, structure, structure, base; the result is ns above the base, of stream and
// chain, and the sum of the answers; the same addresses have the same sum unless the structure
// errs.
func (p pair) round(base pair) (ns [2]float64, hits uint64, same bool, err error) {
	same = true
	for i := range p {
		var took [4]float64
		for j, t := range []*timer{base[i], p[i], p[i], base[i]} {
			var sum uint64
			if took[j], sum, err = t.run(); err != nil {
				return ns, 0, false, err
			}
			if t != p[i] {
				continue
			}
			same = same && (i == 0 && j == 1 || sum == hits)
			hits = sum
		}
		ns[i] = (took[1] + took[2] - took[0] - took[3]) / 2
	}
	return ns, hits, same, nil
}
