package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/agent/notify/way"
	"levee/internal/agent/notify/webhook"
	"levee/internal/agent/pubsub"
	"levee/internal/await"
)

// hook is a server that takes webhooks, and fails as often as it is told.
type hook struct {
	*httptest.Server
	mu   sync.Mutex
	fail []int // statuses of the first answers
	got  []Message
	bad  []string // signatures that are wrong
}

func newHook(t *testing.T, secret string, fail ...int) *hook {
	h := &hook{fail: fail}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		want, _ := webhook.Sign(secret, r.Header.Get("Webhook-Id"),
			r.Header.Get("Webhook-Timestamp"), body)
		h.mu.Lock()
		defer h.mu.Unlock()
		if got := r.Header.Get("Webhook-Signature"); got != want {
			h.bad = append(h.bad, got)
		}
		if len(h.fail) > 0 {
			if h.fail[0] == http.StatusFound {
				w.Header().Set("Location", h.URL)
			}
			w.WriteHeader(h.fail[0])
			h.fail = h.fail[1:]
			return
		}
		var m Message
		if err := json.Unmarshal(body, &m); err != nil {
			h.bad = append(h.bad, err.Error())
		}
		h.got = append(h.got, m)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) messages() []Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Message{}, h.got...)
}

// running is a notifier of targets whose attempts follow each other at once.
func running(t *testing.T, targets ...Target) (*Notifier, *pubsub.Hub) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify.json")
	for _, target := range targets {
		if err := Put(path, target); err != nil {
			t.Fatal(err)
		}
	}
	n := New(path, nil)
	n.backoff = []time.Duration{time.Millisecond, time.Millisecond}
	n.look(t.Context())
	hub := &pubsub.Hub{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() { n.Run(ctx, hub.Watch); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	await.True(t, "the notifier watches", func() bool { return hub.Watchers() > 0 })
	return n, hub
}

func TestAWebhookIsSignedAndTriedAgain(t *testing.T) {
	secret := webhook.NewSecret()
	h := newHook(t, secret, http.StatusBadGateway, http.StatusTooManyRequests)
	n, hub := running(t, Target{Name: "ops", Way: "webhook", Place: way.Place{
		To: h.URL + "/secret-path", Secret: secret},
		On: []pubsub.Kind{pubsub.Alarm, pubsub.Incident}, Limit: Limit{10, time.Hour}})
	hub.Publish(pubsub.Event{Kind: pubsub.Leased, Text: "nobody asked for this"})
	hub.Publish(pubsub.Event{Kind: pubsub.Incident, Text: "a flood", Incident: "7"})
	await.True(t, "the message", func() bool { return len(h.messages()) == 1 })
	m := h.messages()[0]
	if m.Kind != pubsub.Incident || m.Text != "a flood" || m.Event.Incident != "7" ||
		m.Machine == "" ||
		len(h.bad) > 0 {
		t.Errorf("%+v, %v", m, h.bad)
	}
	await.True(t, "the status", func() bool { return n.Status()[0].Sent == 1 })
	if s := n.Status()[0]; strings.Contains(fmt.Sprint(s), "secret-path") || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
}

func TestWhatCannotSucceedIsGivenUp(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusFound} {
		h := newHook(t, "", status)
		n, hub := running(t, Target{Name: "ops", Way: "webhook", Place: way.Place{To: h.URL},
			On: []pubsub.Kind{pubsub.Alarm}, Limit: Limit{10, time.Hour}})
		hub.Publish(pubsub.Event{Kind: pubsub.Alarm})
		await.True(t, "the failure", func() bool { return n.Status()[0].Failed == 1 })
		if len(h.messages()) != 0 || n.Status()[0].Error == "" {
			t.Errorf("%d: %+v, %+v", status, n.Status(), h.messages())
		}
	}
}

