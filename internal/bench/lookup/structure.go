package lookup

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"levee/internal/filter/assembler"
	"levee/internal/filter/prefix"
	"levee/internal/kernel"
)

// Structure is a set in the kernel that a program can ask.
type Structure struct {
	Name string
	What string
	// HostsOnly: the structure knows single addresses, no prefixes.
	HostsOnly bool
	Build     func(prefixes []netip.Prefix, width int) (*Built, error)
}

// Built is one that is filled. Code looks the address in R1 and R2 up (package prefix says how) and
// answers in R0; R6 to R9 are kept.
type Built struct {
	Code     func(*assembler.Builder)
	Memory   uint64
	LoadTime time.Duration // into the kernel
	Update   func(netip.Prefix) error
	Closers  []func() error
	// where a program must run to ask it, nil for anywhere
	Within func(func() error) error
	Depth  func(addrs []netip.Addr) (d *Depth, why string) // nil if it is not known, and why not

	functions func(*assembler.Builder) // that Code calls, nil if it calls none
	maps      map[string]*ebpf.Map
	inner     *ebpf.Map     // of a map of maps, for its memory and its shape
	buildTime time.Duration // in user space
	updateAll bool          // an update is building and loading anew
}

// Close gives everything back.
func (b *Built) Close() error {
	var errs []error
	for _, m := range b.all() {
		errs = append(errs, m.Close())
	}
	for _, c := range b.Closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// Structures are levee's, and what the kernel has.
var Structures = []Structure{
	{"levee static", "levee's structure for a set in the policy or a file", false, buildStatic},
	{"levee dynamic", "levee's structure for entries that come and go, each with a lease", false,
		buildDynamic},
	{"kernel LPM trie", "BPF_MAP_TYPE_LPM_TRIE", false, buildLPM},
	{"kernel hash map", "BPF_MAP_TYPE_HASH, preallocated; single addresses only", true, buildHash},
}

const setMap = "set"

// all lists the maps, with the inner one.
func (b *Built) all() map[string]*ebpf.Map {
	out := maps.Clone(b.maps)
	if b.inner != nil {
		out["inner"] = b.inner
	}
	return out
}

// charge adds up what the kernel charges for the maps.
func (b *Built) charge() error {
	for name, m := range b.all() {
		info, err := m.Info()
		if err != nil {
			return kernel.Refuse(err, "ask the kernel about map %s", name)
		}
		n, ok := info.Memlock()
		if !ok {
			return kernel.Refuse(unix.ENOTSUP, "ask the kernel for the memory of map %s", name)
		}
		b.Memory += n
	}
	return nil
}

func buildStatic(prefixes []netip.Prefix, width int) (*Built, error) {
	start := time.Now()
	make := prefix.NewStatic4
	if width == 128 {
		make = prefix.NewStatic6
	}
	s := make(prefixes)
	b := &Built{buildTime: time.Since(start), updateAll: true, maps: map[string]*ebpf.Map{}}
	b.Code = func(to *assembler.Builder) { s.Emit(to, setMap) }
	b.Depth = func(addrs []netip.Addr) (*Depth, string) {
		return DepthOf(addrs, "tables probed, of "+s.Why(), s.Probes), ""
	}
	if spec := s.MapSpec(setMap); spec != nil {
		start = time.Now()
		m, err := ebpf.NewMap(spec)
		if err != nil {
			return nil, kernel.LoadError("load a static set", err)
		}
		b.LoadTime = time.Since(start)
		b.maps[setMap] = m
	}
	return b, b.charge()
}

func buildDynamic(prefixes []netip.Prefix, width int) (*Built, error) {
	start := time.Now()
	spec, err := prefix.DynamicSpec(setMap, len(prefixes)+1)
	if err != nil {
		return nil, err
	}
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, kernel.LoadError("make a dynamic set", err)
	}
	b := &Built{maps: map[string]*ebpf.Map{setMap: m}}
	if spec.InnerMap != nil {
		if b.inner, err = ebpf.NewMap(spec.InnerMap); err != nil {
			return b, kernel.LoadError("make a dynamic set", err)
		}
		if err := m.Put(uint32(0), b.inner); err != nil {
			return b, kernel.LoadError("make a dynamic set", err)
		}
		m = b.inner
	}
	mem, err := unix.Mmap(m.FD(), 0, int(m.ValueSize()), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		return b, kernel.Refuse(err, "map the memory of a dynamic set")
	}
	b.Closers = append(b.Closers, func() error { return unix.Munmap(mem) })
	clock, err := kernel.JiffiesClock()
	if err != nil {
		return b, err
	}
	if err := prefix.Format(mem, len(prefixes)+1); err != nil {
		return b, err
	}
	d, err := prefix.Open(mem, clock.Now)
	if err != nil {
		return b, err
	}
	lease := clock.Expiry(24 * time.Hour)
	for _, p := range prefixes {
		if err := d.Add(p, lease); err != nil {
			return b, err
		}
	}
	if d.Due() {
		d.Merge()
	}
	b.LoadTime = time.Since(start)
	b.Update = func(p netip.Prefix) error { return d.Add(p, lease) }
	const symbol = "dynamic"
	function := prefix.DynamicFunction4
	if width == 128 {
		function = prefix.DynamicFunction6
	}
	b.functions = func(to *assembler.Builder) { function(to, setMap, symbol, len(prefixes)+1) }
	b.Depth = func(addrs []netip.Addr) (*Depth, string) {
		return DepthOf(addrs, "levels of the bulk, or prefix lengths tried", d.Probes), ""
	}
	b.Code = func(to *assembler.Builder) { to.Emit(asm.Call.Label(symbol)) }
	return b, b.charge()
}

