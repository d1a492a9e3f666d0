package episode

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
	"levee/internal/lang/policy"
)

var schedules = flag.Int("schedules", 10_000, "random schedules of floods")

// world is all that a machine has to do with, at random, with a clock of its own: a second costs
// nothing but what happens in it.
type world struct {
	*rand.Rand
	now     time.Time
	m       *Machine
	last    int                          // ID that was given last
	store   map[string]incident.Incident // the file
	kernel  []Live                       // rules in force
	until   time.Time                    // of their lease
	counts  map[string]Count
	answers []answer
	detects []*policy.Detect
	rate    float64 // packets of the flood in a second
	kind    kind.Kind
	beside  []detect.Alarm       // of other floods at once
	calm    bool                 // nothing goes wrong any more
	calmed  time.Time            // since when
	undone  map[string]time.Time // by incident
	costly  map[string]time.Time // rules that dropped more than is allowed
	gone    map[string]bool      // rules, by their label
	wanted  map[string]*wanted   // rules of writers, by their label
	told    func(time.Time, Event)
	wrong   []string
}

type answer struct {
	at    time.Time
	event Event
}

func newWorld(seed uint64, told func(time.Time, Event)) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 38)),
		now: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), store: map[string]incident.Incident{},
		counts: map[string]Count{}, undone: map[string]time.Time{},
		costly: map[string]time.Time{}, gone: map[string]bool{}, wanted: map[string]*wanted{},
		told: told}
	w.begin()
	return w
}

// statement is a detector.
func statement(name string, mode policy.DetectMode) *policy.Detect {
	return &policy.Detect{Name: name, Mode: mode, Collateral: 1e-3, Lease: 10 * time.Second,
		Quiet: 6 * time.Second}
}

// begin is an agent that begins: with what is in the file and in the kernel.
func (w *world) begin() {
	w.answers = nil
	w.told(w.now, Event{})
	w.m = New("eth0", func() string { w.last++; return strconv.Itoa(w.last) })
	w.policies()
	a := &Adopt{InKernel: len(w.kernel) > 0}
	for _, l := range w.kernel {
		a.Texts = append(a.Texts, l.Rule.Rule)
	}
	for _, id := range slices.Sorted(maps.Keys(w.store)) {
		a.Incidents = append(a.Incidents, w.store[id])
	}
	for _, label := range slices.Sorted(maps.Keys(w.wanted)) {
		if one := w.wanted[label]; !one.gone {
			one.inForce = true // it was kept
			a.Written = append(a.Written, one.Write)
		}
	}
	w.step(Event{Adopt: a})
}

// policies puts a policy in the place of the one in force.
func (w *world) policies() {
	modes := []policy.DetectMode{policy.Enforce, policy.Enforce, policy.Propose, policy.Observe}
	w.detects = []*policy.Detect{statement("a", modes[w.IntN(4)])}
	if w.IntN(2) == 0 {
		w.detects = append(w.detects, statement("b", policy.Enforce))
	}
	w.step(Event{Policy: &Policy{w.detects}})
}

func (w *world) step(e Event) {
	w.told(w.now, e)
	for _, f := range w.m.Step(w.now, e) {
		w.effect(&f)
	}
	w.check()
}

func (w *world) later(most time.Duration, e Event) {
	w.answers = append(w.answers, answer{w.now.Add(time.Duration(w.Int64N(int64(most)))), e})
}

func (w *world) fails() bool { return !w.calm && w.IntN(8) == 0 }

func (w *world) effect(f *Effect) {
	switch {
	case f.Search != nil:
		w.search(f.Search)
	case f.Put != nil:
		if w.fails() {
			w.later(time.Second, Event{Applied: w.refuse(f.Put)})
			return
		}
		w.kernel, w.until = f.Put.Rules, w.now.Add(LeaseOf(f.Put.Rules))
		w.later(time.Second, Event{Applied: &Applied{}})
	case f.Renew != nil:
		switch {
		case w.fails():
			w.step(Event{Renewed: &Renewed{Err: "the kernel refused"}})
		case len(w.kernel) == 0:
			w.step(Event{Renewed: &Renewed{Lost: true}})
		default:
			w.until = w.now.Add(f.Renew.Lease)
			w.step(Event{Renewed: &Renewed{}})
		}
	case f.Save != nil:
		w.save(f.Save)
	case f.Gone != nil:
		w.goes(f.Gone)
	}
}

