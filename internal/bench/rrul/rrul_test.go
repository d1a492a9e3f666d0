package rrul

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/bench/flood"
	"levee/internal/lab"
	"levee/internal/lab/echo"
	"levee/internal/lab/labtest"
	"levee/internal/lab/peer"
	"levee/internal/report"
	"levee/internal/usage"
)

// TestMain lets the test's own binary be either end, or a peer.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "peer" {
		self, err := os.Executable()
		if err == nil {
			err = peer.Serve(context.Background(), peer.Serving{Version: "test",
				Roles: map[string][]string{RoleName: {self, "role"}}}, os.Stdin, os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	labtest.Main(m, Role)
}

// TestLoadGoesBothWaysBesideProbes: with a queue that bounds the rate both directions come near it,
// the kernel tells of the queue by its name and rate, something waits in it, and probes wait with
// it.
func TestLoadGoesBothWaysBesideProbes(t *testing.T) {
	labtest.NeedRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Options: bench.Options{Rounds: 1, Seed: 1,
		Command: "levee bench service --rrul"}, Self: []string{self, "role"},
		Defences: []string{"none"}, Queues: []string{"tbf"}, Bandwidth: 20e6, Flows: 2,
		Before: time.Second, During: 2 * time.Second, After: time.Second}
	run := func() (*Report, error) { return Run(t.Context(), o) }
	measured(t, 5e6, 40e6, run, func(r *Report, c *Case) {
		text := benchtest.Output(t, r, "none, tbf", "tbf at 20 M bit/s")
		for _, way := range ways {
			if n := len(c.each(way)); n != 2 {
				t.Errorf("%d flows %s\n%s", n, way, text)
			}
		}
	}, func(c *Case) (wrong []string) {
		for _, kind := range kinds {
			calm, _ := c.all(kind, quiet)
			busy, _ := c.all(kind, loaded)
			if len(calm) == 0 || len(busy) == 0 || percentile(busy, 50) < 2*percentile(calm, 50) {
				wrong = append(wrong, fmt.Sprintf("%s: %v ns quiet, %v loaded", kind,
					percentile(calm, 50), percentile(busy, 50)))
			}
		}
		return wrong
	})
}

// measured takes a measurement at 20 M bit/s, whose throughput has to be between two bounds, and
// again where a busy machine has spoiled the figures. What is so on any machine is checked each
// time.
func measured(t *testing.T, least, most float64, run func() (*Report, error),
	always func(*Report, *Case), figures func(*Case) (wrong []string)) {
	t.Helper()
	const tries = 20
	for try := 1; ; try++ {
		r, err := run()
		if err != nil {
			t.Fatal(err)
		}
		c := r.Cases[0]
		if c.Missing != "" {
			t.Skip(c.Missing)
		}
		for _, run := range c.Runs {
			run.Invalid = nil
		}
		always(r, c)
		wrong := figures(c)
		for _, way := range ways {
			// a queue of 1.5 MB holds what is in flight: what is acknowledged may come in steps
			if p := c.throughput(way); p.Y == nil {
				wrong = append(wrong, way+": no throughput")
			} else if *p.Y < least || *p.Y > most {
				wrong = append(wrong, fmt.Sprintf("%s: %.3g bits a second of 20 M", way, *p.Y))
			}
			if q := c.queue(way); q == nil || q.rate != 20e6 || q.most == 0 {
				wrong = append(wrong, fmt.Sprintf("the queue %s is %+v", way, q))
			}
		}
		if len(wrong) == 0 {
			return
		}
		if try == tries {
			t.Fatalf("%d measurements; the last: %s", tries, strings.Join(wrong, "; "))
		}
	}
}

