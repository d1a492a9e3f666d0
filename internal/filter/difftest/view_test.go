package difftest

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/gaissmai/bart"

	"levee/internal/bench/workload"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/codegen"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

var (
	viewFile = flag.String("view", "",
		"TestView: a table of prefixes, one a line, .gz or not, instead of a generated one")
	viewStep   = flag.Int("view-step", 1, "TestView: of how many prefixes one is compared")
	viewRandom = flag.Int("view-random", 10_000,
		"TestView: addresses drawn anywhere, of each family, besides those at boundaries")
)

// TestView compares whole policies of one set, read from a file or dynamic, on every boundary of a
// table as in Internet routing: of each prefix the first and the last address, those beside them
// and one inside, and addresses from anywhere. The reference is gaissmai/bart, which shares nothing
// with the program. Each address is the source of a packet that the program in the kernel judges.
func TestView(t *testing.T) {
	needRoot(t)
	name, table := "generated", append(workload.Internet4(8000, 3), workload.Internet6(2000, 3)...)
	if *viewFile != "" {
		in, err := os.Open(*viewFile)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		name = filepath.Base(*viewFile)
		if table, err = workload.ReadPrefixes(in, name); err != nil {
			t.Fatal(err)
		}
	}
	var reference bart.Lite
	for _, p := range table {
		reference.Insert(p)
	}
	for _, kind := range []struct{ name, set string }{
		{"read from a file", `file("view")`},
		{"dynamic", fmt.Sprintf("dynamic(max %d)", len(table))},
	} {
		text := fmt.Appendf(nil, "set view = %s\ndrop from view as \"view\"\ndefault pass\n",
			kind.set)
		t.Run(kind.name, func(t *testing.T) {
			r := viewProgram(t, text, table)
			for _, width := range []int{32, 128} {
				own := workload.Family(table, width)
				n := compareView(t, r, &reference, own, width)
				// a row of docs/explanation/soak.md
				t.Logf("| %s, %d bits, set %s | %d | %d | 0 | %d |", name, width, kind.name,
					len(own), n[0], n[1])
			}
		})
	}
}

func viewProgram(t *testing.T, text []byte, table []netip.Prefix) *loader.Runner {
	t.Helper()
	var list bytes.Buffer
	for _, p := range table {
		fmt.Fprintln(&list, p)
	}
	p, diags := resolve.Parse("view.levee", text,
		func(string) (io.ReadCloser, error) { return io.NopCloser(&list), nil })
	if p == nil {
		t.Fatal(diags.Err())
	}
	r := load(t, p, codegen.Target{CPUs: 1})
	if p.Sets[0].Kind == policy.Dynamic {
		for _, prefix := range table {
			if err := r.SetAdd("view", sets.Entry{Prefix: prefix}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return r
}

// compareView returns how many addresses were compared, and how many of them lie in the table.
func compareView(t *testing.T, r *loader.Runner, reference *bart.Lite, table []netip.Prefix,
	width int) (n [2]int) {
	t.Helper()
	f, src := viewFrame(t, width)
	rng := rand.New(rand.NewPCG(uint64(width), 7))
	try := func(a netip.Addr) {
		if !a.IsValid() { // beside the first or last address there is
			return
		}
		copy(src, a.AsSlice())
		_, verdict, err := r.Eval(f)
		if err != nil {
			t.Fatal(err)
		}
		want := reference.Contains(a)
		if got := verdict == action.Drop; got != want {
			t.Fatalf("the program says %v for %v, want %v", got, a, want)
		}
		n[0]++
		n[1] += btoi(want)
	}
	for i := 0; i < len(table); i += *viewStep {
		p := table[i]
		first, last := ends(p)
		try(first.Prev())
		try(first)
		try(last)
		try(last.Next())
		try(inside(rng, p))
	}
	zero := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if width == 128 {
		zero = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	for range *viewRandom {
		try(inside(rng, zero))
	}
	return n
}

// viewFrame is a packet, and where its source address lies in it.
func viewFrame(t *testing.T, width int) (f, src []byte) {
	t.Helper()
	from, to, at := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1"), 14+12
	if width == 128 {
		from, to, at = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), 14+8
	}
	port := uint16(9)
	f, err := packet.Build(packet.Spec{From: from, To: to, FromPort: &port, ToPort: &port})
	if err != nil {
		t.Fatal(err)
	}
	return f, f[at : at+width/8]
}

// inside is any address of a prefix.
func inside(r *rand.Rand, p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	var noise [16]byte
	binary.LittleEndian.PutUint64(noise[:], r.Uint64())
	binary.LittleEndian.PutUint64(noise[8:], r.Uint64())
	for i := range b {
		own := max(0, min(8, p.Bits()-8*i)) // bits of this byte that are the prefix's
		b[i] |= noise[i] & (0xff >> own)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
