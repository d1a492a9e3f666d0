package detect

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"levee/internal/bench/benchtest"
	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/demo"
	"levee/internal/lab/labtest"
)

// TestMain lets the test's own binary play the roles of the lab.
func TestMain(m *testing.M) { labtest.Main(m, demo.Role) }

// standIn puts a rule that is known beforehand into force a while after packets become many, and
// takes it back a while after they have become few again.
type standIn struct {
	rule        string
	after, hold time.Duration

	site   contender.Site
	meter  *lab.Meter
	cancel context.CancelFunc
	done   sync.WaitGroup
	forgot int

	mu    sync.Mutex
	acted []Incident
	err   error
}

const flooded = 10_000 // packets a second

func (s *standIn) up(ctx context.Context, text string) error {
	p, err := contender.Resolve("stand-in", []byte(text))
	if err != nil {
		return err
	}
	return contender.LeveeUp(ctx, s.site, "stand-in", []byte(text), dataplane.Compiler(p))
}

const nothing = "default pass\n"

func (s *standIn) Start(ctx context.Context, h *lab.Host, device string, _ []byte) (err error) {
	s.site = contender.Site{Host: h, Device: device}
	if err := s.up(ctx, nothing); err != nil {
		return err
	}
	if s.meter, err = h.Meter(device); err != nil {
		return err
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.done.Go(func() {
		if err := s.watch(ctx); err != nil && ctx.Err() == nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
		}
	})
	return nil
}

// watch takes a flood for one as soon as it looks at it, and waits then.
func (s *standIn) watch(ctx context.Context) error {
	const look = 20 * time.Millisecond
	var last uint64
	looked := time.Now()
	var begun, quiet time.Time
	for ctx.Err() == nil {
		c, err := s.meter.Counters()
		if err != nil {
			return err
		}
		now := time.Now()
		many := last > 0 &&
			float64(c[contender.Received]-last)/now.Sub(looked).Seconds() > flooded
		last, looked = c[contender.Received], now
		switch {
		case many && begun.IsZero():
			begun, quiet = now, time.Time{}
			if err := lab.Sleep(ctx, s.after); err != nil {
				return err
			}
			if err := s.up(ctx, s.rule+"\n"+nothing); err != nil {
				return err
			}
			s.mu.Lock()
			s.acted = append(s.acted, Incident{ID: "1", Sentence: "many packets",
				Detected: begun, Acted: time.Now(), Rules: []Rule{{Rule: s.rule}}})
			s.mu.Unlock()
		case many:
			quiet = time.Time{}
		case !begun.IsZero() && quiet.IsZero():
			quiet = now
		case !begun.IsZero() && now.Sub(quiet) > s.hold:
			if err := s.up(ctx, nothing); err != nil {
				return err
			}
			begun = time.Time{}
			s.mu.Lock()
			s.acted[len(s.acted)-1].Closed = time.Now()
			s.mu.Unlock()
		}
		if err := lab.Sleep(ctx, look); err != nil {
			return nil
		}
	}
	return nil
}

func (s *standIn) Incidents(context.Context) ([]Incident, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acted), s.err
}

func (s *standIn) Live(ctx context.Context) (live []string, err error) {
	err = s.site.Host.Do(func() error {
		all, _, err := inspect.Status(ctx, false)
		for _, a := range all {
			for _, c := range a.Counters {
				if c.Label == "stand-in" {
					live = append(live, c.Label)
				}
			}
		}
		return err
	})
	return live, err
}

func (s *standIn) Replace(context.Context, []byte) error { return nil }

func (s *standIn) Forget(context.Context) error {
	s.forgot++
	return nil
}

func (s *standIn) PID() int { return os.Getpid() }

func (s *standIn) Stop(ctx context.Context) error {
	if s.cancel != nil {
		s.cancel()
		s.done.Wait()
		s.meter.Close()
	}
	return contender.LeveeDown(ctx, s.site)
}

// TestAFloodIsMeasuredFromOutside: a rule that comes 400 ms after the flood and stays for 300 ms,
// and that takes pings along.
func TestAFloodIsMeasuredFromOutside(t *testing.T) {
	labtest.NeedRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{rule: "drop icmp as \"stand-in\"", after: 400 * time.Millisecond,
		hold: 300 * time.Millisecond}
	o := Options{
		Self: []string{self, "role"}, Floods: []string{"icmp"}, Rate: 30_000, Defender: s,
		Before: time.Second, During: 3 * time.Second, Gone: 10 * time.Second,
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + benchtest.Output(t, r, "icmp: ICMP echo requests", "of clients dropped"))
	if len(r.Rows) != 1 || !r.Complete() || r.Rest == nil || r.Rest.Memory < 1<<20 {
		t.Fatalf("%+v", r)
	}
	f := r.Rows[0].figures(r.Rate)
	// It can be later on a busy machine, but not sooner.
	if !(f.Drop >= 0.4) || !f.Gone.is() || f.Gone < 0.2 {
		t.Errorf("dropped after %v s, rules gone after %v s", f.Drop, f.Gone)
	}
	if len(f.Incidents) != 1 {
		t.Errorf("%d incidents", len(f.Incidents))
	}
	if s.forgot != 1 { // else a flood of another row's kind is the next pulse of that one
		t.Errorf("one row, and the defender began anew %d times", s.forgot)
	}
	// What is counted from two seconds on needs a rule by then, with half a second to spare.
	early := f.Drop < 1.5
	if early && !(f.Dropped > 0.999) {
		t.Errorf("%v of the flood dropped", f.Dropped)
	}
	// Ten pings a second for at least a second and a half, and no other packets of clients.
	if early && (f.LostN < 5 || f.Measured < f.Lost/10) || f.LostN > 200 || f.GoodN < 100 {
		t.Errorf("%d of %d packets of clients dropped, collateral measured %v", f.LostN, f.GoodN,
			f.Measured)
	}
	for _, q := range r.Rows[0].requests {
		if due := time.Duration(q.Due); q.What != demo.Ping && q.NS == 0 &&
			due > r.Rows[0].from+after && due < r.Rows[0].to {
			t.Logf("a %s was not answered while pings were dropped", q.What)
		}
	}
	if len(f.Missed) == 0 {
		t.Error("dropped pings miss no goal")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]Options{
		`there is no flood "water"`:    {Floods: []string{"water"}},
		"1ms before or during":         {During: time.Millisecond},
		"floods of 5 packets":          {Rate: 5},
		`the flood "capture" needs --`: {Floods: []string{"capture"}},
		"--data: stat nosuch/":         {Data: "nosuch"},
	} {
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
