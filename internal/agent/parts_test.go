package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/ledger"
	"levee/internal/agent/part"
	"levee/internal/agent/pubsub"
	"levee/internal/await"
	"levee/internal/lang/policy"
)

// stateOf is the state of a part of an agent.
func stateOf(t *testing.T, a *Agent, kind part.Kind, name string) part.Status {
	t.Helper()
	for _, s := range a.parts.List() {
		if s.Kind == kind && s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no part %s %s in %+v", kind, name, a.parts.List())
	return part.Status{}
}

// again lets everything be tried again that has failed.
func again(a *Agent) {
	for _, s := range a.sources {
		s.next = time.Time{}
	}
	a.nextLedger = time.Time{}
}

// broken are sources that cannot be read, and what mends each of them.
const broken = `
source "dir" eve file "DIR/dir.json" add src_ip to s
source "missing" eve file "DIR/missing.json" add src_ip to s
source "taken" eve unix_stream "DIR/taken.sock" add src_ip to s
source "beside" eve unix_stream "DIR/taken.sock" where event_type = "x" add src_ip to s
source "red" eve redis "127.0.0.1:1" list "x" add src_ip to s
`

// A source whose patterns fit no line of its program says so, once.
func TestASourceThatMatchesNothingSaysSo(t *testing.T) {
	dir := t.TempDir()
	log := strings.Repeat("Nov 25 01:31:58 h sshd[1]: nobody knows this line\n", 1001)
	if err := os.WriteFile(dir+"/auth.log", []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, dir, k, `source "ssh" lines file "DIR/auth.log" match sshd-failed add addr to s`+
		"\n")
	for a.poll(t.Context()) {
	}
	a.poll(t.Context())
	if s := a.current(); len(s.Alarms) != 1 ||
		!strings.Contains(s.Alarms[0].Text, "has read 1001 lines of its program") {
		t.Errorf("alarms: %+v", s.Alarms)
	}
}

// TestOneSourceThatCannotBeReadEndsNoOther: an unreadable log ended the agent, and flood defence
// with it, in a loop of restarts. Each fails alone, is told, and works once it can.
func TestOneSourceThatCannotBeReadEndsNoOther(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"dir.json"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/taken.sock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, dir, k, broken+one)
	write(t, dir+"/eve.json", "198.51.100.1")
	for a.poll(t.Context()) {
	}
	if len(k.sets["s"]) != 1 {
		t.Errorf("the source that can be read has leased %v", k.sets["s"])
	}
	for name, want := range map[string]part.State{"dir": part.Fails, "missing": part.Waits,
		"taken": part.Fails, "beside": part.Fails, "ids": part.Works} {
		if s := stateOf(t, a, part.Source, name); s.State != want ||
			(want == part.Fails && s.Error == "") {
			t.Errorf("%s: %+v, want %s", name, s, want)
		}
	}
	await.OK(t, func() error {
		a.poll(t.Context())
		if s := stateOf(t, a, part.Source, "red"); s.State != part.Fails || s.Do == "" {
			return fmt.Errorf("red: %+v", s)
		}
		return nil
	})
	if s := a.current(); len(s.Alarms) != 4 || s.Alarms[0].Part == "" {
		t.Errorf("alarms: %+v", s.Alarms)
	}

	// They are mended, and a reload in between changes nothing.
	a.reload(t.Context())
	for _, name := range []string{"dir.json", "taken.sock"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir+"/dir.json", "198.51.100.2")
	write(t, dir+"/missing.json", "198.51.100.3")
	again(a)
	a.poll(t.Context())
	c, err := net.Dial("unix", dir+"/taken.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintln(c, `{"src_ip":"198.51.100.4"}`)
	for end := time.Now().Add(time.Minute); len(k.sets["s"]) < 4; a.poll(t.Context()) {
		if time.Now().After(end) {
			t.Fatalf("leased %v", k.sets["s"])
		}
	}
	for _, name := range []string{"dir", "missing", "taken", "beside", "ids"} {
		if s := stateOf(t, a, part.Source, name); s.State != part.Works {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if s := stateOf(t, a, part.Source, "dir"); s.Failures != 1 || s.LastError == "" {
		t.Errorf("what was before is forgotten: %+v", s)
	}
}

// TestWithoutALedgerAllElseGoesOn: an agent whose ledger cannot be opened ended. It answers, says
// why, and reads no source that it could not go on with; when the file can be had, it does.
func TestWithoutALedgerAllElseGoesOn(t *testing.T) {
	dir := t.TempDir()
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, dir, k, one+oneFeed)
	quiet(t, a)
	a.ledger.Close()
	a.closeSources()
	a.sources[0].inlet = nil
	a.ledger, a.opts.Ledger = &ledger.Ledger{}, filepath.Join(dir, "file", "agent.db")
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/eve.json", "198.51.100.1")
	if err := a.openLedger(0); err != nil {
		t.Fatal(err)
	}
	a.poll(t.Context())
	a.compare(t.Context())
	s := a.current()
	if got := stateOf(t, a, part.File, dir+"/agent.db"); got.State != part.Fails || got.Do == "" {
		t.Errorf("the ledger: %+v", got)
	}
	if got := stateOf(t, a, part.Source, "ids"); got.State == part.Fails ||
		s.Sources[0].Events != 0 {
		t.Errorf("a source: %+v", got)
	}
	loop(t, a)
	for what, do := range map[string]func() error{
		"leases": func() error { _, err := a.page(t.Context(), &LeaseQuery{Limit: 1}); return err },
		"add": func() error {
			_, err := a.addTo(t.Context(), "s", []string{"203.0.113.9"}, "1h")
			return err
		},
	} {
		var refused interface{ GetStatus() int }
		if err := do(); !errors.As(err, &refused) ||
			refused.GetStatus() != http.StatusServiceUnavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "file")); err != nil {
		t.Fatal(err)
	}
	a.in(t.Context(), func() {
		again(a)
		if err := a.openLedger(0); err != nil {
			t.Error(err)
		}
		for a.poll(t.Context()) {
		}
	})
	if got := stateOf(t, a, part.File, dir+"/agent.db"); got.State != part.Works ||
		len(k.sets["s"]) != 1 {
		t.Errorf("then %+v, leased %v", got, k.sets["s"])
	}
	a.ledger.Close()
}

// TestAPolicyThatCannotBeReadEndsNothing: those of the others are followed, and it is tried again.
func TestAPolicyThatCannotBeReadEndsNothing(t *testing.T) {
	dir := t.TempDir()
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, dir, k, one)
	read := a.opts.Policies
	a.opts.Policies = func(ctx context.Context) ([]*policy.Policy, error) {
		all, _ := read(ctx)
		return all, errors.New("eth1: the policy is gone")
	}
	a.policies, a.inForce = nil, "?"
	a.reload(t.Context())
	if s := stateOf(t, a, part.Policy, "in force"); s.State != part.Fails || len(a.sources) != 1 {
		t.Errorf("%+v, %d sources", s, len(a.sources))
	}
	a.opts.Policies = read
	a.opts.InForce = func(context.Context) (string, error) { return "x", nil }
	a.lookAtPolicies(t.Context())
	if s := stateOf(t, a, part.Policy, "in force"); s.State != part.Works {
		t.Errorf("%+v", s)
	}
}

