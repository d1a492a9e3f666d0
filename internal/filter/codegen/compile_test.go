package codegen_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/filter/difftest"
	"levee/internal/filter/ir"
	"levee/internal/filter/oracle"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to load programs")
	}
}

// resolved a policy that must be right.
func resolved(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, diags := resolve.Parse("test.levee", []byte(text),
		func(string) (io.ReadCloser, error) { return nil, fs.ErrNotExist })
	if p != nil {
		return p
	}
	var b bytes.Buffer
	diags.Render(&b, false)
	t.Fatalf("%s\n%s", text, b.String())
	return nil
}

// agree compares a compiled policy with the oracle on packets drawn from the policy's corners.
func agree(t *testing.T, name string, prog *ir.Program, target codegen.Target, seed uint64,
	packets int) {
	t.Helper()
	target.Trace, target.Clock, target.Memory = true, true, 1<<30
	compiled, err := codegen.CompileIR(prog, target)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	run, err := loader.NewRunner(compiled)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer run.Close()
	run.SetClock(0)
	reference := oracle.New(prog.Policy)
	reference.SetClock(func() time.Time { return time.Unix(0, 0) })
	for frame := range difftest.Packets(prog.Policy, seed, packets) {
		want := reference.Eval(frame)
		got, action, err := run.Eval(frame)
		if err != nil {
			// BPF_PROG_RUN makes an skb of the frame, which must hold the header that its EtherType
			// names.
			if target.Hook == codegen.TCX && len(frame) < 54 {
				continue
			}
			t.Fatalf("%s: seed %d: %v: frame %x", name, seed, err, frame)
		}
		if got != want.Slot || action != want.Action {
			t.Fatalf("%s: seed %d: program: slot %d %v, oracle: slot %d %v: frame %x", name, seed,
				got, action, want.Slot, want.Action, frame)
		}
	}
}

// generated gives a random policy. Its dynamic sets stay empty, for the program and the oracle
// alike.
func generated(t *testing.T, seed uint64) *policy.Policy {
	t.Helper()
	p, _, err := difftest.Policy(seed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEveryTargetAgreesWithTheOracle(t *testing.T) {
	needRoot(t)
	for name, target := range map[string]codegen.Target{
		"xdp, one CPU":    {},
		"xdp, three CPUs": {CPUs: 3},
		"xdp.frags":       {CPUs: 2, Frags: true},
		"tcx":             {CPUs: 2, Hook: codegen.TCX},
		"trial":           {CPUs: 2, Trial: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(12) {
				p := generated(t, 5000+seed)
				if target.Trial {
					// The deadline of a fresh map is 0: over. Nothing ran before, so all pass.
					checkTrialIsOver(t, p, target)
					continue
				}
				agree(t, name, ir.Build(p), target, seed, 300)
			}
		})
	}
}

func checkTrialIsOver(t *testing.T, p *policy.Policy, target codegen.Target) {
	t.Helper()
	compiled, err := codegen.Compile(p, target)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := ebpf.NewCollection(compiled.Spec)
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	for frame := range difftest.Packets(p, 1, 20) {
		if len(frame) < 14 {
			continue
		}
		ret, _, err := loaded.Programs[codegen.ProgramName].Test(frame)
		if err != nil || ret != 2 {
			t.Fatalf("after the deadline: %d, %v; want XDP_PASS", ret, err)
		}
	}
}

// Each pass only removes work: without it the same packets are decided by the same rules.
func TestPassesChangeNoDecision(t *testing.T) {
	needRoot(t)
	for _, skip := range [][]string{{ir.PassCovered}, {ir.PassOrder},
		{ir.PassCovered, ir.PassOrder}} {
		for seed := range uint64(8) {
			p := generated(t, 6000+seed)
			agree(t, fmt.Sprint("without ", skip), ir.Build(p, skip...), codegen.Target{}, seed,
				300)
		}
	}
}

// Rules that a table cannot hold stay compares; enough of them make a function of each class.
func TestManyStraightRulesBecomeFunctions(t *testing.T) {
	needRoot(t)
	rng := rand.New(rand.NewPCG(11, 0))
	var b strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&b, "%s %s port %d len %d-%d\n", []string{"drop", "pass", "count"}[rng.IntN(3)],
			[]string{"tcp", "udp", "ipv6 tcp"}[rng.IntN(3)], rng.IntN(300), 40+i/10, 60+i/10)
	}
	b.WriteString("drop ttl < 2\ndefault pass\n")
	p := resolved(t, b.String())
	agree(t, "2,500 rules", ir.Build(p), codegen.Target{CPUs: 2}, 3, 2000)
}