func buildLPM(prefixes []netip.Prefix, width int) (*Built, error) {
	key := func(p netip.Prefix) []byte {
		return append([]byte{byte(p.Bits()), 0, 0, 0}, p.Masked().Addr().AsSlice()...)
	}
	spec := &ebpf.MapSpec{
		Name: setMap, Type: ebpf.LPMTrie, KeySize: uint32(4 + width/8), ValueSize: 1,
		MaxEntries: uint32(len(prefixes) + 1), Flags: unix.BPF_F_NO_PREALLOC,
	}
	ask := func(b *assembler.Builder) {
		b.Emit(asm.StoreImm(asm.R10, -24, int64(width), asm.Word))
		StoreAddress(b, width, -20)
	}
	b, err := buildMap(spec, prefixes, key, ask)
	if b != nil {
		b.Depth = func(addrs []netip.Addr) (*Depth, string) {
			t := NewRadix(prefixes)
			return DepthOf(addrs, fmt.Sprintf("nodes visited, of %d in a copy of the trie's shape",
				t.Count()), t.lpmDepth), ""
		}
	}
	return b, err
}

func buildHash(prefixes []netip.Prefix, width int) (*Built, error) {
	key := func(p netip.Prefix) []byte { return p.Addr().AsSlice() }
	spec := &ebpf.MapSpec{Name: setMap, Type: ebpf.Hash, KeySize: uint32(width / 8), ValueSize: 1,
		MaxEntries: uint32(len(prefixes) + 1)}
	return buildMap(spec, prefixes, key, func(b *assembler.Builder) { StoreAddress(b, width, -24) })
}

// StoreAddress writes the address as a key's bytes; -20 is not a multiple of 8, so halves are
// written.
func StoreAddress(b *assembler.Builder, width int, at int16) {
	if width == 32 {
		b.Emit(asm.HostTo(asm.BE, asm.R1, asm.Word), asm.StoreMem(asm.R10, at, asm.R1, asm.Word))
		return
	}
	for i, r := range []asm.Register{asm.R1, asm.R2} {
		b.Emit(asm.HostTo(asm.BE, r, asm.DWord), asm.StoreMem(asm.R10, at+int16(8*i), r, asm.Word),
			asm.RSh.Imm(r, 32), asm.StoreMem(asm.R10, at+int16(8*i)+4, r, asm.Word))
	}
}

// buildMap fills a map of the kernel's, many entries a system call. The key lies at R10-24.
func buildMap(spec *ebpf.MapSpec, prefixes []netip.Prefix, key func(netip.Prefix) []byte,
	store func(*assembler.Builder)) (*Built, error) {
	const batch = 4096
	// made before the clock starts: the library wants keys of a fixed size, arrays
	var batches []any
	for i := 0; i < len(prefixes); i += batch {
		n := min(batch, len(prefixes)-i)
		keys := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(int(spec.KeySize),
			reflect.TypeFor[byte]())), n, n)
		for j := range n {
			reflect.Copy(keys.Index(j), reflect.ValueOf(key(prefixes[i+j])))
		}
		batches = append(batches, keys.Interface())
	}
	start := time.Now()
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, kernel.LoadError("make a map", err)
	}
	b := &Built{maps: map[string]*ebpf.Map{setMap: m}}
	for i, keys := range batches {
		if _, err := m.BatchUpdate(keys, make([]byte, min(batch, len(prefixes)-i*batch)),
			nil); err != nil {
			return b, kernel.Refuse(err, "fill a %s", spec.Type)
		}
	}
	b.LoadTime = time.Since(start)
	b.Update = func(p netip.Prefix) error { return m.Put(key(p), byte(1)) }
	b.Code = func(to *assembler.Builder) {
		store(to)
		miss := to.Fresh("miss")
		to.Emit(
			asm.LoadMapPtr(asm.R1, 0).WithReference(setMap),
			asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, -24),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, miss),
			asm.Mov.Imm(asm.R0, 1),
		)
		to.Label(miss)
	}
	return b, b.charge()
}

// updates is the number of single changes that are timed.
const updates = 1000

// timeUpdate returns the mean time of a single change, in ns: of entries that are there, given
// again.
func (b *Built) timeUpdate(prefixes []netip.Prefix) (float64, error) {
	if b.updateAll {
		return float64(b.buildTime + b.LoadTime), nil
	}
	start := time.Now()
	for i := range updates {
		if err := b.Update(prefixes[i%len(prefixes)]); err != nil {
			return 0, fmt.Errorf("changing a single entry: %w", err)
		}
	}
	return float64(time.Since(start)) / updates, nil
}
