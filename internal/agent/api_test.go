package agent

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/api"
	"levee/internal/agent/api/apitest"
)

var (
	fuzzFor  = flag.Duration("api.fuzz", 2*time.Second, "how long the API is sent requests")
	fuzzSeed = flag.Uint64("api.seed", 0, "of the requests; 0: another each time")
)

// serving is an agent that serves its API at a loopback port, with a token for each role.
func serving(t *testing.T, k *fake) (a *Agent, url string, tokens map[string]string) {
	t.Helper()
	dir := t.TempDir()
	a = start(t, dir, k, one+oneFeed)
	a.gone = make(chan struct{})
	l, err := api.Listen("127.0.0.1:0", "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	a.opts.Log = func(string, ...any) {}
	a.opts.Listen = []Listen{{Name: "port",
		Open: func() (*api.Listener, func(), error) { return l, nil, nil }}}
	a.opts.Tokens = api.OpenTokens(filepath.Join(dir, "tokens.json"))
	a.opts.Audit = api.OpenAudit(filepath.Join(dir, "audit.jsonl"), func(error) {})
	tokens = map[string]string{}
	for r := api.Viewer; r <= api.Admin; r++ {
		if tokens[r.String()], err = a.opts.Tokens.Add(r.String(), r, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := a.serve(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // the loop
		defer close(done)
		for {
			select {
			case op := <-a.ops:
				op()
			case <-ctx.Done():
				close(a.gone)
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done; a.reading.Wait(); a.opts.Audit.Close() })
	return a, strings.TrimSuffix(l.URL(), "/"), tokens
}

// TestTheAPIDoesWhatItsDocumentSays sends it right and wrong requests as each role: none makes it
// fail, answers are as the document says, and a viewer changes nothing.
func TestTheAPIDoesWhatItsDocumentSays(t *testing.T) {
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}, max: 1000}
	a, url, tokens := serving(t, k)
	l := a.lists[0]
	a.fed(t.Context(), l, result("1", block(0, 20)), nil)
	a.fed(t.Context(), l, result("2", block(0, 2), block(50, 30)), nil) // which waits
	seed := *fuzzSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	rep, err := apitest.Fuzz(&apitest.Target{URL: url, Tokens: tokens,
		Calls: []apitest.Call{
			{Method: "POST", Path: "/api/v1/lists/accept", Role: "operator",
				Target: "/api/v1/lists/accept", Body: `{"source":"drop"}`},
			{Method: "POST", Path: "/api/v1/renew", Role: "viewer", Target: "/api/v1/renew",
				Session: true}},
		Values: map[string][]string{"set": {"s"}, "origin": {"api:operator", "ids"},
			"entries": {"203.0.113.9", "198.51.100.0/24", "2001:db8::1", "192.0.2.1"},
			"entry":   {"203.0.113.9", "198.51.100.0/24"}, "lease": {"10m", "forever", "1h"},
			"token": {tokens["viewer"]}},
		State: func() (string, error) {
			var all []Listed
			err := a.do(context.Background(), func() (err error) {
				all, err = List(a.ledger, &Filter{})
				return err
			})
			for i := range all {
				all[i].LeaseSeconds = 0 // passes by itself
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			list, _ := a.opts.Tokens.List()
			return fmt.Sprint(all, k.sets, list), err
		}}, seed, *fuzzFor)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	t.Logf("seed %d: %d requests, by status %v", seed, rep.Requests, rep.Statuses)
	t.Logf("answered nothing but errors: %v", rep.Unheld)
	for _, fault := range rep.Faults {
		t.Errorf("seed %d: %s", seed, fault)
	}
	if rep.Statuses[200] == 0 || rep.Statuses[422] == 0 || rep.Statuses[403] == 0 {
		t.Errorf("answers are missing: %v", rep.Statuses)
	}
}