// TestWhatStandsInForAPolicyIsAnAlarm until the policy itself is in force.
func TestWhatStandsInForAPolicyIsAnAlarm(t *testing.T) {
	a := start(t, t.TempDir(), &fake{sets: map[string]map[netip.Prefix]time.Duration{}}, one)
	for _, why := range []error{errors.New("on eth0 a policy stands in"), nil} {
		a.opts.Instead = func() error { return why }
		for _, look := range []func(context.Context){a.lookAtPolicies, a.reload} {
			look(t.Context())
			s := stateOf(t, a, part.Policy, "in force")
			if (s.State == part.Fails) != (why != nil) || why != nil && s.Error != why.Error() {
				t.Errorf("%v: %+v", why, s)
			}
		}
	}
}

// TestAFailureIsToldEverywhere: in the status, by the API, by metrics, and to those who watch, from
// when it begins until it is over.
func TestAFailureIsToldEverywhere(t *testing.T) {
	dir := t.TempDir()
	a := start(t, dir, &fake{sets: map[string]map[netip.Prefix]time.Duration{}}, one)
	var events []pubsub.Event
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan pubsub.Event, 16)
	go a.events.Watch(ctx, 0, func(_ uint64, e *pubsub.Event) error { heard <- *e; return nil })
	await.True(t, "somebody watches", func() bool { return a.events.Watchers() > 0 })
	defer cancel()
	p := a.parts.Begin(part.Detector, "floods", "eth0")
	p.Fails(part.Do(errors.New("perf_event_open: operation not permitted"), "allow it"))
	events = append(events, <-heard)
	if e := events[0]; e.Kind != pubsub.Alarm || e.Part != "detector floods on eth0" ||
		!strings.Contains(e.Text, "not permitted; to do: allow it") {
		t.Errorf("%+v", e)
	}
	s := a.current()
	if len(s.Alarms) != 1 || s.Alarms[0].Part != "detector floods on eth0" ||
		!slices.ContainsFunc(s.Parts, func(p part.Status) bool { return p.State == part.Fails }) {
		t.Errorf("%+v", s)
	}
	found := map[string]float64{}
	for _, f := range s.families() {
		for _, sample := range f.Samples {
			if f.Name == "levee_agent_alarms" || len(sample.Labels) == 3 &&
				sample.Labels[2].Value == "eth0" {
				found[f.Name] = sample.Value
			}
		}
	}
	if found["levee_agent_alarms"] != 1 || found["levee_agent_part_fails"] != 1 ||
		found["levee_agent_part_works"] != 0 || found["levee_agent_part_failures"] != 1 {
		t.Errorf("metrics: %v", found)
	}
	p.End()
	if e := <-heard; e.Kind != pubsub.Recovered || e.Part != events[0].Part {
		t.Errorf("%+v", e)
	}
	if s := a.current(); len(s.Alarms) != 0 {
		t.Errorf("%+v", s.Alarms)
	}
}

// TestWhatEndsWithTheAgentIsNotOver: as an agent ended, it told of each list and source that failed
// that it was no longer there.
func TestWhatEndsWithTheAgentIsNotOver(t *testing.T) {
	for _, tt := range []struct {
		ended bool
		want  string
	}{{false, "list drop is no longer there"}, {true, ""}} {
		ctx, end := context.WithCancel(t.Context())
		said := ""
		parts := NewParts(ctx, &pubsub.Hub{}, func(format string, args ...any) {
			said = fmt.Sprintf(format, args...)
		})
		p := parts.Begin(part.List, "drop", "")
		p.Fails(errors.New("it cannot be read"))
		said = ""
		if tt.ended {
			end()
		}
		p.End()
		if said != tt.want {
			t.Errorf("ended %v: %q, want %q", tt.ended, said, tt.want)
		}
		end()
	}
}
