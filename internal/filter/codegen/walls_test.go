package codegen_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/await"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/codegen"
	"levee/internal/filter/difftest"
	"levee/internal/filter/ir"
	"levee/internal/kernel"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
)

var (
	wallRules = flag.Int("wall-rules", 800, "TestEveryKindOfRuleLoads: rules of each policy")
	wallKinds = flag.String("wall-kinds", "",
		"TestEveryKindOfRuleLoads: only the kinds that contain this")
	wallQuick = flag.Bool("wall-quick", false,
		"TestEveryKindOfRuleLoads: judge no packets, say what it took")
)

// wall is a kind of policy that has a bound of the kernel's in its way.
type wall struct {
	name string
	rule func(g *wallGenerator, i int) string
}

// wallGenerator draws the parts of rules.
type wallGenerator struct {
	*rand.Rand
	n    int // rules
	sets strings.Builder
}

func (g *wallGenerator) action() string { return []string{"drop", "pass", "count"}[g.IntN(3)] }
func (g *wallGenerator) four() string {
	return fmt.Sprintf("%d.%d.%d.0/24", 1+g.IntN(200), g.IntN(256), g.IntN(256))
}
func (g *wallGenerator) addr6() string {
	return fmt.Sprintf("2001:%x:%x::/48", g.IntN(0x10000), g.IntN(0x10000))
}
func (g *wallGenerator) endpoint(int) string {
	a := g.four()
	if g.IntN(3) == 0 {
		a = g.addr6()
	}
	return a + " " + []string{"tcp/443", "udp/4000-5000", "tcp", "gre", "icmp"}[g.IntN(5)]
}
func (g *wallGenerator) span(top, width int) string {
	lo := g.IntN(top - width)
	return fmt.Sprintf("%d-%d", lo, lo+1+g.IntN(width-1))
}

var walls = []wall{
	{"count", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("count tcp from %s port %d", g.four(), 1+i%60000)
	}},
	{"three questions", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("drop tcp port %d len %s ttl %d", 1+i%60000, g.span(1500, 40),
			g.IntN(256))
	}},
	{"nothing to tell them apart", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("count len > %d ttl < %d", 100+i%1000, 3+i/1000%200)
	}},
	{"not", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s udp not from %s port %d", g.action(), g.four(), 1+i%60000)
	}},
	{"a static set each", func(g *wallGenerator, i int) string {
		fmt.Fprintf(&g.sets, "set s%d = %s\n", i, list(5+g.IntN(46), func(int) string {
			if g.IntN(3) == 0 {
				return g.addr6()
			}
			return g.four()
		}))
		return fmt.Sprintf("drop from s%d", i)
	}},
	{"thirty port ranges each", func(g *wallGenerator, i int) string {
		at := 0
		return fmt.Sprintf("drop tcp from %s port %s", g.four(), list(30, func(int) string {
			at += 2 + g.IntN(2000)
			return fmt.Sprintf("%d-%d", at, at+g.IntN(2))
		}))
	}},
	{"flags", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s tcp from %s flags syn,ack/syn,ack,rst", g.action(), g.four())
	}},
	{"vlan and ether", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s vlan %d ether from 02:00:%02x:%02x:%02x:00", g.action(), 1+i%4000,
			i>>16, i>>8&255, i&255)
	}},
	{"icmp types and ttl", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s icmp type %d/%d ttl %s", g.action(), i%256, i/256%256,
			g.span(256, 20))
	}},
	{"protect", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("protect from %s tcp port %d", g.four(), 1+i%60000)
	}},
	{"every other one fits a table", func(g *wallGenerator, i int) string {
		if i%2 == 0 {
			return fmt.Sprintf("drop from %s to %s", g.four(), g.four())
		}
		return fmt.Sprintf("pass from %s len > %d", g.four(), 1+g.IntN(1400))
	}},
	{"runs of sixty fit tables", func(g *wallGenerator, i int) string {
		if i%120 < 60 {
			return fmt.Sprintf("drop from %s to %s", g.four(), g.four())
		}
		return fmt.Sprintf("pass from %s len > %d", g.four(), 1+g.IntN(1400))
	}},
	{"a static set of endpoints each", func(g *wallGenerator, i int) string {
		fmt.Fprintf(&g.sets, "set s%d = %s\n", i, list(7+g.IntN(26), g.endpoint))
		return fmt.Sprintf("%s %s s%d ttl %s", g.action(), []string{"from", "not to"}[g.IntN(2)], i,
			g.span(256, 40))
	}},
	{"a dynamic set each, up to 40",
		func(g *wallGenerator, i int) string { return g.dynamic(i, 40) }},
	{"a dynamic set of endpoints or services each, up to 40", func(g *wallGenerator, i int) string {
		if i < 40 {
			fmt.Fprintf(&g.sets, "set e%d = dynamic(of %s, max %d)\n", i,
				[]string{"endpoints", "services"}[i%2], 100+i%5)
		}
		return fmt.Sprintf("%s %s%s e%d ttl %s", g.action(), []string{"", "not "}[g.IntN(2)],
			[]string{"from", "to"}[g.IntN(2)], i%40, g.span(256, 40))
	}},
	{"a dynamic set of any type each, up to 1,000",
		func(g *wallGenerator, i int) string { return g.anyType(i, 1000) }},
}

