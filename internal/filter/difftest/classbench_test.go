package difftest

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"levee/internal/bench/workload"
	"levee/internal/filter/codegen"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/classbench"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

var (
	classBenchSets = flag.String("classbench", "",
		"TestClassBench: also the filter sets that match this pattern")
	classBenchPackets = flag.Int("classbench-packets", 2000, "TestClassBench: packets for each set")
	generatedRules    = flag.Int("generated", 1000, "TestGeneratedRules: rules of each shape")
	generatedPackets  = flag.Int("generated-packets", 2000,
		"TestGeneratedRules: packets for each shape")
)

// TestClassBench compares filter sets, imported, with packets made from their rules. The sets are
// made here; published ones are compared by
//
//	go test ./internal/filter/difftest -run ClassBench -timeout 0 \
//	    -classbench '../../../data/*_1k' -classbench-packets 1000000
func TestClassBench(t *testing.T) {
	needRoot(t)
	for i, n := range []int{400, 60} {
		name := fmt.Sprintf("%d filters", n)
		t.Run(name,
			func(t *testing.T) {
				compareSet(t, name, *classBenchPackets,
					func() ([]byte, error) { return filters(uint64(21+i), n), nil })
			})
	}
	files, err := filepath.Glob(*classBenchSets)
	if err != nil {
		t.Fatal(err)
	}
	if *classBenchSets != "" && len(files) == 0 {
		t.Fatalf("no file matches %s", *classBenchSets)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			compareSet(t, name, *classBenchPackets,
				func() ([]byte, error) { return os.ReadFile(file) })
		})
	}
}

// TestGeneratedRules compares rules drawn with ClassBench's distributions in each of its shapes.
func TestGeneratedRules(t *testing.T) {
	needRoot(t)
	for _, shape := range workload.Shapes {
		t.Run(shape, func(t *testing.T) {
			compareSet(t, shape+", generated", *generatedPackets, func() ([]byte, error) {
				rules, err := workload.Rules(shape, *generatedRules, 1)
				var set bytes.Buffer
				for i := range rules {
					writeFilter(&set, &rules[i])
				}
				return set.Bytes(), err
			})
		})
	}
}

// writeFilter writes a rule in ClassBench's format.
func writeFilter(b *bytes.Buffer, r *workload.Rule) {
	proto := "0x00/0x00"
	if r.Proto != 0 {
		proto = fmt.Sprintf("0x%02x/0xFF", r.Proto)
	}
	fmt.Fprintf(b, "@%s\t%s\t%d : %d\t%d : %d\t%s\t0x0000/0x0000\t\n", r.Src, r.Dst, r.SrcPort.Lo,
		r.SrcPort.Hi, r.DstPort.Lo, r.DstPort.Hi, proto)
}

// compareSet imports a set, compiles it and compares it.
func compareSet(t *testing.T, name string, packets int, read func() ([]byte, error)) {
	if *handedFrom != "" {
		compareHanded(t, name)
		return
	}
	set, err := read()
	if err != nil {
		t.Fatal(err)
	}
	text := imported(t, name, set)
	p := parsed(t, name, text)
	c := Case{Policy: p, Text: text, Seed: 1, Frames: packets}
	if *handTo != "" {
		if err := hand(*handTo, name, c); err != nil {
			t.Fatal(err)
		}
		return
	}
	stats, err := Compare(t.Context(), c,
		compiled{load(t, p, codegen.Target{CPUs: 1}), codegen.XDP, nil})
	if err != nil {
		t.Fatal(err)
	}
	tell(t, name, p, stats)
}

// tell logs a row of docs/explanation/soak.md.
func tell(t *testing.T, name string, p *policy.Policy, stats Stats) {
	t.Helper()
	decided := 0
	for i := range p.Rules {
		decided += btoi(stats.Decided[p.RuleSlot(i)] > 0)
	}
	t.Logf("| %s | %d | %d | 0 | %d |", name, len(p.Rules), stats.Frames, decided)
}

// imported is the policy of a set. Every other rule passes, so that a packet that the wrong rule
// takes has the wrong verdict too.
func imported(t *testing.T, name string, set []byte) []byte {
	t.Helper()
	var text bytes.Buffer
	if _, err := classbench.Import(bytes.NewReader(set), &text,
		importer.Options{Action: importer.Alternate, Name: name}); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

func parsed(t *testing.T, name string, text []byte) *policy.Policy {
	t.Helper()
	p, diags := resolve.Parse(name, text,
		func(string) (io.ReadCloser, error) { return nil, fs.ErrNotExist })
	if p == nil {
		t.Fatal(diags.Err())
	}
	return p
}

// filters makes a set in ClassBench's format: a few networks, nested prefixes, ports as they are
// in real sets, and several protocols.
func filters(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	nets := make([]uint32, 12)
	for i := range nets {
		nets[i] = rng.Uint32()
	}
	prefix := func() string {
		length := []int{0, 8, 16, 22, 24, 27, 31, 32, 32, 32}[rng.IntN(10)]
		v := (nets[rng.IntN(len(nets))] ^ rng.Uint32()&0x0fff) & uint32(0xffffffff<<(32-length))
		return fmt.Sprintf("%d.%d.%d.%d/%d", v>>24, v>>16&255, v>>8&255, v&255, length)
	}
	ports := func() string {
		switch rng.IntN(4) {
		case 0:
			v := []int{22, 53, 80, 443, 1521, rng.IntN(65536)}[rng.IntN(6)]
			return fmt.Sprintf("%d : %d", v, v)
		case 1:
			return "1024 : 65535"
		case 2:
			lo := rng.IntN(60000)
			return fmt.Sprintf("%d : %d", lo, lo+rng.IntN(5000))
		}
		return "0 : 65535"
	}
	var b bytes.Buffer
	for range n {
		from, to, proto := "0 : 65535", "0 : 65535", "0x00/0x00"
		switch rng.IntN(6) {
		case 0, 1, 2:
			from, to, proto = ports(), ports(), "0x06/0xFF"
		case 3:
			from, to, proto = ports(), ports(), "0x11/0xFF"
		case 4:
			proto = "0x01/0xFF"
		}
		fmt.Fprintf(&b, "@%s\t%s\t%s\t%s\t%s\t0x0000/0x0000\t\n", prefix(), prefix(), from, to,
			proto)
	}
	return b.Bytes()
}
