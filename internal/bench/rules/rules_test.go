package rules

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"levee/internal/await"
	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/bench/load"
	"levee/internal/bench/load/loadtest"
	"levee/internal/bench/workload"
	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/labtest"
	"levee/internal/lang/policy"
)

// onTraces are options without a lab.
func onTraces(sizes ...int) load.Options {
	return load.Options{Options: bench.Options{Seed: 3, Rounds: bench.MinRounds, Quick: true},
		Sizes: sizes, SkipLab: true}
}

func TestPoliciesAreTimedOnTraces(t *testing.T) {
	labtest.NeedRoot(t)
	r, err := Run(t.Context(), Options{Options: onTraces(20), Shapes: []string{"fw"}})
	if err != nil {
		t.Fatal(err)
	}
	p := r.Cases[0].Levee
	if p.Missing != "" || p.Uniform == nil || p.Zipf == nil || p.NsEmpty <= 0 || p.Bytes == 0 ||
		p.CompileNs <= 0 || p.LoadNs <= 0 {
		t.Errorf("%+v", p)
	}
	for _, skew := range []workload.Skew{workload.Uniform, workload.Zipf} {
		if n := len(p.Phases[string(skew)]); n != bench.MinRounds {
			t.Errorf("%s: %d rounds with what the machine gave, want %d", skew, n, bench.MinRounds)
		}
	}
	if p.Conditions == nil || p.ZipfConditions == nil || p.Conditions.Load <= 0 ||
		r.Conditions == nil || r.Conditions.Step <= 0 {
		t.Errorf("%+v, %+v, %+v: want what the machine gave", p.Conditions, p.ZipfConditions,
			r.Conditions)
	}
	benchtest.Output(t, r)
}

// oneByOne adds the program of the rules one by one, with the JIT.
func oneByOne(list []*load.Contender, rules []workload.Rule) []*load.Contender {
	return append(list, load.New(plain(rules)[0]))
}

// TestRulesOneByOneRunWithAndWithoutTheJIT, the second where the kernel has an interpreter: a
// packet takes several times as long there.
func TestRulesOneByOneRunWithAndWithoutTheJIT(t *testing.T) {
	labtest.NeedRoot(t)
	rules, err := workload.Rules("fw", 200, 5)
	if err != nil {
		t.Fatal(err)
	}
	list, err := packets(rules, 1, workload.Uniform, 3)
	if err != nil {
		t.Fatal(err)
	}
	ns := func(loading func(func() error) error) (took time.Duration, err error) {
		var p *ebpf.Program
		err = loading(func() (err error) {
			p, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
				Instructions: plainBody(rules)})
			return err
		})
		if err != nil {
			return 0, err
		}
		defer p.Close()
		verdict, took, err := p.Benchmark(list[0], 20_000, nil)
		if verdict != 1 {
			t.Errorf("the verdict is %d", verdict)
		}
		return took, err
	}
	with, err := ns(compiled)
	if err != nil {
		t.Fatal(err)
	}
	without, err := ns(lab.Interpreted)
	if errors.Is(err, kernel.ErrRefused) {
		r, err := Run(t.Context(), Options{Options: onTraces(20), Interpreted: true})
		if !errors.Is(err, kernel.ErrRefused) || r != nil {
			t.Errorf("this kernel has no interpreter, and there is %+v, %v", r, err)
		}
		t.Log("this kernel has no interpreter")
		return
	}
	if err != nil || without < 2*with {
		t.Errorf("with the JIT %v, without %v, %v", with, without, err)
	}
	t.Logf("with the JIT %v, without %v", with, without)
}

// TestEveryContenderDropsTheTrace sends a trace at each contender with its rules: all must load,
// drop every packet and say so, change, and leave nothing in force; and again, switched off and on,
// what can be.
func TestEveryContenderDropsTheTrace(t *testing.T) {
	l := labtest.New(t)
	for _, shape := range workload.Shapes {
		rules, err := workload.Rules(shape, 60, 5)
		if err != nil {
			t.Fatal(err)
		}
		frames, err := packets(rules, 1000, workload.Uniform, 5)
		if err != nil {
			t.Fatal(err)
		}
		loadtest.Contenders(t, l, shape, oneByOne(contenders(rules, false), rules), frames)
	}
}