// TestATestGoesWhereTheFileSaysNow: it went to the target as it was read last, for five seconds
// after that was changed, and the command said that it had been told.
func TestATestGoesWhereTheFileSaysNow(t *testing.T) {
	var to string
	all := Ways
	Ways = append(slices.Clone(all), &way.Way{Name: "memory",
		Check: func(*way.Place) error { return nil },
		Send:  func(_ context.Context, p *way.Place, _ *Message) error { to = p.To; return nil }})
	t.Cleanup(func() { Ways = all })
	target := Target{Name: "ops", Way: "memory", Place: way.Place{To: "before"},
		On: []pubsub.Kind{pubsub.Alarm}, Limit: Limit{2, time.Hour}}
	n, _ := running(t, target)
	for _, want := range []string{"before", "now"} {
		target.To = want
		if err := Put(n.path, target); err != nil {
			t.Fatal(err)
		}
		if err := n.Test(t.Context(), "ops"); err != nil || to != want {
			t.Errorf("%v: told %q, want %q", err, to, want)
		}
	}
	if err := n.Test(t.Context(), "other"); !errors.Is(err, ErrNoTarget) {
		t.Errorf("%v", err)
	}
}

// TestTestsEnd: whoever had a token of the role operator had a target told, or a command run, as
// often and as many at once as he asked, and what was to be told was refused as too much.
func TestTestsEnd(t *testing.T) {
	n := New(filepath.Join(t.TempDir(), "notify.json"), nil)
	now := time.Now()
	sent := 0
	for i := range 20 {
		if n.begins("ops", now.Add(time.Duration(i)*time.Second)) {
			sent++
		}
	}
	if sent != mostTests {
		t.Errorf("%d of 20 tests within 20 s were sent", sent)
	}
	if !n.begins("other", now) || !n.begins("ops", now.Add(testsWithin)) {
		t.Error("another target, or one that was tested a minute ago, is not tested")
	}
}

func TestALimitHoldsBackAndTellsASummary(t *testing.T) {
	var got []Message
	all := Ways
	defer func() { Ways = all }()
	Ways = append(slices.Clone(all), &way.Way{Name: "memory",
		Check: func(*way.Place) error { return nil },
		Send: func(_ context.Context, _ *way.Place, m *Message) error {
			got = append(got, *m)
			return nil
		}})
	synctest.Test(t, func(t *testing.T) {
		n, hub := running(t, Target{Name: "ops", Way: "memory", Place: way.Place{To: "here"},
			On: []pubsub.Kind{pubsub.Alarm}, Limit: Limit{2, time.Hour}})
		for i := range 40 {
			hub.Publish(pubsub.Event{Kind: pubsub.Alarm, Text: fmt.Sprint("alarm ", i)})
		}
		synctest.Wait()
		if len(got) != 2 || got[0].Text != "alarm 0" || got[1].Text != "alarm 1" {
			t.Errorf("the first: %+v", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := got[len(got)-1]; len(got) != 3 || s.Kind != way.Summary ||
			s.Held[pubsub.Alarm] != 38 || len(s.First) != firsts || s.First[0] != "alarm 2" {
			t.Errorf("the summary: %+v", got)
		}
		if s := n.Status()[0]; s.Held != 38 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestATargetThatHangsHoldsUpNobody(t *testing.T) {
	wait := make(chan bool)
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		<-wait
	}))
	defer slow.Close()
	defer close(wait)
	h := newHook(t, "")
	on, limit := []pubsub.Kind{pubsub.Alarm}, Limit{1000, time.Second}
	n, hub := running(t, Target{Name: "slow", Way: "webhook", Place: way.Place{To: slow.URL},
		On: on, Limit: limit},
		Target{Name: "quick", Way: "webhook", Place: way.Place{To: h.URL}, On: on,
			Limit: limit})
	for i := range 200 {
		hub.Publish(pubsub.Event{Kind: pubsub.Alarm, Text: fmt.Sprint(i)})
		await.True(t, "the quick one", func() bool { return len(h.messages()) == i+1 })
	}
	if s := n.Status()[0]; s.Lost < 200-queued-1 || s.Sent != 0 {
		t.Errorf("%+v", s)
	}
}

func TestACommandGetsJSONAndNoShell(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "page it; touch here")
	text := "#!/bin/sh\ncat > \"$(dirname \"$0\")/got\"\nenv > \"$(dirname \"$0\")/env\"\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LEVEE_TEST_SECRET", "x")
	n, hub := running(t, Target{Name: "pager", Way: "command", Place: way.Place{To: script},
		On:    []pubsub.Kind{pubsub.Alarm},
		Limit: Limit{10, time.Hour}})
	hub.Publish(pubsub.Event{Kind: pubsub.Alarm, Text: "$(touch there) `x`"})
	await.True(t, "the command", func() bool { return n.Status()[0].Sent == 1 })
	got, err := os.ReadFile(filepath.Join(dir, "got"))
	var m Message
	if err != nil || json.Unmarshal(got, &m) != nil || m.Text != "$(touch there) `x`" {
		t.Errorf("%s, %v", got, err)
	}
	if env, _ := os.ReadFile(filepath.Join(dir, "env")); strings.Contains(string(env), "SECRET") {
		t.Errorf("%s", env)
	}
	if err := os.Chmod(script, 0o777); err != nil {
		t.Fatal(err)
	}
	hub.Publish(pubsub.Event{Kind: pubsub.Alarm})
	await.True(t, "the refusal", func() bool { return n.Status()[0].Failed == 1 })
	if s := n.Status()[0]; !strings.Contains(s.Error, "chmod go-w") {
		t.Errorf("%+v", s)
	}
}

