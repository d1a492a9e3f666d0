package judge

import (
	"strings"
	"testing"

	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// newJudge makes a judge that asks the oracle.
func newJudge(t *testing.T, src string) (*Judge, *policy.Policy) {
	t.Helper()
	p, ds := resolve.Parse("test.levee", []byte(src), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	j, err := New(p, Oracle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j, p
}

func TestPolicyTestsAreRun(t *testing.T) {
	_, p := newJudge(t, `set bad = dynamic(max 10)
drop from bad as "bad"
pass tcp port 80 as "web"
drop malformed as "broken"
protect udp port 53
default drop
test "right" {
    packet tcp port 80 expect pass by "web"
    packet tcp port 81 expect drop by default
    packet arp expect pass by essential
    packet udp port 53 expect pass by protect
    packet hex "00" expect drop by "broken"
    set bad has 192.0.2.1
    packet tcp port 80 expect drop by "bad"
}
test "sets are empty again" { packet tcp port 80 expect pass }
test "wrong verdict" { packet tcp port 80 expect drop }
test "wrong label" { packet tcp port 80 expect pass by "bad" }
test "wrong reason" { packet tcp port 81 expect drop by malformed }
`)
	want := map[string]string{
		"right": "", "sets are empty again": "",
		"wrong verdict": `expected drop, got pass by "web" (test.levee:3)`,
		"wrong label":   `expected pass by "bad", got pass by "web" (test.levee:3)`,
		"wrong reason":  `expected drop by malformed, got drop by the default (test.levee:6)`,
	}
	if len(p.Tests) != len(want) {
		t.Fatalf("%d tests, want %d", len(p.Tests), len(want))
	}
	j, err := New(p, Oracle)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for i, test := range p.Tests {
		r, err := j.Test(p.File, test)
		if err != nil {
			t.Fatal(err)
		}
		name := r.Test.Name
		var faults []string
		for _, s := range r.Packets {
			if s.Fault != "" {
				faults = append(faults, s.Fault)
			}
			if (s.Trace != nil) != (s.Fault != "") {
				t.Errorf("%s: %q with the story %v", name, s.Fault, s.Trace)
			}
		}
		if got := strings.Join(faults, "; "); got != want[name] || r.Passed() != (got == "") {
			t.Errorf("%s: %q, want %q", name, got, want[name])
		}
		if n := len(r.Packets); i == 0 && n != 6 {
			t.Errorf("%d results of the first test, want one for each of 6 packets", n)
		}
	}
}

// TestNoTestKnowsTheStreamsOfAnother: what a search had found in the test before held for the same
// addresses and ports.
func TestNoTestKnowsTheStreamsOfAnother(t *testing.T) {
	const out = "packet tcp flags syn,ack from 198.51.100.9 from port 80 to 203.0.113.7 port 4000 "
	const in = "packet tcp flags ack from 203.0.113.7 from port 4000 to 198.51.100.9 port 80 "
	p, ds := resolve.Parse("test.levee", []byte(`drop tcp stream contains "evil" as "evil"
pass tcp
default drop
test "contains" {
    `+out+`seq 9 ack-number 5 leaves
    `+in+`seq 5 ack-number 10 payload "evil" expect drop by "evil"
}
test "a stream that nobody knows" {
    `+in+`seq 9 ack-number 10 payload "more" expect pass
}
`), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	engines := []Engine{Oracle}
	if kernel.Privileged() == nil {
		engines = append(engines, Both)
	}
	for _, engine := range engines {
		j, err := New(p, engine)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range p.Tests {
			r, err := j.Test(p.File, test)
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range r.Packets {
				if got.Fault != "" {
					t.Errorf("engine %v, %s: %s", engine, r.Test.Name, got.Fault)
				}
			}
		}
		j.Close()
	}
}

func TestEnginesThatDifferFailATest(t *testing.T) {
	j, p := newJudge(t,
		"drop arp as \"a\"\ndefault drop\ntest \"t\" { packet arp expect drop by \"a\" }\n")
	v := Verdict{Decision: Decision{p.RuleSlot(0), action.Drop}, Differs: true,
		Compiled: Decision{p.DefaultSlot(), action.Pass}}
	want := "but pass by the default (test.levee:2) from the compiled program"
	step := p.Tests[0].Steps[0]
	if got := j.fault(&step, v); !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// also where the oracle's verdict is not what the test expects
	step.Expect = action.Pass
	if got := j.fault(&step, v); !strings.Contains(got, want) ||
		!strings.Contains(got, "expected pass") {
		t.Errorf("got %q, want %q and what was expected", got, want)
	}
}

// TestAStoryChangesNothing: the story of a packet that failed judged it once more, so that the next
// one found a budget used up, or a connection that there was not.
func TestAStoryChangesNothing(t *testing.T) {
	_, p := newJudge(t, `limit udp rate 2/s burst 2 as "few"
default pass
test "budget" {
    packet udp expect drop
    packet udp expect pass
    packet udp expect drop by "few"
}
`)
	for _, e := range []Engine{Oracle, Both, Compiled} {
		if e != Oracle && kernel.Privileged() != nil {
			continue
		}
		j, err := New(p, e)
		if err != nil {
			t.Fatal(err)
		}
		res, err := j.Test("test.levee", p.Tests[0])
		j.Close()
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"expected drop, got pass by the default (test.levee:2)", "",
			""} {
			if got := res.Packets[i].Fault; got != want {
				t.Errorf("%s: packet %d: %q, want %q", e, i+1, got, want)
			}
		}
		if why := res.Packets[0].Trace.Why; !strings.HasPrefix(why, "pass") {
			t.Errorf("%s: the story of a packet that passed: %s", e, why)
		}
	}
}

// TestAPacketWithoutAnExpectationHasToBeAgreedOn: engines that differ on a packet that a test only
// lets leave are told, as the packets after it would fail for no reason that is; and so are those
// of which one decides as it is expected.
func TestAPacketWithoutAnExpectationHasToBeAgreedOn(t *testing.T) {
	if kernel.Privileged() != nil {
		t.Skip("needs root")
	}
	for _, packet := range []string{"packet udp leaves", "packet udp leaves expect pass"} {
		judges := [2]*Judge{}
		for i, verb := range []string{"pass", "drop"} {
			_, p := newJudge(t, "out "+verb+" udp as \"x\"\ndefault pass\n"+
				"test \"t\" { "+packet+" }\n")
			j, err := New(p, Both)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			judges[i] = j
		}
		passes, drops := judges[0], judges[1]
		test := passes.policy.Tests[0]
		res, err := passes.Test("test.levee", test)
		if err != nil || len(res.Packets) > 0 && res.Packets[0].Fault != "" {
			t.Fatalf("%s: engines that agree: %+v, %v", packet, res, err)
		}
		passes.short, drops.short = drops.short, passes.short
		passes.long, drops.long = drops.long, passes.long
		res, err = passes.Test("test.levee", test)
		if err != nil || len(res.Packets) != 1 ||
			!strings.Contains(res.Packets[0].Fault, "but drop by \"x\"") {
			t.Errorf("%s: engines that differ: %+v, %v", packet, res, err)
		}
	}
}
