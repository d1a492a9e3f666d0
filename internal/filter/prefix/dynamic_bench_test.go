package prefix

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// BenchmarkDynamic measures look-ups of a dynamic set with entries of a few lengths, and of those
// of a routing table.
func BenchmarkDynamic(b *testing.B) {
	needRoot(b)
	r := newRand(b)
	for _, width := range []int{32, 128} {
		for _, lengths := range [][]int{{width}, {width / 4 * 3, width / 2, width},
			span(1, width)} {
			for _, n := range []int{10, 1000, 100_000, 1_000_000} {
				if n < 1000 && len(lengths) > 1 || n > 100_000 && len(lengths) > 3 {
					continue
				}
				var prefixes []netip.Prefix
				for len(prefixes) < n {
					hi := r.Uint64()
					if width == 128 {
						hi = hi>>3 | 1<<61
					}
					p := netip.PrefixFrom(join(hi, r.Uint64(), width),
						lengths[len(prefixes)%len(lengths)]).Masked()
					if p.Bits() < 16 {
						p = netip.PrefixFrom(p.Addr(), 16)
					}
					prefixes = append(prefixes, p)
				}
				benchDynamic(b, fmt.Sprintf("%d-lengths", len(lengths)), prefixes)
			}
		}
		routes := ofWidth(table(b), width)
		for _, n := range []int{10_000, len(routes)} {
			benchDynamic(b, "routes", sample(r, routes, n))
		}
	}
}

func benchDynamic(b *testing.B, what string, prefixes []netip.Prefix) {
	n, width := len(prefixes), prefixes[0].Addr().BitLen()
	d, _ := inKernel(b, n, &clock{now: 1})
	for _, p := range prefixes {
		if err := d.Add(p, 1<<39); err != nil {
			b.Fatal(err)
		}
	}
	function := DynamicFunction6
	if width == 32 {
		function = DynamicFunction4
	}
	for _, kind := range kinds {
		b.Run(fmt.Sprintf("v%d/%s/%07d/%s", 4+width/64, what, n, kind), func(b *testing.B) {
			addrs := traffic(rand.New(rand.NewPCG(5, 5)), prefixes, width, benchAddrs, kind)
			lookup := func(to *assembler.Builder) { function(to, "set_x", "lookup", n) }
			measure(b, callLookup, map[string]any{"set_x": d.m}, addrs, lookup)
			b.ReportMetric(float64(len(d.mem))/float64(n), "B/entry")
		})
	}
}

// BenchmarkChange measures single changes from Go, in a set of 200,000 entries.
func BenchmarkChange(b *testing.B) {
	r := newRand(b)
	c := &clock{now: 1}
	d := newDynamic(b, 200_000, c)
	prefixes := append(hosts(r, 100_000, 32), hosts(r, 100_000, 128)...)
	for i := 0; b.Loop(); i++ {
		if p := prefixes[i%len(prefixes)]; i/len(prefixes)%2 == 0 {
			if err := d.Add(p, 5); err != nil {
				b.Fatal(err)
			}
		} else {
			d.Delete(p)
		}
	}
}

// BenchmarkKernelLPM measures the kernel's own structure, BPF_MAP_TYPE_LPM_TRIE, beside ours.
func BenchmarkKernelLPM(b *testing.B) {
	needRoot(b)
	sets := benchSets(b)
	for name, prefixes := range sets {
		if len(prefixes) < 10_000 || name[3] == 'h' {
			continue
		}
		width := prefixes[0].Addr().BitLen()
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "lpm", Type: ebpf.LPMTrie,
			KeySize: uint32(4 + width/8), ValueSize: 1, MaxEntries: 1 << 20, Flags: 1})
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range prefixes {
			key := append([]byte{byte(p.Bits()), 0, 0, 0}, p.Addr().AsSlice()...)
			if err := m.Put(key, byte(1)); err != nil {
				b.Fatal(err)
			}
		}
		lookup := func(to *assembler.Builder) {
			to.Emit(asm.StoreImm(asm.R10, -24, int64(width), asm.Word))
			if width == 32 {
				to.Emit(asm.HostTo(asm.BE, asm.R1, asm.Word),
					asm.StoreMem(asm.R10, -20, asm.R1, asm.Word))
			} else {
				// the key is 4 bytes off a multiple of 8
				for i, r := range []asm.Register{asm.R1, asm.R2} {
					to.Emit(asm.HostTo(asm.BE, r, asm.DWord),
						asm.StoreMem(asm.R10, int16(-20+8*i), r, asm.Word),
						asm.RSh.Imm(r, 32), asm.StoreMem(asm.R10, int16(-16+8*i), r, asm.Word))
				}
			}
			miss := to.Fresh("miss")
			to.Emit(
				asm.LoadMapPtr(asm.R1, 0).WithReference("lpm"),
				asm.Mov.Reg(asm.R2, asm.R10),
				asm.Add.Imm(asm.R2, -24),
				asm.FnMapLookupElem.Call(),
				asm.JEq.Imm(asm.R0, 0, miss),
				asm.Mov.Imm(asm.R0, 1),
			)
			to.Label(miss)
		}
		for _, kind := range kinds {
			b.Run(name+"/"+kind, func(b *testing.B) {
				addrs := traffic(rand.New(rand.NewPCG(5, 5)), prefixes, width, benchAddrs, kind)
				measure(b, lookup, map[string]any{"lpm": m}, addrs)
			})
		}
		m.Close()
	}
}
