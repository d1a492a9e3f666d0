package ladder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/dataplane/store"
	"levee/internal/lab/labtest"
)

func TestSmallLadder(t *testing.T) {
	labtest.NeedRoot(t)
	r, err := Run(t.Context(), Options{Rungs: []string{"xdp drop", "nft netdev ingress"},
		Options: flood.Options{
			Options: bench.Options{Rounds: bench.MinRounds, Window: 50 * time.Millisecond,
				Command: "levee bench ladder"},
			Warmup: 20 * time.Millisecond, Attempts: 1,
		}})
	if err != nil {
		t.Fatal(err)
	}
	// Figures depend on what else runs here; that packets balance does not.
	for _, g := range r.Rungs {
		if g.Missing != "" || len(g.Windows) < len(r.Traffic) {
			t.Errorf("%s: %d windows, missing %q", g.Name, len(g.Windows), g.Missing)
		}
		if g.MedianPPS == nil && len(g.Why) == 0 {
			t.Errorf("%s: neither a figure nor a reason", g.Name)
		}
		for _, w := range g.Windows {
			if why := strings.Join(w.Invalid, "; "); strings.Contains(why, "balance") ||
				strings.Contains(why, "pass") || strings.Contains(why, "hook") {
				t.Errorf("%s, %s: %s", g.Name, w.Traffic, why)
			}
			if w.Received == 0 || w.Dropped == 0 {
				t.Errorf("%s, %s: %d received, %d dropped", g.Name, w.Traffic, w.Received,
					w.Dropped)
			}
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"name":"xdp drop"`, `"median_pps":`, `"interval":`,
		`"windows":[{`, `"kernel":"`, `"command":"levee bench ladder"`} {
		if !strings.Contains(string(text), key) {
			t.Errorf("JSON without %s", key)
		}
	}
	var b strings.Builder
	if err := r.Text(&b); err != nil ||
		!strings.Contains(b.String(), "repeat: levee bench ladder") {
		t.Errorf("text %v:\n%s", err, b.String())
	}
}

func TestAnInterruptedLadderShowsWhatItHasAndLeavesNothing(t *testing.T) {
	labtest.NeedRoot(t)
	run := filepath.Join(t.TempDir(), "run")
	t.Setenv(store.RunEnv, run)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	progress := func(p bench.Progress) {
		if p.Step == 3 {
			time.AfterFunc(200*time.Millisecond, cancel) // in the midst of a flood
		}
	}
	r, err := Run(ctx, Options{
		Options: flood.Options{Options: bench.Options{Progress: progress, Window: time.Second},
			Attempts: 1},
		Rungs: []string{"levee", "recvmmsg"}, Families: []string{flood.IPv4},
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want that it was interrupted", err)
	}
	if r == nil || !r.Interrupted {
		t.Fatalf("report %+v, want an incomplete one", r)
	}
	for _, g := range r.Rungs {
		if len(g.Windows) == 0 {
			t.Errorf("%s: no window of the first round in the report", g.Name)
		}
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil ||
		!strings.Contains(text.String(), "INCOMPLETE: the run was interrupted") {
		t.Errorf("text %v:\n%s", err, text.String())
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(fmt.Sprintf("/run/netns/levee-%d-*", os.Getpid()))
	if err != nil || len(left) > 0 {
		t.Errorf("left namespaces %q, %v", left, err)
	}
	for _, what := range []string{"bpf", "state"} {
		if _, err := os.Stat(filepath.Join(run, what)); err == nil {
			t.Errorf("left a policy in %s", run)
		}
	}
}

func TestOptionsThatCannotBeMeasuredAreRefused(t *testing.T) {
	for _, o := range []Options{
		{Options: flood.Options{Options: bench.Options{Rounds: 5}}},
		{Options: flood.Options{Options: bench.Options{Window: time.Millisecond}}},
		{Options: flood.Options{Warmup: time.Hour}},
		{Rungs: []string{"ipfw"}},
		{Policy: []byte("drop everything"), PolicyName: "bad.levee"},
	} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}
