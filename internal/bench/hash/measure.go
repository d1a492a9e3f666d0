package hash

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"time"

	"levee/internal/bench/option"
	"levee/internal/host"
	"levee/internal/kernel"
)

// Options of a measurement. The zero value measures everything in under half a minute.
type Options struct {
	Only    []string // functions by name, nil for all
	Lengths []int    // of keys, nil for all of Lengths
	Rounds  int      // 0 for 15; fewer than 6 have no interval
	Seed    uint64   // of keys and secret
	Command string   // to repeat it, for the report
	// Progress, if given, is told what is done, and how much of all.
	Progress func(doing string, done, total int)
}

const minRounds = option.MinRounds

func (o *Options) complete() error {
	if o.Rounds == 0 {
		o.Rounds = 15
	}
	if err := option.Rounds(o.Rounds); err != nil {
		return err
	}
	if err := option.Known("function", o.Only, Names()); err != nil {
		return err
	}
	if o.Lengths == nil {
		o.Lengths = Lengths
	}
	for _, n := range o.Lengths {
		if !slices.Contains(Lengths, n) {
			return option.Wrongf("keys of %d bytes: they are measured with %s", n, option.Numbers(Lengths))
		}
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	return nil
}

// Names are the functions.
func Names() []string {
	var out []string
	for _, f := range functions {
		out = append(out, f.name)
	}
	return out
}

// item is one function with one length.
type item struct {
	f *function
	*Cost
}

// bench is a measurement under way.
type bench struct {
	*Options
	keys    keyTable
	secret  Secret
	stream  *programs
	chain   *programs
	items   []item
	discard uint64 // of the loops in Go, so that the compiler keeps them
}

// Measure compares the functions. It needs root. When ctx ends early the report has what was measured
// until then, says that it is incomplete, and comes with the error; without any round there is no report.
func Measure(ctx context.Context, o Options) (*Report, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("bench hash: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, kernel.Refuse(os.ErrPermission, "measuring needs root: sudo levee bench hash")
	}
	b := &bench{Options: &o}
	b.draw()
	r := b.newReport()
	var names []string
	for _, it := range b.items {
		names = append(names, programName(it.f, it.Bytes))
	}
	o.Progress("loading and comparing", 0, o.Rounds)
	if err := b.compare(names); err != nil {
		return nil, err
	}
	var err error
	if b.stream, err = load(mode{}, &b.keys, b.secret, names); err != nil {
		return nil, err
	}
	defer b.stream.close()
	if b.chain, err = load(mode{chained: true}, &b.keys, b.secret, names); err != nil {
		return nil, err
	}
	defer b.chain.close()
	err = b.rounds(ctx)
	if ctx.Err() != nil {
		r.Incomplete = "interrupted"
	} else if err != nil {
		return nil, err
	}
	if err != nil && r.measured() == 0 {
		return nil, fmt.Errorf("bench hash: interrupted before the first figure: %w", ctx.Err())
	}
	return r, err
}

// draw makes keys and secret.
func (b *bench) draw() {
	r := rand.New(rand.NewPCG(b.Seed, 1))
	b.secret = Secret{r.Uint64(), r.Uint64()}
	for i := range b.keys {
		for j := 0; j < longest; j += 8 {
			binary.NativeEndian.PutUint64(b.keys[i][j:], r.Uint64())
		}
	}
}

func (b *bench) newReport() *Report {
	r := &Report{
		Started: time.Now().UTC().Truncate(time.Second), Command: b.Command, Rounds: b.Rounds, Seed: b.Seed,
		Machine: host.Fingerprint(0), Caveats: caveats,
	}
	for i := range functions {
		f := &functions[i]
		if len(b.Only) > 0 && !slices.Contains(b.Only, f.name) {
			continue
		}
		res := &Result{Name: f.name, What: f.what, Bits: f.bits, Quality: f.quality(&b.secret, b.Seed)}
		for _, n := range b.Lengths {
			c := &Cost{Bytes: n}
			res.Costs = append(res.Costs, c)
			b.items = append(b.items, item{f, c})
		}
		r.Functions = append(r.Functions, res)
	}
	return r
}

// compare lets program and library hash the same random keys.
func (b *bench) compare(names []string) error {
	p, err := load(mode{keep: true}, &b.keys, b.secret, names)
	if err != nil {
		return err
	}
	defer p.close()
	for _, it := range b.items {
		got, err := p.hashes(programName(it.f, it.Bytes))
		if err != nil {
			return err
		}
		for i := range got {
			if want := it.f.hash(b.keys[i][:it.Bytes], &b.secret); got[i] != want {
				it.Missing = fmt.Sprintf("wrong hash: the program says %#x, the library %#x", got[i], want)
				break
			}
		}
	}
	return nil
}

// rounds goes through the items forwards and backwards in turn; the first round warms up.
func (b *bench) rounds(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for round := range b.Rounds + 1 {
		for n := range b.items {
			it := b.items[n]
			if round%2 == 1 {
				it = b.items[len(b.items)-1-n]
			}
			if ctx.Err() != nil {
				return fmt.Errorf("bench hash: interrupted: %w", ctx.Err())
			}
			b.Progress(fmt.Sprintf("%s of %d bytes", it.f.name, it.Bytes), round*len(b.items)+n, (b.Rounds+1)*len(b.items))
			if it.Missing != "" {
				continue
			}
			if err := b.item(it, round > 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// item measures one item once, in eBPF and in Go, each above its own base.
func (b *bench) item(it item, counts bool) error {
	name := programName(it.f, it.Bytes)
	for _, way := range []struct {
		to      *[]float64
		measure func(hash bool) (float64, error)
	}{
		{&it.EBPF.Stream, b.inKernel(b.stream, name)},
		{&it.EBPF.Chain, b.inKernel(b.chain, name)},
		{&it.Go.Stream, b.inGo(it, false)},
		{&it.Go.Chain, b.inGo(it, true)},
	} {
		var took [4]float64
		for i, hash := range []bool{false, true, true, false} {
			var err error
			if took[i], err = way.measure(hash); err != nil {
				return err
			}
		}
		if counts {
			*way.to = append(*way.to, (took[1]+took[2]-took[0]-took[3])/2)
		}
	}
	return nil
}

func (b *bench) inKernel(p *programs, name string) func(bool) (float64, error) {
	return func(hash bool) (float64, error) {
		if hash {
			return p.run(name)
		}
		return p.run(baseProgram)
	}
}

func (b *bench) inGo(it item, chained bool) func(bool) (float64, error) {
	return func(hash bool) (float64, error) {
		f := base
		if hash {
			f = it.f.hash
		}
		ns, sum := b.keys.loop(f, &b.secret, it.Bytes, chained)
		b.discard += sum
		return ns, nil
	}
}