func (w *world) search(s *Search) {
	for id, at := range w.undone {
		i := w.store[id]
		if i.Detector == s.Of.Name && i.Seen.Kind == s.Alarm.Kind.String() &&
			i.Seen.Destination == prefixText(s.Alarm.To) && w.now.Sub(at) < UndoLasts {
			w.wrongf("a search against what was undone as %s", id)
		}
	}
	r := &Found{Good: 1000, Sources: 7}
	switch w.IntN(6) {
	case 0:
		w.step(Event{Few: &Few{}})
		return
	case 1:
		r.Err = "no memory"
	case 2:
	default:
		for n := range 1 + w.IntN(EachRound) {
			label := Label(s.ID, s.Round, n)
			r.Rules = append(r.Rules, incident.Rule{Rule: `drop udp as "` + label + `"`,
				Label: label, Action: "drop", State: incident.Waiting})
			if len(w.beside) > 0 && w.IntN(2) == 0 {
				r.Kinds = map[string]string{label: w.beside[w.IntN(len(w.beside))].Kind.String()}
			}
		}
	}
	w.later(time.Second, Event{Found: r})
}

func (w *world) save(i *incident.Incident) {
	for _, r := range i.Rules {
		if w.gone[r.Label] && r.IsLive() {
			w.wrongf("rule %s is back", r.Label)
		}
		w.gone[r.Label] = r.State == incident.Gone
	}
	w.store[i.ID] = *i
}

