package hash

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"

	"levee/internal/bench"
	"levee/internal/usage"
)

// Options of a measurement. The zero value measures everything in under half a minute.
type Options struct {
	bench.Options
	Only    []string // functions by name, nil for all
	Lengths []int    // of keys, nil for all of Lengths
}

var usual = bench.Usual{Rounds: 15, QuickRounds: bench.MinRounds}

func (o *Options) complete() error {
	if err := errors.Join(o.Options.Complete(usual),
		usage.Known("function", o.Only, Names())); err != nil {
		return err
	}
	if o.Lengths == nil {
		o.Lengths = Lengths
	}
	for _, n := range o.Lengths {
		if !slices.Contains(Lengths, n) {
			return usage.Wrongf("keys of %d bytes: they are measured with %s", n,
				usage.Numbers(Lengths))
		}
	}
	return nil
}

// Names returns the functions.
func Names() []string { return bench.Names(functions, func(f function) string { return f.name }) }

// item is one function with one length.
type item struct {
	f *function
	*Cost
}

// measurement is one under way.
type measurement struct {
	*Options
	keys    keyTable
	secret  Secret
	stream  *programs
	chain   *programs
	items   []item
	discard uint64 // of the loops in Go, so that the compiler keeps them
}

// Run compares the functions. It needs root. When ctx ends early the report has what was measured
// until then, says that it is incomplete, and comes with the error; without any round there is no
// report.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := bench.Ready("hash", o.complete()); err != nil {
		return nil, err
	}
	m := &measurement{Options: &o}
	m.draw()
	r := m.newReport()
	var names []string
	for _, it := range m.items {
		names = append(names, programName(it.f, it.Bytes))
	}
	o.Tell("loading and comparing", 0, o.Rounds)
	if err := m.compare(names); err != nil {
		return nil, err
	}
	var err error
	if m.stream, err = load(mode{}, &m.keys, m.secret, names); err != nil {
		return nil, err
	}
	defer m.stream.close()
	if m.chain, err = load(mode{chained: true}, &m.keys, m.secret, names); err != nil {
		return nil, err
	}
	defer m.chain.close()
	if err = m.rounds(ctx); err != nil && ctx.Err() != nil && r.measured() == 0 {
		return nil, fmt.Errorf("interrupted before the first figure: %w", ctx.Err())
	}
	return bench.Ended(ctx, r, &r.Head, err)
}

// draw makes keys and secret.
func (m *measurement) draw() {
	r := rand.New(rand.NewPCG(m.Seed, 1))
	m.secret = Secret{r.Uint64(), r.Uint64()}
	for i := range m.keys {
		for j := 0; j < longest; j += 8 {
			binary.NativeEndian.PutUint64(m.keys[i][j:], r.Uint64())
		}
	}
}

func (m *measurement) newReport() *Report {
	r := &Report{Head: m.Head(0, caveats...)}
	for i := range functions {
		f := &functions[i]
		if !bench.Wanted(m.Only, f.name) {
			continue
		}
		res := &Result{Name: f.name, What: f.what, Bits: f.bits,
			Quality: f.quality(&m.secret, m.Seed)}
		for _, n := range m.Lengths {
			c := &Cost{Bytes: n}
			res.Costs = append(res.Costs, c)
			m.items = append(m.items, item{f, c})
		}
		r.Functions = append(r.Functions, res)
	}
	return r
}

// compare lets program and library hash the same random keys.
func (m *measurement) compare(names []string) error {
	p, err := load(mode{keep: true}, &m.keys, m.secret, names)
	if err != nil {
		return err
	}
	defer p.close()
	for _, it := range m.items {
		got, err := p.hashes(programName(it.f, it.Bytes))
		if err != nil {
			return err
		}
		for i := range got {
			if want := it.f.hash(m.keys[i][:it.Bytes], &m.secret); got[i] != want {
				it.Missing = fmt.Sprintf("wrong hash: the program says %#x, the library %#x",
					got[i], want)
				break
			}
		}
	}
	return nil
}

// rounds goes through the items forwards and backwards in turn; the first round warms up.
func (m *measurement) rounds(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for round := range m.Rounds + 1 {
		for n, i := range bench.InTurn(round, len(m.items)) {
			it := m.items[i]
			if err := bench.Interrupted(ctx); err != nil {
				return err
			}
			m.Tell(fmt.Sprintf("%s of %d bytes", it.f.name, it.Bytes), round*len(m.items)+n,
				(m.Rounds+1)*len(m.items))
			if it.Missing != "" {
				continue
			}
			if err := m.item(it, round > 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// item measures one item once, in eBPF and in Go, each above its own base.
func (m *measurement) item(it item, counts bool) error {
	name := programName(it.f, it.Bytes)
	for _, way := range []struct {
		to      *[]float64
		measure func(hash bool) (float64, error)
	}{
		{&it.EBPF.Stream, m.inKernel(m.stream, name)},
		{&it.EBPF.Chain, m.inKernel(m.chain, name)},
		{&it.Go.Stream, m.inGo(it, false)},
		{&it.Go.Chain, m.inGo(it, true)},
	} {
		ns, err := bench.Above(way.measure)
		if err != nil {
			return err
		}
		if counts {
			*way.to = append(*way.to, ns)
		}
	}
	return nil
}

func (m *measurement) inKernel(p *programs, name string) func(bool) (float64, error) {
	return func(hash bool) (float64, error) {
		if hash {
			return p.run(name)
		}
		return p.run(baseProgram)
	}
}

func (m *measurement) inGo(it item, chained bool) func(bool) (float64, error) {
	return func(hash bool) (float64, error) {
		f := base
		if hash {
			f = it.f.hash
		}
		ns, sum := m.keys.loop(f, &m.secret, it.Bytes, chained)
		m.discard += sum
		return ns, nil
	}
}
