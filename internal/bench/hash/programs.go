package hash

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"levee/internal/kernel"
)

// Sizes that bpf/hash.bpf.c has as well; a test compares.
const (
	numKeys = 256
	longest = 64
	calls   = 1 << 16 // hashes of one run
)

// Lengths of keys in bytes: an address or a port pair, two of them, the addresses and ports of an
// IPv4 flow with its protocol rounded up (16), the addresses of an IPv6 flow (32), with the ports
// (36), and a cache line.
var Lengths = []int{4, 8, 16, 32, 36, 64}

// keys of random bytes; each row has one.
type keyTable [numKeys][longest]byte

// words returns the table as the programs have it.
func (t *keyTable) words() *[numKeys][longest / 8]uint64 {
	var out [numKeys][longest / 8]uint64
	for i := range t {
		for j := range out[i] {
			out[i][j] = binary.NativeEndian.Uint64(t[i][8*j:])
		}
	}
	return &out
}

// programs are all in one mode.
type programs struct {
	coll *ebpf.Collection
}

// mode is the work of the loop besides hashing.
type mode struct{ chained, keep bool }

// load loads the base and the programs that are named.
func load(m mode, keys *keyTable, secret Secret, names []string) (*programs, error) {
	spec, err := loadHash()
	if err != nil {
		return nil, fmt.Errorf("reading the programs that hash: %w", err)
	}
	wanted := map[string]*ebpf.ProgramSpec{}
	for _, name := range append([]string{baseProgram}, names...) {
		p := spec.Programs[name]
		if p == nil {
			return nil, fmt.Errorf("there is no program %s", name)
		}
		wanted[name] = p
	}
	spec.Programs = wanted
	for name, value := range map[string]any{"chained": m.chained, "keep": m.keep, "secret": secret,
		"crc_table": crcTables()} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("setting %s: %w", name, err)
		}
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, kernel.LoadError("load the programs that hash (they need Linux 5.17)", err)
	}
	p := &programs{c}
	if err := c.Variables["keys"].Set(keys.words()); err != nil {
		p.close()
		return nil, fmt.Errorf("filling the table of keys: %w", err)
	}
	return p, nil
}

func (p *programs) close() { p.coll.Close() }

const baseProgram = "base_4"

func programName(f *function, length int) string { return fmt.Sprintf("%s_%d", f.name, length) }

// run is one run of a program: ns a hash, the loop included.
func (p *programs) run(name string) (float64, error) {
	// A program of traffic control: XDP's test runs begin with a wait for all CPUs.
	_, d, err := p.coll.Programs[name].Benchmark(make([]byte, 64), 1, nil)
	if err != nil {
		return 0, kernel.Refuse(err, "run a program that hashes")
	}
	return float64(d.Nanoseconds()) / calls, nil
}

// hashes runs a program of mode keep and returns the hash of each key.
func (p *programs) hashes(name string) (*[numKeys]uint64, error) {
	var out [numKeys]uint64
	v := p.coll.Variables["hashes"]
	if err := v.Set(out); err != nil { // nothing may be left of another program
		return nil, fmt.Errorf("clearing the hashes: %w", err)
	}
	if _, err := p.run(name); err != nil {
		return nil, err
	}
	if err := v.Get(&out); err != nil {
		return nil, fmt.Errorf("reading the hashes: %w", err)
	}
	return &out, nil
}

// loop returns the same loop in Go: ns a hash, the loop included.
func (t *keyTable) loop(hash func([]byte, *Secret) uint64, secret *Secret, length int,
	chained bool) (ns float64, sum uint64) {
	mask := uint64(0)
	if chained {
		mask = 1
	}
	start := time.Now()
	if !chained {
		for i := range calls {
			sum += hash(t[i%numKeys][:length], secret)
		}
	} else {
		for i := range uint64(calls) {
			sum += hash(t[(i^sum&mask)%numKeys][:length], secret)
		}
	}
	return float64(time.Since(start)) / calls, sum
}