// TestClientsComeFromAnotherMachine: between two namespaces, each of which stands for a machine
// with a card, and a command in the place of ssh.
//
//	here, eth0 --------- eth0, there: the copied binary
func TestClientsComeFromAnotherMachine(t *testing.T) {
	here, there := labtest.Machines(t)
	shell := filepath.Join(t.TempDir(), "shell")
	if err := os.WriteFile(shell, []byte("#!/bin/sh\nexec ip netns exec $1 sh -c \"$2\"\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Options: bench.Options{Rounds: 1, Seed: 1,
		Command: "levee bench service --rrul --peer there"}, Self: []string{self, "role"},
		Defences: []string{"none"}, Queues: []string{"tbf"}, Bandwidth: 20e6, Flows: 2,
		Before: time.Second, During: time.Second, After: time.Second, Wire: &flood.Wire{
			Dev: "eth0", Own: true, Config: peer.Config{Host: there.Namespace,
				Shell: []string{shell}, Program: self, Version: "test", Device: "eth0"}}}
	measured(t, 2e6, 60e6, func() (r *Report, err error) {
		err = here.Do(func() (err error) { r, err = Run(t.Context(), o); return err })
		return r, err
	}, func(r *Report, c *Case) {
		benchtest.Output(t, r, "receiver: eth0 (veth)", "generator: eth0 (veth)",
			"clocks: the peer's is ")
		for _, run := range c.Runs {
			if run.ClockError <= 0 || run.Looks[0].At < run.From-run.ClockError {
				t.Errorf("clocks within %v s, the first look at %v s of a load from %v s on",
					run.ClockError, run.Looks[0].At, run.From)
			}
		}
	}, func(c *Case) (wrong []string) {
		for _, kind := range kinds {
			if calm, _ := c.all(kind, quiet); len(calm) == 0 || percentile(calm, 50) < 1000 {
				wrong = append(wrong, fmt.Sprintf("%s: %d round trips, the median takes %v ns",
					kind, len(calm), percentile(calm, 50)))
			}
		}
		return wrong
	})
	for _, h := range []*lab.Host{here, there} {
		if err := h.Do(func() error { _, err := lab.Free("eth0"); return err }); err != nil {
			t.Errorf("%s: %v", h.Name, err)
		}
	}
	if left, _ := filepath.Glob(os.Getenv("TMPDIR") + "/*"); len(left) > 0 {
		t.Errorf("the peer has left %s", left)
	}
}

// TestConnectionsAreThereBeforeAnythingIsSent: what the first ones send would be load while the run
// is still called quiet.
func TestConnectionsAreThereBeforeAnythingIsSent(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := netip.MustParseAddrPort(l.Addr().String())
	s := new(flows)
	defer s.close()
	if err := s.connect(t.Context(), at, 3, []netip.Addr{at.Addr()}); err != nil {
		t.Fatal(err)
	}
	sending := 0
	for i, f := range s.list() {
		info, err := f.info()
		if err != nil || info.Bytes_sent != 0 {
			t.Errorf("connection %d has sent %d bytes: %v", i, info.Bytes_sent, err)
		}
		if f.sends {
			sending++
		}
	}
	if n := len(s.list()); n != 6 || sending != 3 {
		t.Errorf("%d connections, %d of which are to send", n, sending)
	}
}

// made is a report of two cases, whose figures are known.
func made() *Report {
	r := &Report{Head: bench.Head{Rounds: 6, Command: "levee bench service --rrul"},
		FlowsEachWay: 2, Probes: 10, Before: 2, During: 6, After: 1, Bandwidth: 1e8}
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, queue := range []string{NoQueue, "cake"} {
		c := &Case{Defence: "levee-state", Queue: queue}
		for round := range 6 {
			run := &Once{Round: round, From: 2, To: 8, Step: 0.1,
				Resent: map[string]uint64{Up: 3}}
			for i := range 61 {
				n := uint64(i) * 125_000 // 10 Mbit/s
				run.Looks = append(run.Looks, Look{At: 2 + 0.1*float64(i), Down: []uint64{n, 3 * n},
					Up: []uint64{n, n}})
			}
			for _, kind := range kinds {
				p := &Probes{Kind: kind}
				for i := range 90 {
					p.Due = append(p.Due, float64(i)/10+rnd.Float64()/100)
					took := 0.001
					if p.Due[i] >= 2 && p.Due[i] < 8 {
						took = 0.050
					}
					if kind == ICMP && i == 50 {
						took = 0 // lost
					}
					p.Took = append(p.Took, took)
				}
				run.Probes = append(run.Probes, p)
			}
			for _, way := range ways {
				q := &Queue{Way: way, Seen: []string{"htb", "cake"}, Rate: 1e8, Sent: 100,
					Dropped: 5}
				for i := range 61 {
					q.Bytes, q.Packets = append(q.Bytes, uint32(1500*i)), append(q.Packets,
						uint32(i))
				}
				run.Queues = append(run.Queues, q)
			}
			c.Runs = append(c.Runs, run)
		}
		r.Cases = append(r.Cases, c)
	}
	return r
}