// TestOfManyRulesOnlyTheLastDrops: datagrams to the port of the last rule are dropped and counted,
// others pass.
func TestOfManyRulesOnlyTheLastDrops(t *testing.T) {
	l := labtest.New(t)
	in := l.Host(lab.Server).Devices[0]
	others := []workload.Rule{
		{Src: netip.MustParsePrefix("203.0.113.0/24"), Dst: netip.MustParsePrefix("0.0.0.0/0"),
			SrcPort: workload.AllPorts, DstPort: workload.AllPorts},
		{Src: netip.MustParsePrefix("198.18.0.0/15"), Dst: netip.MustParsePrefix("198.18.0.1/32"),
			Proto: 17, SrcPort: workload.AllPorts, DstPort: workload.Ports{Lo: 6000, Hi: 6100}},
	}
	for _, c := range Behind(others, 4000) {
		t.Run(c.Name(), func(t *testing.T) {
			site := contender.Site{Host: l.Host(lab.Server), Device: in.Name}
			if err := c.Install(t.Context(), site); errors.Is(err, contender.ErrMissing) {
				t.Skipf("%v: it is not at hand", err)
			} else if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := c.Remove(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			const n = 50 // of each family; IPv6 meets not every place
			labtest.Send(t, l, 4001, n)
			labtest.Send(t, l, 4000, n)
			await.True(t, "the datagrams are dropped", func() bool {
				dropped, err := c.Dropped(t.Context())
				return err == nil && dropped >= n
			})
			if dropped, err := c.Dropped(t.Context()); err != nil || dropped > 2*n {
				t.Errorf("%d dropped of %d to the port: %v", dropped, 2*n, err)
			}
		})
	}
}

// TestRulesAsAPolicyMeanTheSame compares the text for levee with the rules themselves, rule by
// rule.
func TestRulesAsAPolicyMeanTheSame(t *testing.T) {
	for _, shape := range workload.Shapes {
		rules, err := workload.Rules(shape, 200, 9)
		if err != nil {
			t.Fatal(err)
		}
		p, err := load.Parse(Text(rules, dropAll), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := codegen.Compile(p, codegen.Target{}); err != nil {
			t.Fatal(err)
		}
		headers, err := workload.Headers(rules, 1000, workload.Uniform, 9)
		if err != nil {
			t.Fatal(err)
		}
		list, err := packets(rules, 1000, workload.Uniform, 9)
		if err != nil {
			t.Fatal(err)
		}
		ev := oracle.New(p)
		slots := p.Slots()
		for i := range headers {
			want := slices.IndexFunc(rules,
				func(r workload.Rule) bool { return r.Matches(&headers[i]) })
			got := slots[ev.Eval(list[i]).Slot]
			if want < 0 && got.Reason == policy.ByRule || want >= 0 && got.Line != want+1 {
				t.Errorf("%s: %+v is decided by %s, want rule %d", shape, headers[i], p.Where(got),
					want)
			}
		}
	}
}

func TestTheOthersRulesAsText(t *testing.T) {
	p := netip.MustParsePrefix
	for _, c := range []struct {
		rule          workload.Rule
		nft, iptables string
	}{
		{workload.Rule{Src: p("192.0.2.0/24"), Dst: p("0.0.0.0/0"), SrcPort: workload.AllPorts,
			DstPort: workload.Ports{Lo: 80, Hi: 80}, Proto: 6},
			" ip saddr 192.0.2.0/24 tcp dport 80 counter name c drop\n",
			"-A RULES -s 192.0.2.0/24 -p tcp --dport 80:80 -j DROP\n"},
		{workload.Rule{Src: p("0.0.0.0/0"), Dst: p("192.0.2.1/32"), SrcPort: workload.AllPorts,
			DstPort: workload.AllPorts, Proto: 47},
			" ip daddr 192.0.2.1/32 meta l4proto 47 counter name c drop\n",
			"-A RULES -d 192.0.2.1/32 -p 47 -j DROP\n"},
		{workload.Rule{Src: p("0.0.0.0/0"), Dst: p("0.0.0.0/0"), SrcPort: workload.AllPorts,
			DstPort: workload.AllPorts},
			" meta protocol ip counter name c drop\n", "-A RULES -j DROP\n"},
		{workload.Rule{Src: p("0.0.0.0/0"), Dst: p("0.0.0.0/0"),
			SrcPort: workload.Ports{Lo: 1, Hi: 9}, DstPort: workload.AllPorts},
			" meta l4proto { 6, 17, 33, 132, 136 } th sport 1-9 counter name c drop\n", ""},
	} {
		var nft, ipt bytes.Buffer
		writeNFT(&nft, &c.rule)
		writeIPTables(&ipt, &c.rule)
		if nft.String() != c.nft || c.iptables != "" && ipt.String() != c.iptables {
			t.Errorf("%+v: %q, %q", c.rule, &nft, &ipt)
		}
	}
}

// An interrupted measurement gives what it has, says so, and by its error.
func TestAnInterruptedMeasurementIsReported(t *testing.T) {
	labtest.NeedRoot(t)
	ctx, o := loadtest.Interrupt(t, onTraces(10, 20))
	r, err := Run(ctx, Options{Options: o, Shapes: []string{"acl"}})
	if !errors.Is(err, context.Canceled) || r == nil || len(r.Cases) != 2 ||
		r.Cases[0].Levee == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	loadtest.Incomplete(t, r)
}

// An interrupted run has contenders with a median and too few rounds for its interval.
func TestAMedianWithoutAnIntervalIsReported(t *testing.T) {
	benchtest.Output(t, &Report{Head: bench.Head{Incomplete: "interrupted"},
		Cases: []*Case{{Shape: "acl", Size: 10, Lab: loadtest.NoInterval()}}})
}
