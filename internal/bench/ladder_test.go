package bench

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

	"golang.org/x/sys/unix"

	"levee/internal/dataplane"
	"levee/internal/lab"
	"levee/internal/lab/contender"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
}

// newTestBench is a lab to take single windows in.
func newTestBench(t *testing.T) *bench {
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
	o := &Options{Window: 50 * time.Millisecond, Warmup: 20 * time.Millisecond}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	b, err := newBench(l, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.listen(floodPort, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestSmallLadder(t *testing.T) {
	needRoot(t)
	r, err := Ladder(t.Context(), Options{
		Rungs: []string{"xdp drop", "nft netdev ingress"}, Rounds: minRounds, Window: 50 * time.Millisecond, Warmup: 20 * time.Millisecond, Attempts: 1, Command: "levee bench ladder",
	})
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
			if why := strings.Join(w.Invalid, "; "); strings.Contains(why, "balance") || strings.Contains(why, "pass") || strings.Contains(why, "hook") {
				t.Errorf("%s, %s: %s", g.Name, w.Traffic, why)
			}
			if w.Received == 0 || w.Dropped == 0 {
				t.Errorf("%s, %s: %d received, %d dropped", g.Name, w.Traffic, w.Received, w.Dropped)
			}
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"name":"xdp drop"`, `"median_pps":`, `"interval":`, `"windows":[{`, `"kernel":"`, `"command":"levee bench ladder"`} {
		if !strings.Contains(string(text), key) {
			t.Errorf("JSON without %s", key)
		}
	}
	var b strings.Builder
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "repeat: levee bench ladder") {
		t.Errorf("text %v:\n%s", err, b.String())
	}
}

func TestAPacketSocketIsNoticedWhileMeasuring(t *testing.T) {
	b := newTestBench(t)
	var fd int
	err := b.server.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	wantInvalid(t, b, contender.XDPDrop(), "1 packet sockets are open")
}

func TestARungThatDropsNothingGetsNoFigure(t *testing.T) {
	wantInvalid(t, newTestBench(t), contender.Nothing(), "the rung let")
}

// inWrongPlace says that it is an XDP program, and is none.
type inWrongPlace struct{ contender.Defence }

func (inWrongPlace) Hook() contender.Hook { return contender.XDP }

func TestAWrongHookIsNoticed(t *testing.T) {
	wantInvalid(t, newTestBench(t), inWrongPlace{contender.NFT()}, "wrong hook mode: XDP on the receiver is none, not native")
}

// miscounter tells half of what it dropped.
type miscounter struct{ contender.Defence }

func (m miscounter) Dropped(ctx context.Context) (uint64, error) {
	n, err := m.Defence.Dropped(ctx)
	return n / 2, err
}

func TestARungThatMiscountsGetsNoFigure(t *testing.T) {
	wantInvalid(t, newTestBench(t), miscounter{contender.XDPDrop()}, "dropped by the rung's own counter")
}

func TestAnInterruptedLadderShowsWhatItHasAndLeavesNothing(t *testing.T) {
	needRoot(t)
	run := filepath.Join(t.TempDir(), "run")
	t.Setenv(dataplane.RunEnv, run)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	visits := 0
	r, err := Ladder(ctx, Options{
		Progress: func(string, int, int) {
			if visits++; visits == 3 {
				time.AfterFunc(200*time.Millisecond, cancel) // in the midst of a flood
			}
		},
		Rungs: []string{"levee", "recvmmsg"}, Families: []string{IPv4}, Window: time.Second, Attempts: 1,
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want that it was interrupted", err)
	}
	if r == nil || !r.Incomplete {
		t.Fatalf("report %+v, want an incomplete one", r)
	}
	for _, g := range r.Rungs {
		if len(g.Windows) == 0 {
			t.Errorf("%s: no window of the first round in the report", g.Name)
		}
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "INCOMPLETE: the run was interrupted") {
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
		{Rounds: 5},
		{Window: time.Millisecond},
		{Warmup: time.Hour},
		{Rungs: []string{"ipfw"}},
		{Policy: []byte("drop everything"), PolicyName: "bad.levee"},
	} {
		if _, err := Ladder(t.Context(), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestARungThatLostARoundGetsAnother(t *testing.T) {
	b := newTestBench(t)
	b.Rounds, b.Budget, b.Attempts = minRounds, 20*time.Second, 1
	b.mix = b.mix[:1]
	r := newReport(b.Options, b)
	r.Families = []string{IPv4}
	r.Traffic = r.Traffic[:1]
	g := &Rung{Name: "tc ingress"}
	r.Rungs = []*Rung{g}
	for round := range minRounds - 1 {
		w := sound()
		w.Family, w.Traffic, w.Round = IPv4, "udp", round
		w.judge()
		g.Windows = append(g.Windows, w)
	}
	if err := b.makeUp(t.Context(), []contender.Defence{contender.TCDrop()}, r, time.Now()); err != nil {
		t.Fatal(err)
	}
	if last := g.Windows[len(g.Windows)-1]; len(g.Windows) < minRounds || last.Round < minRounds || last.Received == 0 {
		t.Errorf("%d windows, the last of round %d with %d packets", len(g.Windows), last.Round, last.Received)
	}
}