func TestFiguresOfKnownRuns(t *testing.T) {
	r := made()
	text := benchtest.Output(t, r, "levee-state, cake", "htb / cake at 100 M bit/s", "30 of 630")
	c := r.Cases[0]
	for way, want := range map[string]float64{Down: 40e6, Up: 20e6} {
		if p := c.throughput(way); math.Abs(*p.Y-want) > 1 || p.Low == nil {
			t.Errorf("%s: %v, not %v", way, *p.Y, want)
		}
	}
	if got := slices.Max(c.each(Down)); math.Abs(got-30e6) > 1 {
		t.Errorf("the largest flow has %v", got)
	}
	for phase, want := range map[string]float64{quiet: 1e6, loaded: 50e6} {
		if p := c.roundTrip(UDP, phase, 50); *p.Y != want {
			t.Errorf("%s: %v ns, not %v", phase, *p.Y, want)
		}
	}
	// one of some 55 is more than a hundredth
	if p := c.roundTrip(ICMP, loaded, 99); p.Y != nil {
		t.Errorf("p99 with a lost probe is %v", *p.Y)
	}
	d := r.Document()
	for _, id := range []string{"throughput", "flows", "udp-box", "icmp-cdf", "queues-time"} {
		at := slices.IndexFunc(d.Charts, func(x *report.Chart) bool { return x.ID == id })
		if at < 0 || !d.Charts[at].Drawable() {
			t.Errorf("no chart %s in\n%s", id, text)
		}
	}
	cdf := d.Charts[slices.IndexFunc(d.Charts, func(x *report.Chart) bool {
		return x.ID == "icmp-cdf"
	})]
	last := cdf.Series[2].Points[len(cdf.Series[2].Points)-1]
	if !strings.HasSuffix(cdf.Series[2].Name, loaded) || *last.Y >= 100 || *last.Y < 98 {
		t.Errorf("the distribution of %s ends at %v", cdf.Series[2].Name, *last.Y)
	}
}

// TestAPhaseWithoutProbesSaysSo: few a second leave short phases without one, which is no loss.
func TestAPhaseWithoutProbesSaysSo(t *testing.T) {
	r := made()
	for _, run := range r.Cases[0].Runs {
		run.Probes = nil
	}
	if p := r.Cases[0].roundTrip(UDP, quiet, 50); p.Y != nil || p.Why != "no probe was due" {
		t.Errorf("without probes there is %v: %s", p.Y, p.Why)
	}
}

// TestQueuesAreMeasuredOnce, in their own order.
func TestQueuesAreMeasuredOnce(t *testing.T) {
	o := Options{Queues: []string{"htb", "tbf", "htb"}}
	if err := o.complete(); err != nil || !slices.Equal(o.Queues, []string{"tbf", "htb"}) {
		t.Errorf("queues are %q: %v", o.Queues, err)
	}
}

// TestWhatIsInvalidHasNoFigure, and says why; the other runs have theirs.
func TestWhatIsInvalidHasNoFigure(t *testing.T) {
	r := made()
	r.Cases[0].Runs[1].Invalid = []string{"the hypervisor took 3.0 % of the time"}
	r.Cases[1] = &Case{Defence: "none", Queue: "cake", Missing: "this kernel's cake is missing"}
	r.Cases = append(r.Cases, &Case{Defence: "none", Queue: NoQueue,
		Runs: []*Once{{Invalid: []string{"a flow ended early"}}}})
	benchtest.Output(t, r, "levee-state, round 2: the hypervisor took", "cake is missing",
		"none, round 1: a flow ended early")
	if n := len(r.Cases[0].throughput(Up).Rounds); n != 5 {
		t.Errorf("%d rounds have figures", n)
	}
	if r.Complete() {
		t.Error("complete, though a case has no figure")
	}
}