func TestTargetsThatAreWrong(t *testing.T) {
	good := Target{Name: "a", Way: "webhook", Place: way.Place{To: "https://hooks.example/x"},
		On: []pubsub.Kind{pubsub.Alarm}, Limit: Limit{1, time.Hour}}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(*Target){
		"no name":          func(t *Target) { t.Name = "A b" },
		"which events":     func(t *Target) { t.On = nil },
		"use https":        func(t *Target) { t.To = "http://hooks.example/x" },
		"is no URL":        func(t *Target) { t.To = "file:///etc/passwd" },
		"a password in it": func(t *Target) { t.To = "https://u:p@hooks.example/" },
		"no address of":    func(t *Target) { t.Way, t.To = "mail", "a@b\r\nBcc: c@d" },
		"no HOST:PORT":     func(t *Target) { t.Way, t.To, t.Server = "mail", "a@b.example", "x" },
		"not a whole path": func(t *Target) { t.Way, t.To = "command", "page" },
		"no program":       func(t *Target) { t.Way, t.To = "command", "/etc/passwd" },
		"limit is missing": func(t *Target) { t.Limit = Limit{} },
	} {
		bad := good
		change(&bad)
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q, want %q", err, says)
		}
	}
	for _, s := range []string{"", "10", "0/h", "10/y", "-1/h", "1001/h", "x/h"} {
		if l, err := ParseLimit(s); err == nil {
			t.Errorf("%s is %v", s, l)
		}
	}
}

// TestEachWayIsWholeAndDocumented: a row has its words, a test in its folder, and the reference
// of the agent tells of it and of its options.
func TestEachWayIsWholeAndDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	folders, flags := 0, map[string]bool{}
	all, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if !d.IsDir() || d.Name() == "way" {
			continue
		}
		folders++
		if tests, _ := filepath.Glob(filepath.Join(d.Name(), "*_test.go")); len(tests) == 0 {
			t.Errorf("%s has no test", d.Name())
		}
	}
	if folders != len(Ways) {
		t.Errorf("there are %d folders, and %d ways are registered", folders, len(Ways))
	}
	for _, w := range Ways {
		if w.Usage == "" || !strings.HasSuffix(w.Says, ".") || w.Check == nil || w.Send == nil {
			t.Errorf("%s lacks words or functions", w.Name)
		}
		names := []string{w.Name}
		for _, o := range w.Options {
			names = append(names, o.Flag)
		}
		for _, name := range names {
			if flags[name] {
				t.Errorf("two ways have --%s", name)
			}
			flags[name] = true
			if !strings.Contains(string(page), "`--"+name+"`") {
				t.Errorf("docs/reference/agent.md does not tell of --%s", name)
			}
		}
	}
}
