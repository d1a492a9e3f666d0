package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"levee/internal/dataplane/judge"
	"levee/internal/lang/action"
	"levee/internal/lang/resolve"
)

func TestDifferenceShowsBothVerdictsThePacketAndItsStory(t *testing.T) {
	src := "drop arp as \"a\"\npass ipv4\ndefault drop\ntest \"t\" { packet arp expect drop by " +
		"\"a\" }\n"
	p, ds := resolve.Parse("two.levee", []byte(src), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	j, err := judge.New(p, judge.Oracle)
	if err != nil {
		t.Fatal(err)
	}
	e, out, errs, _ := testEnv(false)
	r := &evalRun{e: e, p: p, j: j, out: bufio.NewWriter(out), n: 17}
	frame := p.Tests[0].Steps[0].Frame
	if _, err := j.Frame(frame); err != nil {
		t.Fatal(err)
	}
	r.difference(frame, judge.Verdict{
		Decision: judge.Decision{Slot: p.RuleSlot(0), Action: action.Drop},
		Differs:  true,
		Compiled: judge.Decision{Slot: p.DefaultSlot(), Action: action.Pass},
	})
	for _, want := range []string{
		"packet 17 is judged differently:\n",
		"  oracle            drop two.levee:1 \"a\"\n",
		"  compiled program  pass two.levee:3 (default)\n",
		"  packet            020000000002",
		"\n  Ethernet  at 0, 14 bytes",
		"\n  drop: by \"a\" (two.levee:1)\n",
	} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("no %q in\n%s", want, errs)
		}
	}
}

func TestVerdictLines(t *testing.T) {
	for _, c := range []struct {
		v    judge.Judged
		want string
	}{
		{judge.Judged{N: 1, Verdict: "drop", Rule: "e:14", Label: "x", Reason: "rule"},
			`1 drop e:14 "x"`},
		{judge.Judged{N: 2, Verdict: "pass", Rule: "e:3", Reason: "rule"}, `2 pass e:3`},
		{judge.Judged{N: 3, Verdict: "pass", Rule: "e:2", Label: "adm", Reason: "protect"},
			`3 pass e:2 "adm" (protect)`},
		{judge.Judged{N: 4, Verdict: "drop", Rule: "malformed:ip-length", Label: "ip-length",
			Reason: "malformed"}, `4 drop malformed:ip-length`},
		{judge.Judged{N: 5, Verdict: "pass", Rule: "e:9", Label: "default", Reason: "default"},
			`5 pass e:9 (default)`},
	} {
		if got := c.v.String(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.v, got, c.want)
		}
	}
}

// TestFieldNamesStay holds the names and the order of what `levee eval --json` prints.
func TestFieldNamesStay(t *testing.T) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(judge.Judged{N: 1, Verdict: "drop", Rule: "edge.levee:14",
		Label: "abuser", Reason: "rule", Engine: "bpf"}); err != nil {
		t.Fatal(err)
	}
	want := `{"n":1,"verdict":"drop","rule":"edge.levee:14","label":"abuser","reason":"rule","engine":"bpf"}` + "\n"
	if b.String() != want {
		t.Errorf("got  %swant %s", &b, want)
	}
}
