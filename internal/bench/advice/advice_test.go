package advice

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/bench/flood"
	"levee/internal/host/doctor"
	"levee/internal/lab/contender"
	"levee/internal/lab/labtest"
	"levee/internal/usage"
)

// The names are those that doctor asks for.
func TestAdvicesAreFindingsOfDoctor(t *testing.T) {
	if !slices.Equal(Names(), doctor.Measurable) {
		t.Errorf("%v, doctor has %v", Names(), doctor.Measurable)
	}
}

// windows are rounds with these ns.
func windows(ns ...float64) (out []flood.Window) {
	for i, v := range ns {
		out = append(out, flood.Window{Round: i, NsPerPacket: v})
	}
	return out
}

func figures() *Report {
	with, without := flood.NewRung(behindRules(7)), flood.NewRung(contender.Recvmmsg())
	with.Windows = windows(110, 120, 130, 140, 150, 160, 999)
	without.Windows = windows(100, 100, 100, 100, 100, 100)
	with.Windows[6].Invalid = []string{"a packet socket is open"}
	lost := flood.NewRung(besideSocket())
	lost.Missing = "opening a packet socket: not permitted"
	r := &Report{Head: bench.Head{Started: time.Unix(1_700_000_000, 0).UTC(), Rounds: 7,
		Caveats: caveats}, Rules: 7, Advices: []*Advice{
		{Name: "netfilter", What: "rules", with: with, without: without},
		{Name: "packet_sockets", What: "sockets", with: lost, without: without},
	}}
	for _, a := range r.Advices {
		a.summarise()
	}
	return r
}

func TestWhatIsGainedIsTheDifferenceOfRounds(t *testing.T) {
	r := figures()
	a := r.Advices[0]
	if a.Gained.Median != 35 || a.Gained.Interval != [2]float64{10, 60} || a.With.Median != 135 ||
		a.Without.Median != 100 {
		t.Errorf("%+v: %+v", a, a.Gained)
	}
	if got := r.Lacking(); !slices.Equal(got, []string{"packet_sockets"}) {
		t.Errorf("lacking: %v", got)
	}
	benchtest.Output(t, r, "35.0 ns", "10.0 to 60.0", "7 of nftables", "not permitted")
}

// Doctor reads the report.
func TestDoctorTakesWhatWasMeasured(t *testing.T) {
	r := figures()
	var text bytes.Buffer
	if err := r.Document().JSON(&text, r.Raw()); err != nil {
		t.Fatal(err)
	}
	all := []doctor.Finding{{Name: "netfilter", About: "kernel", State: doctor.Note},
		{Name: "packet_sockets", About: "kernel", State: doctor.Costs},
		{Name: "ring", About: "device", State: doctor.Costs},
		{Name: "mtu", About: "device", State: doctor.OK}}
	if got := doctor.ToMeasure(all, false); !slices.Equal(got,
		[]string{"netfilter", "packet_sockets"}) {
		t.Errorf("to measure: %v", got)
	}
	if err := doctor.TakeMeasured(all, text.Bytes(), "eth0"); err != nil {
		t.Fatal(err)
	}
	if m := all[0].Measured; m == nil || m.Words() != "measured in a lab: 135 ns with it, 100 "+
		"without, 35 gained (10 to 60 at 95 %): rules" {
		t.Errorf("%+v", all[0].Measured)
	}
	for i, want := range []string{"", "not permitted", "it would change eth0", ""} {
		if got := all[i].Untried; !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", all[i].Name, got, want)
		}
	}
	none := doctor.Measured{Interval: [2]float64{-3, 5}}
	if w := none.Words(); !strings.Contains(w, "no gain is shown") {
		t.Errorf("%q", w)
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"unknown": {Only: []string{"governor"}},
		"rules":   {Rules: mostRules + 1},
		"rounds":  {Options: flood.Options{Options: bench.Options{Rounds: 5}}},
	} {
		if _, err := Run(t.Context(), o); !errors.Is(err, usage.ErrWrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A packet socket of an advice is none that makes its windows invalid.
func TestAnAdviceIsTried(t *testing.T) {
	labtest.NeedRoot(t)
	o := Options{Only: []string{"packet_sockets"}}
	o.Rounds, o.Attempts, o.Window, o.Warmup = 6, 1, flood.MinWindow, 20*time.Millisecond
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	a := r.Advices[0]
	if strings.Contains(strings.Join(a.Why, " "), "packet sockets are open") ||
		a.with.Missing != "" || a.without.Missing != "" || len(a.with.Windows) == 0 {
		t.Errorf("%+v, %q, %q", a.Why, a.with.Missing, a.without.Missing)
	}
	t.Logf("%+v", a.Gained)
}