// Classes of packets differ in what is built in: ICMP errors, answers to a DHCP client. Their
// tables would be the same but for that.
func TestClassesShareTheTableOfTheSameRules(t *testing.T) {
	rules := lines(150, func(i int) string {
		return fmt.Sprintf("drop from 192.0.2.%d to { 198.51.100.%d, 203.0.113.0/24 }", i, i)
	})
	prog, err := codegen.Compile(resolved(t, rules+"default pass\n"), codegen.Target{CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(prog.Tables) != 1 || !strings.Contains(prog.Tables[0].For, "UDP") ||
		!strings.Contains(prog.Tables[0].For, "ICMP") {
		t.Errorf("want one table for all classes, got %v", prog.Tables)
	}
}

// Runs of rules on addresses and numbers go to tables, also between rules that do not.
func TestManyRulesBecomeTables(t *testing.T) {
	needRoot(t)
	rng := rand.New(rand.NewPCG(12, 0))
	four := func() string { return fmt.Sprintf("10.%d.%d.0/%d", rng.IntN(4), rng.IntN(8)*2, 23) }
	six := func() string { return fmt.Sprintf("2001:db8:%x::/48", rng.IntN(64)) }
	var b strings.Builder
	for i := range 900 {
		action := []string{"drop", "pass"}[rng.IntN(2)]
		if i%300 == 299 {
			fmt.Fprintf(&b, "count ttl < %d\n", 10+i/100)
		}
		switch rng.IntN(6) {
		case 0:
			fmt.Fprintf(&b, "%s from %s to %s\n", action, four(), four())
		case 1:
			fmt.Fprintf(&b, "%s tcp from %s port %d\n", action, four(), rng.IntN(200))
		case 2:
			fmt.Fprintf(&b, "%s udp from { %s, %s } from port { 53, %d-%d } to %s\n", action,
				four(), six(), 100+i, 200+i, four())
		case 3:
			fmt.Fprintf(&b, "%s from %s to %s port >= %d\n", action, six(), six(),
				rng.IntN(65000)+1)
		case 4:
			fmt.Fprintf(&b, "%s icmp type %d/%d from %s\n", action, rng.IntN(18), rng.IntN(4),
				four())
		case 5:
			fmt.Fprintf(&b, "%s proto %d to %s\n", action, 60+rng.IntN(60),
				[]string{four(), six()}[rng.IntN(2)])
		}
	}
	b.WriteString("default drop\n")
	p := resolved(t, b.String())
	prog, err := codegen.Compile(p, codegen.Target{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(fmt.Sprint(prog.Tables), "decision trees") {
		t.Errorf("no decision trees in %v", prog.Tables)
	}
	agree(t, "900 rules", ir.Build(p), codegen.Target{CPUs: 2}, 4, 4000)
}

// The same policy gives the same program and tables on any machine.
func TestCompilingIsPure(t *testing.T) {
	for seed := range uint64(10) {
		a, errA := codegen.Compile(generated(t, 7000+seed), codegen.Target{CPUs: 2})
		b, errB := codegen.Compile(generated(t, 7000+seed), codegen.Target{CPUs: 2})
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		x, y := a.Spec.Programs[codegen.ProgramName].Instructions,
			b.Spec.Programs[codegen.ProgramName].Instructions
		if fmt.Sprint(x) != fmt.Sprint(y) {
			t.Errorf("seed %d: instructions differ", 7000+seed)
		}
		if !reflect.DeepEqual(a.Spec.Maps, b.Spec.Maps) {
			t.Errorf("seed %d: maps differ", 7000+seed)
		}
	}
}

// What only Ethernet frames have is no question for other packets.
func TestTermsAboutEthernetAreRefusedWithoutIt(t *testing.T) {
	p := resolved(t, "pass tcp port 22\ndrop arp\ndefault pass\n")
	_, err := codegen.Compile(p, codegen.Target{Link: packet.L3})
	if err == nil || !strings.Contains(err.Error(), "line 2 asks for EtherType") {
		t.Errorf("compiled with %v", err)
	}
	if _, err := codegen.Compile(p, codegen.Target{}); err != nil {
		t.Error(err)
	}
}

// The program holds only what the policy asks for.
func TestUnusedPartsAreLeftOut(t *testing.T) {
	for _, tt := range []struct {
		policy string
		maps   int // besides the counters
	}{
		{"default drop\n", 0},
		{"pass tcp port { 22, 80, 443 }\ndefault drop\n", 0},
		{"pass tcp port { 22, 80, 443, 8080, 8443, 25, 110, 143, 993 }\ndefault drop\n", 1},
		// of both sets: entries outlive rules
		{"set a = dynamic(max 100, lease 1m)\nset b = dynamic(max 100)\ndrop from a\ndefault " +
			"pass\n", 2},
	} {
		prog, err := codegen.Compile(resolved(t, tt.policy), codegen.Target{})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(prog.Spec.Maps) - 2; got != tt.maps {
			t.Errorf("%q: %d maps besides counters and capture, want %d: %v", tt.policy, got,
				tt.maps, prog.Spec.Maps)
		}
	}
}
