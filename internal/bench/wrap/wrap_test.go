package wrap

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/bench/load"
	"levee/internal/host/cgroup"
	"levee/internal/lab/labtest"
	"levee/internal/usage"
)

// TestMain lets the test's own binary be the service.
func TestMain(m *testing.M) { labtest.Main(m, Sink) }

// TestAServiceWithAPolicyIsMeasured: every packet that a service takes is judged, of the size that
// was asked for, at its cgroup and at its sockets; and nothing is left.
func TestAServiceWithAPolicyIsMeasured(t *testing.T) {
	labtest.NeedRoot(t)
	root, err := cgroup.Root()
	if err != nil {
		t.Skip(err)
	}
	left := filepath.Join(root, groupPrefix+"0-0") // of a run that was killed
	if err := os.Mkdir(left, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const mtu = 1500
	r, err := Run(t.Context(), Options{Options: bench.Options{Quick: true, Seed: 1,
		Window: 30 * time.Millisecond}, Self: []string{self, "role"}, Rules: []int{22},
		MTUs: []int{mtu}})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Cases[0].Results {
		switch { // on a busy machine nothing may come in a window of 30 ms
		case slices.Max(x.Rounds) == 0:
			t.Errorf("%s: the service has taken nothing", x.Way)
		case x.Way == None:
		case x.PacketBytes > mtu || x.PacketBytes < mtu/2:
			t.Errorf("%s: packets of %.0f bytes at an MTU of %d", x.Way, x.PacketBytes, mtu)
		}
	}
	text := benchtest.Output(t, r, "cgroup", "sockets", "of none")
	t.Log(text)
	if all, _ := filepath.Glob(filepath.Join(root, groupPrefix+"*")); len(all) > 0 {
		t.Errorf("cgroups are left: %v", all)
	}
}

// TestRulesOfAPolicyPassTheConnection: at each size the last rule alone meets it.
func TestRulesOfAPolicyPassTheConnection(t *testing.T) {
	for _, n := range []int{1, 22, 100, 10_000} {
		text, err := textOf(n, 1, firstPort)
		if err != nil {
			t.Fatal(err)
		}
		p, err := load.Parse(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if p.Count() != n {
			t.Errorf("%d rules, want %d", p.Count(), n)
		}
		for _, r := range p.NotOfService(true) {
			t.Error(r)
		}
	}
}

// TestAServiceThatTookLessIsTold: the share is of the same round, and a policy that judged nothing
// has none.
func TestAServiceThatTookLessIsTold(t *testing.T) {
	none, with, idle := &Result{Way: None}, &Result{Way: Unit, Rules: 22},
		&Result{Way: Sockets, Rules: 22}
	for _, bits := range []float64{1e9, 2e9, 3e9, 4e9, 5e9, 6e9} {
		none.add(bits, 0, 0, 0)
		with.add(bits*3/4, 10, 1000, 10)
		idle.add(bits, 0, 0, 0)
	}
	r := &Report{Cases: []*Case{{MTU: 1280, Results: []*Result{none, with, idle}}}}
	for _, x := range r.Cases[0].Results {
		x.finish(none)
	}
	if with.Share == nil || with.Share.Median != 0.75 || with.PacketBytes != 100 {
		t.Errorf("%+v", with)
	}
	less, untold := r.Below()
	if want := []string{"MTU 1280, cgroup, 22 rules"}; !slices.Equal(less, want) || untold != nil {
		t.Errorf("below: %q, want %q; untold: %q", less, want, untold)
	}
	if lacks := r.Lacking(); len(lacks) != 1 || !strings.Contains(idle.Why, "no packet") {
		t.Errorf("lacking %q: %q", lacks, idle.Why)
	}
	benchtest.Output(t, r, "less than 80 % of none", "75.0 %")
}

// TestAShareThatNobodyKnowsWasSaidToBeLess: the median alone was looked at, of whatever interval.
func TestAShareThatNobodyKnowsWasSaidToBeLess(t *testing.T) {
	r := &Report{}
	for i, share := range []bench.Figure{{Median: 0.55, Interval: [2]float64{0.3, 1.4}},
		{Median: 0.9, Interval: [2]float64{0.7, 1.1}}, {Median: 0.9, Interval: [2]float64{0.8, 1}},
		{Median: 0.7, Interval: [2]float64{0.6, 0.79}}} {
		r.Cases = append(r.Cases, &Case{MTU: i, Results: []*Result{{Way: Unit, Share: &share}}})
	}
	less, untold := r.Below()
	if !slices.Equal(less, []string{"MTU 3, cgroup, 0 rules"}) ||
		!slices.Equal(untold, []string{"MTU 0, cgroup, 0 rules", "MTU 1, cgroup, 0 rules"}) {
		t.Errorf("less %q, untold %q", less, untold)
	}
}

// TestARoundThatEndedBeforeTheServiceWithoutAPolicyHasNoShare: which comes last in every other one.
func TestARoundThatEndedBeforeTheServiceWithoutAPolicyHasNoShare(t *testing.T) {
	none, with := &Result{Way: None}, &Result{Way: Unit, Rules: 22}
	none.add(1e9, 0, 0, 0)
	with.add(1e9, 10, 1000, 10)
	with.add(1e9, 10, 1000, 10)
	for _, x := range []*Result{none, with} {
		x.finish(none)
	}
	if len(with.Shares) != 1 || len(with.Rounds) != 2 {
		t.Errorf("%+v", with)
	}
}

func TestWhatCannotBeMeasuredIsSaidFirst(t *testing.T) {
	for _, o := range []Options{{MTUs: []int{1279}}, {MTUs: []int{65537}}, {Rules: []int{0}},
		{Ways: []string{"tc"}}} {
		if _, err := Run(t.Context(), o); !errors.Is(err, usage.ErrWrong) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
