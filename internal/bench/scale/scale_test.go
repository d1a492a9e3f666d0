package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/option"
	"levee/internal/bench/workload"
	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/host"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
	"levee/internal/lang/policy"
	"levee/internal/report"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs programs in the kernel")
	}
}

func TestLookupsOfEveryStructureAreRightAndTimed(t *testing.T) {
	needRoot(t)
	all := traffics
	t.Cleanup(func() { traffics = all })
	traffics = all[:2] // hits and misses: the answers of a mix are not known
	r, err := Sets(t.Context(), SetOptions{
		Options: Options{Sizes: []int{50}, Seed: 3, Rounds: minRounds, SkipLab: true}, Entries: []string{"hosts"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 2 {
		t.Fatalf("%d cases, want one a family", len(r.Cases))
	}
	for _, c := range r.Cases {
		if len(c.Structures) != len(structures) {
			t.Errorf("%s: %d structures, want all %d", c.Family, len(c.Structures), len(structures))
		}
		for _, s := range c.Structures {
			if s.Missing != "" || len(s.Lookups) != len(traffics) || s.Bytes == 0 || s.UpdateNs <= 0 {
				t.Errorf("%s, %s: %+v", c.Family, s.Name, s)
			}
		}
	}
	output(t, r)
}

func TestAStructureThatAnswersWronglyHasNoFigure(t *testing.T) {
	needRoot(t)
	old := structures
	t.Cleanup(func() { structures = old })
	structures = []structure{{"forgetful", "a static set that lost an entry", false, func(p []netip.Prefix, width int) (*built, error) {
		return buildStatic(p[1:], width)
	}}, {"refused", "", false, func([]netip.Prefix, int) (*built, error) { return nil, errors.New("the kernel said no") }}}
	r, err := Sets(t.Context(), SetOptions{
		Options: Options{Sizes: []int{20}, Rounds: minRounds, SkipLab: true}, Families: []string{"4"}, Entries: []string{"hosts"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"wrong answers", "the kernel said no"} {
		if s := r.Cases[0].Structures[i]; !strings.Contains(s.Missing, want) || len(s.Lookups) > 0 {
			t.Errorf("%+v, want %q and no figure", s, want)
		}
	}
	output(t, r)
}

func TestPoliciesAreTimedOnTraces(t *testing.T) {
	needRoot(t)
	r, err := Rules(t.Context(), RuleOptions{Options: Options{Sizes: []int{20}, Seed: 3, Rounds: minRounds, SkipLab: true, Quick: true}, Shapes: []string{"fw"}})
	if err != nil {
		t.Fatal(err)
	}
	p := r.Cases[0].Levee
	if p.Missing != "" || p.Uniform == nil || p.Zipf == nil || p.NsEmpty <= 0 || p.Bytes == 0 || p.CompileNs <= 0 || p.LoadNs <= 0 {
		t.Errorf("%+v", p)
	}
	for _, skew := range []workload.Skew{workload.Uniform, workload.Zipf} {
		if n := len(p.Phases[string(skew)]); n != minRounds {
			t.Errorf("%s: %d rounds with what the machine gave, want %d", skew, n, minRounds)
		}
	}
	if p.Conditions == nil || p.ZipfConditions == nil || p.Conditions.Load <= 0 || r.Conditions == nil || r.Conditions.Step <= 0 {
		t.Errorf("%+v, %+v, %+v: want what the machine gave", p.Conditions, p.ZipfConditions, r.Conditions)
	}
	output(t, r)
}

// TestEveryToolDropsTheTrace sends a trace at each tool with its set or rules: all must load, drop every
// packet and say so, change, and leave nothing in force.
func TestEveryToolDropsTheTrace(t *testing.T) {
	l := standardLab(t)
	for _, width := range []int{32, 128} {
		for _, hosts := range []bool{true, false} {
			w := &work{width: width, entries: "some", hosts: hosts, prefixes: workload.Hosts(width, 12, 5)}
			if !hosts {
				w.prefixes = workload.Family(append(workload.Internet4(200, 5), workload.Internet6(200, 5)...), width)
			}
			trace, err := hitTrace(w, 5)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range setTools(w) {
				t.Run(w.String()+"/"+x.name, func(t *testing.T) { mustDrop(t, l, x, trace.Frames) })
			}
		}
	}
	for _, shape := range workload.Shapes {
		rules, err := workload.Rules(shape, 60, 5)
		if err != nil {
			t.Fatal(err)
		}
		list, err := ruleFrames(rules, 1000, workload.Uniform, 5)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range ruleTools(rules) {
			t.Run(shape+"/"+x.name, func(t *testing.T) { mustDrop(t, l, x, list) })
		}
	}
}

// standardLab makes a lab that goes with the test.
func standardLab(t *testing.T) *lab.Lab {
	t.Helper()
	needRoot(t)
	l, err := lab.New(t.Context(), lab.Standard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// What takes long to load stays, switched off, while other tools are measured: none may be in the way of another.
func TestToolsThatStayLoadedDoNotMeet(t *testing.T) {
	l := standardLab(t)
	w := &work{width: 32, entries: "some", hosts: true, prefixes: workload.Hosts(32, 12, 5)}
	trace, err := hitTrace(w, 5)
	if err != nil {
		t.Fatal(err)
	}
	tools := slices.DeleteFunc(setTools(w), func(x *tool) bool { return x.off == nil })
	for _, visit := range []string{"first", "second"} {
		for _, x := range tools {
			t.Run(visit+"/"+x.name, func(t *testing.T) {
				x.spent = loadBudget
				mustDrop(t, l, x, trace.Frames)
				if !x.kept {
					t.Error("does not stay loaded")
				}
			})
		}
	}
}

func mustDrop(t *testing.T, l *lab.Lab, x *tool, list [][]byte) {
	server := l.Host(lab.Server)
	site := contender.Site{Host: server, Device: "eth0"}
	defer func() {
		if err := x.Remove(t.Context()); err != nil {
			t.Errorf("removing: %v", err)
		}
	}()
	err := x.Install(t.Context(), site)
	if errors.Is(err, contender.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := gen.Config{Namespace: l.Host(lab.World).Namespace, Device: "eth0", CPU: -1, Frames: &gen.Frames{Frames: list}, Count: 2000}
	sent, err := gen.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	arrived := sent.Sent - sent.Refused
	for range 200 { // until the receiver has taken them all
		if n, err := x.Dropped(t.Context()); err != nil {
			t.Fatal(err)
		} else if n >= arrived {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n, err := x.Dropped(t.Context()); err != nil || arrived == 0 || n < arrived || n > arrived+10 { // and some of the kernel's own
		t.Errorf("%d dropped of %d that arrived (%d sent): %v", n, arrived, sent.Sent, err)
	}
	if len(x.loads) != 1 || x.change != nil && len(x.changes) != 1 {
		t.Errorf("%d loads and %d changes were timed", len(x.loads), len(x.changes))
	}
}

// An interrupted measurement gives what it has, says so, and by its error.
func TestAnInterruptedMeasurementIsReported(t *testing.T) {
	needRoot(t)
	// interrupted cancels when the second case begins.
	interrupted := func() (context.Context, Options) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		return ctx, Options{Sizes: []int{10, 20}, Rounds: minRounds, SkipLab: true, Progress: func(p Progress) {
			if p.Cases != 2 || p.Left <= 0 {
				t.Errorf("%+v", p)
			}
			if p.Case == 2 {
				cancel()
			}
		}}
	}
	ctx, o := interrupted()
	rules, err := Rules(ctx, RuleOptions{Options: o, Shapes: []string{"acl"}})
	if !errors.Is(err, context.Canceled) || rules == nil || len(rules.Cases) != 2 || rules.Cases[0].Levee == nil {
		t.Fatalf("%+v, %v", rules, err)
	}
	ctx, o = interrupted()
	sets, err := Sets(ctx, SetOptions{Options: o, Families: []string{"4"}, Entries: []string{"hosts"}})
	if !errors.Is(err, context.Canceled) || sets == nil || len(sets.Cases) != 2 || len(sets.Cases[0].Structures) == 0 {
		t.Fatalf("%+v, %v", sets, err)
	}
	for _, r := range []interface {
		Text(io.Writer) error
		Raw() any
		Document() *report.Document
	}{rules, sets} {
		var text bytes.Buffer
		if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "INCOMPLETE: after 1 of 2 cases: interrupted") {
			t.Errorf("%v\n%s", err, &text)
		}
		b, err := json.Marshal(r)
		if err != nil || !bytes.Contains(b, []byte(`"incomplete":"after 1 of 2 cases: interrupted`)) {
			t.Errorf("%v\n%s", err, b)
		}
		output(t, r)
	}
}

// TestWhatIsSlowToLoadIsSwitched makes every tool keep what it has loaded; off and on again it must drop everything.
func TestWhatIsSlowToLoadIsSwitched(t *testing.T) {
	l := standardLab(t)
	w := &work{width: 32, entries: "hosts", hosts: true, prefixes: workload.Hosts(32, 12, 5)}
	rules, err := workload.Rules("acl", 30, 5)
	if err != nil {
		t.Fatal(err)
	}
	hits, err := hitTrace(w, 5)
	if err != nil {
		t.Fatal(err)
	}
	packets, err := ruleFrames(rules, 500, workload.Uniform, 5)
	if err != nil {
		t.Fatal(err)
	}
	switched := 0
	for what, tools := range map[string][]*tool{"sets": setTools(w), "rules": ruleTools(rules)} {
		frames := hits.Frames
		if what == "rules" {
			frames = packets
		}
		for _, x := range tools {
			if x.off == nil {
				continue
			}
			switched++
			t.Run(what+"/"+x.name, func(t *testing.T) {
				x.spent = loadBudget // as if loading took long
				mustDrop(t, l, x, frames)
				if !x.kept {
					t.Error("it was not kept")
				}
				mustDrop(t, l, x, frames) // which also says that it was loaded once
				x.last, x.kept = 0, false
				if err := x.on(t.Context(), x.site); err != nil {
					t.Fatal(err)
				}
				x.installed = true
				if err := x.Remove(t.Context()); err != nil || x.kept {
					t.Errorf("removing it at last: %v", err)
				}
			})
		}
	}
	if switched < 6 {
		t.Errorf("%d tools are switched, want levee twice, nftables, ipset and iptables", switched)
	}
}

func TestTimeLeft(t *testing.T) {
	now := time.Unix(1000, 0)
	m := &meter{clock: func() time.Time { return now }, cases: []time.Duration{20 * time.Second, 40 * time.Second}, start: now}
	m.tell = func(Progress) {}
	m.doing("", 0.25)
	if got := m.left(); got != 55*time.Second {
		t.Errorf("%v left by the estimate alone, want 55s", got)
	}
	m.next(1)
	now = now.Add(40 * time.Second) // twice as long as it should take
	m.doing("", 0.5)
	if got := m.left(); got != 20*time.Second {
		t.Errorf("%v left, want 20s: 40 of 60 estimated seconds took 40", got)
	}
}

func TestFloodsAreMeasuredByTheRulesOfBench(t *testing.T) {
	needRoot(t)
	o := Options{Sizes: []int{12}, Seed: 5, Rounds: minRounds, Attempts: 1, Window: 50 * time.Millisecond, Quick: true, SkipLookups: true, Only: []string{"levee static"}}
	r, err := Sets(t.Context(), SetOptions{Options: o, Families: []string{"4"}, Entries: []string{"hosts"}})
	if errors.Is(err, kernel.ErrRefused) {
		t.Skip(err) // one core
	}
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine windows have reasons instead of figures.
	for _, x := range r.Cases[0].Lab {
		if x.Missing != "" || x.LoadNs == nil || len(x.Windows) == 0 || x.MedianPPS == nil && len(x.Why) == 0 {
			t.Errorf("%s: %q, %q, %d windows", x.Name, x.Missing, x.Why, len(x.Windows))
		}
	}
	if len(r.Cases[0].Lab) != 1 {
		t.Errorf("%d tools, want one", len(r.Cases[0].Lab))
	}
	output(t, r)
}

// output holds a report against its forms: text, JSON, and the document with all that is made of it.
func output(t *testing.T, r interface {
	Text(io.Writer) error
	Raw() any
	Document() *report.Document
}) {
	t.Helper()
	var text, page bytes.Buffer
	if err := r.Text(&text); err != nil || text.Len() == 0 {
		t.Errorf("text: %v", err)
	}
	d := r.Document()
	if err := d.JSON(&text, r.Raw()); err != nil {
		t.Error(err)
	}
	if err := d.HTML(&page); err != nil {
		t.Error(err)
	}
	for _, c := range d.Charts {
		if svg, err := d.SVG(c); err != nil || len(svg) == 0 {
			t.Errorf("%s: %v", c.ID, err)
		}
	}
}

// TestRulesAsAPolicyMeanTheSame compares the text for levee with the rules themselves, rule by rule.
func TestRulesAsAPolicyMeanTheSame(t *testing.T) {
	for _, shape := range workload.Shapes {
		rules, err := workload.Rules(shape, 200, 9)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parse(leveeText(rules), nil)
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
		list, err := ruleFrames(rules, 1000, workload.Uniform, 9)
		if err != nil {
			t.Fatal(err)
		}
		ev := oracle.New(p)
		slots := p.Slots()
		for i := range headers {
			want := slices.IndexFunc(rules, func(r workload.Rule) bool { return r.Matches(&headers[i]) })
			got := slots[ev.Eval(list[i]).Slot]
			if want < 0 && got.Reason == policy.ByRule || want >= 0 && got.Line != want+1 {
				t.Errorf("%s: %+v is decided by %s, want rule %d", shape, headers[i], p.Where(got), want)
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
		{workload.Rule{Src: p("192.0.2.0/24"), Dst: p("0.0.0.0/0"), SrcPort: workload.AllPorts, DstPort: workload.Ports{Lo: 80, Hi: 80}, Proto: 6},
			" ip saddr 192.0.2.0/24 tcp dport 80 counter name c drop\n", "-A RULES -s 192.0.2.0/24 -p tcp --dport 80:80 -j DROP\n"},
		{workload.Rule{Src: p("0.0.0.0/0"), Dst: p("192.0.2.1/32"), SrcPort: workload.AllPorts, DstPort: workload.AllPorts, Proto: 47},
			" ip daddr 192.0.2.1/32 meta l4proto 47 counter name c drop\n", "-A RULES -d 192.0.2.1/32 -p 47 -j DROP\n"},
		{workload.Rule{Src: p("0.0.0.0/0"), Dst: p("0.0.0.0/0"), SrcPort: workload.AllPorts, DstPort: workload.AllPorts},
			" meta protocol ip counter name c drop\n", "-A RULES -j DROP\n"},
		{workload.Rule{Src: p("0.0.0.0/0"), Dst: p("0.0.0.0/0"), SrcPort: workload.Ports{Lo: 1, Hi: 9}, DstPort: workload.AllPorts},
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

func TestCountersOfTheOthersAreRead(t *testing.T) {
	head := "Chain PREROUTING (policy ACCEPT 0 packets, 0 bytes)\n    pkts      bytes target     prot opt in     out     source               destination\n"
	for listing, want := range map[string]uint64{
		head + "      10      100 RULES      0    --  *      *       0.0.0.0/0            0.0.0.0/0\n       3      30            0    --  *      *       0.0.0.0/0            0.0.0.0/0\n": 7,
		head + "      10      100 DROP       0    --  *      *       0.0.0.0/0            0.0.0.0/0\n":                                                                                     10,
	} {
		if n, err := firstLessSecond(listing); n != want || err != nil {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}
	if _, err := firstLessSecond(head); err == nil {
		t.Error("no rule is no error")
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, o := range []Options{{Rounds: 5}, {Rounds: 2000}, {Sizes: []int{0}}, {Sizes: []int{workload.MaxPrefixes + 1}}, {Window: 1}, {Only: []string{"nosuch"}}} {
		if _, err := Sets(t.Context(), SetOptions{Options: o}); !errors.Is(err, option.ErrWrong) {
			t.Errorf("%+v was accepted", o)
		}
	}
	o := Options{}
	if err := o.complete(100_000); err != nil || !slices.Equal(o.Sizes, []int{10, 100, 1000, 10_000, 100_000}) {
		t.Errorf("%v, %v", o.Sizes, err)
	}
}

// An interrupted run has tools with a median and too few rounds for its interval.
func TestAMedianWithoutAnIntervalIsReported(t *testing.T) {
	pps, ns := 2e6, 500.0
	tools := []*Tool{{Name: "nft rules", MedianPPS: &pps, NsPerPacket: &ns, Windows: []bench.Window{}}}
	output(t, &RulesReport{Cases: []*RuleCase{{Shape: "acl", Size: 10, Lab: tools}}, Incomplete: "interrupted"})
	output(t, &SetsReport{Cases: []*SetCase{{Family: "IPv4", Entries: "hosts", Size: 10, Lab: tools}}, Incomplete: "interrupted"})
}

func TestIntervalsFitIntoJSON(t *testing.T) {
	if f := figure([]float64{1, 2}); f.Interval != [2]float64{1, 2} {
		t.Errorf("%+v", f)
	}
	if figure(nil) != nil {
		t.Error("nothing has a figure")
	}
	_, err := json.Marshal(SetsReport{Machine: host.Info{}})
	if err != nil {
		t.Error(err)
	}
}

func TestChangeIsNotInTheSet(t *testing.T) {
	for _, width := range []int{32, 128} {
		// Everything but one network is in a prefix.
		free := netip.MustParsePrefix("208.0.0.0/4")
		if width == 128 {
			free = netip.MustParsePrefix("2000::/4")
		}
		w := &work{width: width}
		for bits := range 4 {
			other := free.Addr().AsSlice()
			other[bits/8] ^= 0x80 >> (bits % 8)
			a, _ := netip.AddrFromSlice(other)
			w.prefixes = append(w.prefixes, netip.PrefixFrom(a, bits+1).Masked())
		}
		if got := w.fresh(); !free.Contains(got) {
			t.Errorf("%v is in a prefix of the set", got)
		}
	}
	for _, w := range []*work{{width: 32}, {width: 32, prefixes: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}} {
		if got := w.fresh(); !got.Is4() {
			t.Errorf("%v: %v", w.prefixes, got)
		}
	}
	if got := (&work{width: 128}).fresh(); !got.Is6() {
		t.Errorf("%v", got)
	}
}