func (w *world) wrongf(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// check holds what must be so at each moment.
func (w *world) check() {
	w.checkWritten()
	labels := map[string]bool{}
	for _, l := range w.kernel {
		if labels[l.Rule.Label] {
			w.wrongf("two rules in force have the label %s", l.Rule.Label)
		}
		labels[l.Rule.Label] = true
		if l.Of == nil {
			continue
		}
		i, ok := w.store[l.Incident]
		if !ok {
			w.wrongf("rule %s is in force without an incident", l.Rule.Label)
		}
		if i.Mode == policy.Observe.String() {
			w.wrongf("rule %s is in force where one observes", l.Rule.Label)
		}
		if at, ok := w.costly[l.Rule.Label]; ok && w.calm && w.now.Sub(at) > 15*time.Second {
			w.wrongf("rule %s is in force, and cost too much", l.Rule.Label)
		}
		if at, ok := w.undone[l.Incident]; ok && w.calm && w.now.Sub(at) > 15*time.Second {
			w.wrongf("rule %s is in force, and was undone", l.Rule.Label)
		}
		if i.State == incident.Undone && w.calm && w.now.Sub(w.calmed) > 15*time.Second {
			w.wrongf("rule %s is in force, and its incident says that all was taken back",
				l.Rule.Label)
		}
	}
}

// bin is a quarter of a second.
func (w *world) bin(n int) {
	w.now = w.now.Add(time.Second / 4)
	now := w.now
	if now.After(w.until) {
		w.kernel = nil // the lease
	}
	for i := 0; i < len(w.answers); i++ {
		if a := w.answers[i]; !a.at.After(now) {
			w.answers = slices.Delete(w.answers, i, i+1)
			w.step(a.event)
			i = -1
		}
	}
	t := &Tick{}
	if w.rate > 0 && (len(w.kernel) == 0 || w.IntN(4) == 0) {
		for _, d := range w.detects {
			t.Alarms = append(t.Alarms, Alarm{Detector: d.Name, Alarm: detect.Alarm{Kind: w.kind,
				Rate: w.rate, Threshold: 10_000, Packets: w.rate, Since: now, Learned: true}})
			for _, a := range w.beside {
				a.Since = now
				t.Alarms = append(t.Alarms, Alarm{Detector: d.Name, Alarm: a})
			}
		}
	}
	w.step(Event{Tick: t})
	if n%4 > 0 {
		return
	}
	if len(w.m.Live()) > 0 {
		w.count()
	}
	w.step(Event{Second: &Second{}})
}

func (w *world) count() {
	if len(w.kernel) == 0 {
		w.step(Event{Lost: &Lost{}})
		return
	}
	c := &Counted{Rules: map[string]Count{}, Costs: map[string]float64{}}
	for _, l := range w.kernel {
		n := w.counts[l.Rule.Label]
		n.Packets += uint64(w.rate)
		w.counts[l.Rule.Label], c.Rules[l.Rule.Label] = n, n
		switch w.IntN(8) {
		case 0:
			c.Costs[l.Rule.Label] = 1e-4
		case 1:
			c.Costs[l.Rule.Label] = 0.5
			if slices.ContainsFunc(w.m.Live(), func(o Live) bool {
				return o.Of != nil && o.Rule.Label == l.Rule.Label && o.Rule.IsLive()
			}) {
				w.costly[l.Rule.Label] = w.now
			}
		}
	}
	w.step(Event{Counted: c})
}

// happens is something at random.
func (w *world) happens() {
	switch w.IntN(40) {
	case 0, 1:
		w.rate = 0
	case 2, 3, 4:
		w.rate, w.kind = 1e5, []kind.Kind{kind.UDP, kind.SYN}[w.IntN(2)]
		w.beside = w.beside[:0]
		for range w.IntN(3) {
			a := detect.Alarm{Kind: kind.Kind(w.IntN(int(kind.Packets))), Rate: 5e4,
				Threshold: 10_000, Packets: w.rate, Learned: true}
			if w.IntN(2) == 0 {
				a.To = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(w.IntN(3))}), 32)
			}
			w.beside = append(w.beside, a)
		}
	case 5: // another policy, which takes the place of live rules
		w.kernel = nil
		w.step(Event{Lost: &Lost{}})
		w.policies()
		x := &Unfit{Why: map[string]string{}}
		for _, l := range w.m.Live() {
			if w.IntN(2) == 0 {
				x.Why[l.Rule.Label] = "it could never match"
				if one := w.wanted[l.Rule.Label]; one != nil {
					one.may = true
				}
			}
		}
		w.step(Event{Unfit: x})
	case 6:
		w.begin()
	case 7, 8:
		for _, id := range slices.Sorted(maps.Keys(w.store)) {
			if w.m.Has(id) && !w.m.Working() && w.undone[id].IsZero() {
				w.undone[id] = w.now
				w.step(Event{Undo: &Command{id}})
				return
			}
		}
	case 9, 10:
		for _, id := range slices.Sorted(maps.Keys(w.store)) {
			if w.m.Waiting(id) {
				w.step(Event{Apply: &Command{id}})
			}
		}
	case 11:
		w.kernel = nil // somebody took them down
	case 12, 13, 14:
		w.write([]string{"api:a", "api:b"}[w.IntN(2)],
			time.Second+time.Duration(w.Int64N(int64(25*time.Second))))
	case 15:
		w.erase()
	}
}

// run is half a minute at random, and a time of quiet.
func (w *world) run() {
	for n := range 4 * 30 {
		w.bin(n)
		w.happens()
	}
	w.rate, w.calm, w.calmed = 0, true, w.now
	for n := range 4 * 30 {
		w.bin(n)
	}
	if len(w.kernel) > 0 {
		w.wrongf("%d rules are in force after a time of quiet", len(w.kernel))
	}
	for id, i := range w.store {
		if i.Closed == nil {
			w.wrongf("incident %s is open after a time of quiet: %+v", id, i)
		}
	}
}

// TestAnyScheduleOfFloodsKeepsThePromises: no rule without an incident, none that costs more than
// it may, all gone after a time of quiet, what was undone stays undone, and what is gone never
// comes back, whatever the kernel refuses, when agents begin and policies change.
func TestAnyScheduleOfFloodsKeepsThePromises(t *testing.T) {
	// What is alive is so little that by default half of the time goes into collecting garbage.
	before := debug.SetGCPercent(2000)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	const lanes = 4
	for lane := range lanes {
		t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
			t.Parallel()
			for seed := lane; seed < *schedules; seed += lanes {
				w := newWorld(uint64(seed), func(time.Time, Event) {})
				if w.run(); len(w.wrong) > 0 {
					t.Fatalf("schedule %d: %s", seed, w.wrong[0])
				}
			}
		})
	}
}