// TestRunsWithOneQueueEachCouldNotBeCompared: the queue stood in the name of each bar, so that two
// runs that differ by it had nothing in common.
func TestRunsWithOneQueueEachCouldNotBeCompared(t *testing.T) {
	labels := func(queues ...string) (all []string) {
		r := made()
		r.Cases = nil
		for _, q := range queues {
			r.Cases = append(r.Cases, &Case{Defence: "none", Queue: q, Runs: made().Cases[0].Runs})
		}
		for _, c := range r.Document().Charts {
			for _, s := range c.Series {
				for _, p := range s.Points {
					if c.Kind == report.Bar {
						all = append(all, c.ID+": "+p.Label)
					}
				}
			}
		}
		return all
	}
	tbf, cake := labels("tbf"), labels("cake")
	if len(tbf) == 0 || !slices.Equal(tbf, cake) {
		t.Errorf("%q and %q", tbf, cake)
	}
	if both := labels("tbf", "cake"); !slices.Contains(both, "throughput: none, tbf") {
		t.Errorf("of both in one run: %q", both)
	}
}

// TestNothingAtHandIsNoSuccess: a run whose only queue the kernel lacks ended with 0.
func TestNothingAtHandIsNoSuccess(t *testing.T) {
	r := made()
	r.Cases = []*Case{{Defence: "none", Queue: "cake", Missing: "this kernel's cake is missing"}}
	if r.Complete() {
		t.Error("complete without any figure")
	}
	r.Cases = append(r.Cases, made().Cases[0])
	if !r.Complete() {
		t.Error("incomplete for what the machine lacks")
	}
}

func TestWhatCannotBeMeasuredIsRefused(t *testing.T) {
	for _, o := range []Options{
		{Flows: 65}, {Flows: -1}, {Probes: 401}, {Probes: 0.5}, {Bandwidth: 10},
		{Bandwidth: math.NaN()}, {Queues: []string{"red"}}, {During: time.Hour},
		{Before: time.Millisecond}, {Options: bench.Options{Rounds: 1001}},
		{Defences: []string{"pf"}},
	} {
		if _, err := Run(t.Context(), o); !errors.Is(err, usage.ErrWrong) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestARunThatIsToldOfTooLateIsTakenAgain: a peer that was busy for half a second ended the
// measurement. One that is always late ends it.
func TestARunThatIsToldOfTooLateIsTakenAgain(t *testing.T) {
	for late, want := range map[int]int{0: 1, 2: 3, 100: mostLate} {
		taken := 0
		_, err := onTime(t.Context(), func() (*Once, error) {
			if taken++; taken > late {
				return new(Once), nil
			}
			return nil, fmt.Errorf("peer: %w", peer.ErrLate)
		})
		if taken != want || (err != nil) != (late == 100) {
			t.Errorf("%d late ones: %d taken, %v", late, taken, err)
		}
	}
}

// failing is a world whose probes fail.
type failing struct{ world }

var errNoProbe = errors.New("nobody answers")

func (failing) compare() (ahead, within time.Duration, err error) { return 0, 0, nil }

func (failing) probe(context.Context, echo.Probes) ([]int64, error) { return nil, errNoProbe }

// TestProbesThatFailEndTheLoad, which went on to its end before anybody heard of them.
func TestProbesThatFailEndTheLoad(t *testing.T) {
	x := &watch{Once: new(Once), measurement: &measurement{world: failing{},
		server: &lab.Host{Devices: make([]lab.Device, 1)}, Options: &Options{Probes: 1,
			Before: time.Hour}}}
	if err := x.all(t.Context()); err != errNoProbe {
		t.Error(err)
	}
}

// TestHostileCountsGiveNoRates: a machine that was taken over counts what it likes.
func TestHostileCountsGiveNoRates(t *testing.T) {
	c := newChild(roleClients, &lab.Process{In: nowhere{}, Out: strings.NewReader(
		`{"Queues":[{"Kind":"\u001b[2J"}],"Failed":"\u001b"}` + "\n")})
	n, err := c.count()
	if err != nil || n.Queues[0].Kind != `"\x1b[2J"` || n.Failed != `"\x1b"` {
		t.Errorf("%+v, %v", n, err)
	}
	first := Look{At: 1, Down: []uint64{5}, Up: []uint64{5}}
	for _, l := range []Look{first, {At: 0.5, Down: []uint64{5}, Up: []uint64{5}},
		{At: 2, Down: []uint64{5}, Up: []uint64{4}}} {
		r := new(Once)
		if err := r.add(first); err != nil {
			t.Fatal(err)
		}
		if err := r.add(l); err == nil {
			t.Errorf("%+v behind %+v", l, first)
		}
	}
}

// nowhere takes what is written.
type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) Close() error                { return nil }