func init() {
	kinds := slices.Clone(walls)
	walls = append(walls, moreWalls...)
	walls = append(walls, wall{"everything", func(g *wallGenerator, i int) string {
		return kinds[[]int{0, 1, 3, 4, 5, 6, 7, 8, 10, 13}[g.IntN(10)]].rule(g, i)
	}})
}

func (g *wallGenerator) dynamic(i, sets int) string {
	if i < sets {
		fmt.Fprintf(&g.sets, "set dyn%d = dynamic(max %d)\n", i, 100+i%5)
	}
	return fmt.Sprintf("%s from dyn%d port %d", g.action(), i%sets, 1+g.IntN(60000))
}

// anyType asks one of many sets of addresses, services and endpoints.
func (g *wallGenerator) anyType(i, sets int) string {
	of := [...]string{"addresses", "endpoints", "services"}[i%sets%3]
	if i < sets {
		fmt.Fprintf(&g.sets, "set any%d = dynamic(of %s, max %d)\n", i, of, 20<<(i%4))
	}
	if i%5 == 0 {
		return fmt.Sprintf("%s tcp from %s to any%d len %s", g.action(), g.four(), i%sets,
			g.span(1500, 400))
	}
	return fmt.Sprintf("%s to any%d", g.action(), i%sets)
}

func (w wall) policy(n int) string {
	g := &wallGenerator{Rand: rand.New(rand.NewPCG(uint64(len(w.name)), 1)), n: n}
	rules := lines(n, func(i int) string { return w.rule(g, i) })
	if strings.Contains(rules, "dyn") && !strings.Contains(g.sets.String(), "set dyn39") {
		kept := []string{}
		for line := range strings.Lines(g.sets.String()) {
			if !strings.HasPrefix(line, "set dyn") {
				kept = append(kept, line)
			}
		}
		g.sets.Reset()
		g.sets.WriteString(strings.Join(kept, ""))
		for i := range 40 {
			fmt.Fprintf(&g.sets, "set dyn%d = dynamic(max %d)\n", i, 100+i%5)
		}
	}
	return g.sets.String() + rules + "default pass\n"
}

// stopwatch tells the processor time of steps, on all cores, and the largest resident memory since
// it began.
type stopwatch struct {
	begin, last time.Duration
	said        []string
}

func newStopwatch(t *testing.T) *stopwatch {
	t.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	// proc_pid_clear_refs(5): resets VmHWM
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Logf("the peak of memory is that of the whole process: %v", err)
	}
	now := kernel.ProcessorTime()
	return &stopwatch{begin: now, last: now}
}

func (s *stopwatch) lap(name string) {
	now := kernel.ProcessorTime()
	s.said = append(s.said, fmt.Sprintf("%s %.2f", name, (now-s.last).Seconds()))
	s.last = now
}

func (s *stopwatch) String() string {
	status, _ := os.ReadFile("/proc/self/status")
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	peak, _, _ = strings.Cut(strings.TrimSpace(peak), "\n")
	return fmt.Sprintf("%.2f s of processor (%s), peak %s", (s.last - s.begin).Seconds(),
		strings.Join(s.said, ", "), peak)
}

// A policy that parses loads, whatever its rules ask, and decides and counts as the oracle does.
func TestEveryKindOfRuleLoads(t *testing.T) {
	needRoot(t)
	for _, w := range walls {
		if !strings.Contains(w.name, *wallKinds) {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			text := w.policy(*wallRules)
			took := newStopwatch(t)
			tree, diags := syntax.Parse("test.levee", []byte(text))
			took.lap("parse")
			p, more := resolve.Consume(tree, nil)
			if err := diag.Merge(diags, more).Err(); err != nil {
				t.Fatal(err)
			}
			took.lap("resolve")
			prog := ir.Build(p)
			took.lap("lower")
			compiled, err := codegen.CompileIR(prog, codegen.Target{CPUs: 2, Trace: true})
			if err != nil {
				t.Fatal(err)
			}
			took.lap("compile")
			run, err := loader.NewRunner(compiled)
			if err != nil {
				t.Fatal(err)
			}
			defer run.Close()
			took.lap("load")
			t.Logf("%d rules, %.1f MB: %s", *wallRules, float64(len(text))/1e6, took)
			if *wallQuick {
				return
			}
			compare(t, p, run, 5, 600)
		})
	}
}

// mixed are kinds whose sets have different names, so that one policy can be of several: those that
// cost the verifier most, and some that do not.
var mixed = []string{
	"runs of hosts and networks that differ by protocol",
	"sets of endpoints, hosts and networks, up to 240",
	"a dynamic set of endpoints or services each, up to 40",
	"a dynamic set of any type each, up to 1,000", "a static set each",
	"runs of sixty fit tables", "every other one fits a table", "records that differ by protocol",
	"three questions", "not", "protect",
	"thirty port ranges each", "no question", "lengths",
}

// What single kinds cost the verifier adds up in a policy of several.
func TestMixturesOfKindsLoad(t *testing.T) {
	needRoot(t)
	rng := rand.New(rand.NewPCG(77, 1))
	t.Log("seed 77")
	for range 16 {
		var sets, rules, names strings.Builder
		for _, k := range rng.Perm(len(mixed))[:2+rng.IntN(5)] {
			at := slices.IndexFunc(walls, func(w wall) bool { return w.name == mixed[k] })
			if at < 0 {
				t.Fatalf("no kind %q", mixed[k])
			}
			g := &wallGenerator{Rand: rng, n: []int{60, 200, 420, 840}[rng.IntN(4)]}
			rules.WriteString(lines(g.n, func(i int) string { return walls[at].rule(g, i) }))
			sets.WriteString(g.sets.String())
			fmt.Fprintf(&names, "%d of %q; ", g.n, walls[at].name)
		}
		compiled, err := codegen.Compile(resolved(t, sets.String()+rules.String()+"default pass\n"),
			codegen.Target{CPUs: 2, Trace: true})
		if err != nil {
			t.Fatalf("%s%v", &names, err)
		}
		run, err := loader.NewRunner(compiled)
		if err != nil {
			t.Fatalf("%s%v", &names, err)
		}
		run.Close()
	}
}

// The same policy gives the same instructions and tables, whatever seeds the hashes of a process
// have.
func TestEveryKindOfRuleCompilesToTheSame(t *testing.T) {
	for _, w := range walls {
		p := resolved(t, w.policy(200))
		var made [2]*codegen.Program
		for i := range made {
			var err error
			if made[i], err = codegen.Compile(p,
				codegen.Target{CPUs: 2, Bytecode: true}); err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
		}
		for name, m := range made[0].Spec.Maps {
			if !reflect.DeepEqual(m.Contents, made[1].Spec.Maps[name].Contents) {
				t.Errorf("%s: map %s differs", w.name, name)
			}
		}
		one, two := made[0].Spec.Programs[codegen.ProgramName].Instructions,
			made[1].Spec.Programs[codegen.ProgramName].Instructions
		if fmt.Sprint(one) != fmt.Sprint(two) {
			t.Errorf("%s: instructions differ", w.name)
		}
	}
}

// However many sets of endpoints there are, a long one is looked up: it never becomes a record an
// endpoint, which a packet would meet one after the other.
func TestLongListsOfEndpointsAreLookedUp(t *testing.T) {
	g := &wallGenerator{Rand: rand.New(rand.NewPCG(1, 1))}
	const sets, size = 60, 400
	rules := lines(sets, func(i int) string {
		fmt.Fprintf(&g.sets, "set s%d = %s\n", i, list(size, g.endpoint))
		return fmt.Sprintf("drop from s%d ttl %d", i, i+1)
	})
	compiled, err := codegen.Compile(resolved(t, g.sets.String()+rules+"default pass\n"),
		codegen.Target{CPUs: 1, Bytecode: true})
	if err != nil {
		t.Fatal(err)
	}
	records := 0
	for _, table := range compiled.Tables {
		if table.Kind == "records in trees" {
			records += table.Bytes
		}
	}
	if records == 0 || records > 29*sets*500 {
		t.Errorf("%d bytes of records for %d rules", records, sets)
	}
}

// counted adapts a Runner to package difftest.
type counted struct{ *loader.Runner }

func (c counted) Packets() (sums []uint64) {
	for _, n := range c.Counters() {
		sums = append(sums, n.Packets)
	}
	return sums
}

// compare holds verdicts and counters against the oracle's. Dynamic sets have some entries.
func compare(t *testing.T, p *policy.Policy, run *loader.Runner, seed uint64, packets int) {
	t.Helper()
	c := difftest.Case{Policy: p, Seed: seed, Frames: packets}
	for _, set := range p.Sets {
		for _, e := range c.Entries(set) {
			lease := [...]time.Duration{difftest.Forever: sets.Forever,
				difftest.Running: time.Hour, difftest.Ended: time.Nanosecond}[e.Lease]
			if err := run.SetAdd(set.Name,
				sets.Entry{Prefix: e.Prefix, Service: e.Service,
					Lease: lease}); err != nil {
				t.Fatal(err)
			}
		}
	}
	await.Pass(30*time.Millisecond, "some ticks of the slowest kernel's clock, to end leases")
	if _, err := difftest.Compare(t.Context(), c, counted{run}); err != nil {
		t.Fatal(err)
	}
}
