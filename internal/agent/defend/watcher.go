package defend

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/agent/aside"
	"levee/internal/agent/detect"
	"levee/internal/agent/episode"
	"levee/internal/agent/evidence"
	"levee/internal/agent/history"
	"levee/internal/agent/incident"
	"levee/internal/agent/inforce"
	"levee/internal/agent/known"
	"levee/internal/agent/newcomers"
	"levee/internal/agent/peers"
	"levee/internal/agent/rulebook"
	"levee/internal/agent/sent"
	"levee/internal/agent/sight"
	"levee/internal/agent/signature"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/tap"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Options are those of the watcher of an interface.
type Options struct {
	Dev string
	// Policy reads the operator's policy in force on Dev, and which one that is.
	Policy func(context.Context) (*policy.Policy, inforce.State, error)
	// InForce knows what is in force.
	InForce *inforce.Watcher
	// Allowed is an error for a policy that would cut a session of this machine.
	Allowed   func(context.Context, *policy.Policy) error
	Incidents *incident.Store
	Book      *rulebook.Book   // of rules of other writers; nil: there are none
	Sampled   *history.Sampled // told of each sample; nil: nobody is
	Evidence  *evidence.Store  // of the packets by which floods were judged; nil: none
	Baselines *Baselines       // that outlive this process; nil: none
	Peers     *peers.Table     // whom a cookie need not ask; nil: nobody
	Aside     *aside.Aside     // keeps off busy CPUs; nil: it does not
	Sight     *sight.Counts    // of what the policy passes; nil: nobody compares
	Log       func(format string, args ...any)

	parts  *watchParts // nil: nobody is told
	files  fileParts
	kernel kernel
}

// Times and rates of the loop.
const (
	tickEvery   = 100 * time.Millisecond
	calmWait    = 100 * time.Millisecond // between two looks at samples
	readWait    = 50 * time.Millisecond  // while they come fast
	secondEvery = time.Second
	followEvery = 3 * time.Second // while nothing is done: it takes a seventh of the agent's time
	followBusy  = 200 * time.Millisecond
	calmRate    = 2000   // samples a second, CPU and kind
	floodRate   = 20_000 // samples a second of all CPUs, of each kind
	lookRate    = 40_000 // the same, while newcomers are looked for; at most floodRate of a CPU
	floodLasts  = time.Second
	hurry       = 2 * time.Second
)

// Watcher watches one interface.
type Watcher struct {
	Options
	sampler   sampler
	link      packet.Link
	base      *policy.Policy // of the operator's
	state     inforce.State
	program   uint32 // that samples are of
	floods    *episode.Machine
	eyes      []*eye
	good      *good
	regulars  *regulars
	flows     *flows
	newcomers newcomers.Sources
	recent    recent
	packet    packet.Packet
	whole     []byte

	fast       time.Time // samples come fast until then
	rate       int       // of samples
	nextTick   time.Time
	nextSecond time.Time
	nextKeep   time.Time // of baselines
	nextReady  time.Time // that it is tried whether rules could be put into force
	sampled    time.Time // when a sample came last
	seen       float64   // packets in this second, whatever became of them
	sight      sight.Samples
	sent       sent.Counter       // in a second
	sentNow    sent.Counter       // since it was read last, for a doubt too
	refused    sent.Refused       // the last time that it was doubted
	unwanted   sent.Unwanted      // a second ago
	followed   time.Time          // when it was last as known
	costs      map[string]float64 // shares of good packets that live rules drop
	strangers  map[string]bool    // labels of live limits on strangers
	welcomes   bool               // these hold a flood, and newcomers are looked for
	cpus       map[int]float64    // packets of each since the last tick
	answers    chan answer
	ops        chan func()
	done       chan struct{}
}

// eye is a detector of the policy in force.
type eye struct {
	*policy.Detect
	detector *detect.Detector
}

// New is a watcher that has not begun.
func New(o Options) *Watcher {
	w := &Watcher{Options: o, good: newGood(), regulars: newRegulars(), flows: newFlows(),
		answers: make(chan answer, 1),
		ops:     make(chan func()), done: make(chan struct{}), cpus: map[int]float64{}}
	if o.Peers != nil {
		w.regulars.peer = o.Peers.Has
	}
	w.floods = episode.New(o.Dev, func() string { return o.Incidents.Next() })
	return w
}

// Run watches until ctx ends, or there is no policy any more. Live rules stay for their lease.
func (w *Watcher) Run(ctx context.Context) (err error) {
	defer close(w.done)
	if w.sampler, err = w.kernel.sample(ctx, w.Dev); err != nil {
		return err
	}
	defer w.sampler.Close()
	defer w.Aside.From(w.Dev, unix.CPUSet{})
	if err := w.read(ctx); err != nil {
		return err
	}
	w.adopt(ctx)
	now := time.Now()
	w.followed = now
	w.ready(ctx, now)
	w.parts.looked(time.Time{}, 0, nil)
	w.nextTick, w.nextSecond, w.nextKeep = now, now.Add(secondEvery), now.Add(keepEvery)
	defer func() { w.keepBaselines(time.Now()) }()
	defer func() {
		if w.floods.Working() {
			w.finish(context.WithoutCancel(ctx), <-w.answers)
		}
	}()
	timer := time.NewTimer(calmWait)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait := calmWait
		if time.Now().Before(w.fast) || w.welcomes {
			wait = readWait
		}
		timer.Reset(wait)
		var then func()
		// A thread that waits in the kernel for samples has Go's scheduler look every 20 us whether
		// it is back, which takes more than all samples of an hour without a flood.
		select {
		case <-timer.C:
		case a := <-w.answers:
			then = func() { w.finish(ctx, a) }
		case then = <-w.ops:
		case <-ctx.Done():
		}
		if err := w.sampler.Read(w.sample); err != nil {
			if err := w.follow(ctx); err != nil {
				return err
			}
		}
		now := time.Now()
		if then != nil {
			then()
		}
		if !now.Before(w.nextTick) {
			if err := w.tick(ctx, now); err != nil {
				return err
			}
			w.nextTick = now.Add(tickEvery - readWait/2)
		}
		if !now.Before(w.nextSecond) {
			if err := w.second(ctx, now); err != nil {
				return err
			}
			w.nextSecond = now.Add(secondEvery)
		}
	}
	return nil
}

// read reads the operator's policy, and goes on with its detectors.
func (w *Watcher) read(ctx context.Context) error {
	p, state, err := w.Policy(ctx)
	if err != nil {
		return err
	}
	if w.base != nil {
		w.good.replaced(w.base, p)
	}
	w.base, w.state, w.link = p, state, w.sampler.Link()
	w.parts.set(p.Detects, len(w.written()) > 0)
	w.nextReady = time.Time{}
	old := w.eyes
	w.eyes = nil
	for _, d := range p.Detects {
		e := &eye{Detect: d}
		at := slices.IndexFunc(old, func(o *eye) bool {
			return o.Name == d.Name && o.Text == d.Text
		})
		if at >= 0 {
			e.detector = old[at].detector
		} else {
			o := detect.Options{Packets: float64(d.Packets), Bits: float64(d.Bits)}
			if w.Peers != nil {
				o.Peer, o.Ask = w.Peers.Has, w.Peers.Again
			}
			if d.To != nil {
				o.Watched = known.NewPrefixes(d.To).Has
			}
			e.detector = detect.New(o)
			now := time.Now()
			w.restore(e, now)
			w.expect(e, now)
		}
		w.eyes = append(w.eyes, e)
	}
	w.step(ctx, episode.Event{Policy: &episode.Policy{Detects: p.Detects}})
	return nil
}

// sample takes one sample.
func (w *Watcher) sample(s tap.Sampled) {
	w.decodeBytes(s.Packet, s.Bytes)
	w.tell(&s)
	w.cpus[s.CPU] += float64(s.Weight)
	w.sampled = s.At
	w.seen += float64(s.Weight)
	if !s.Passed {
		w.dropped(&s)
		return
	}
	if !w.floods.Clean() || w.newcomers.Spares(w.packet.Src) {
		w.stranger(s.At, &w.packet, float64(s.Weight))
	}
	f := w.recent.add(s.At, s.Packet, s.Bytes, s.By)
	f.isNew = w.regulars.pass(s.At, w.packet.Src, float64(s.Weight), w.floods.Clean())
	for _, e := range w.eyes {
		e.detector.Add(s.At, &w.packet, float64(s.Weight), s.Bytes)
	}
	if w.floods.Clean() {
		w.good.add(f)
		w.flows.add(s.At, &w.packet, float64(s.Weight))
	}
}

// dropped takes a sample of a packet that was dropped.
func (w *Watcher) dropped(s *tap.Sampled) {
	label := w.regulars.known[s.Slot]
	if label == "" {
		return
	}
	f := frame{at: s.At, length: s.Bytes, by: signature.Unsaid}
	f.n = uint8(copy(f.head[:], s.Packet))
	w.regulars.drop(label, w.packet.Src, float64(s.Weight), &f)
	if w.strangers[label] {
		w.stranger(s.At, &w.packet, float64(s.Weight))
	}
}

// lost notes that of live rules no others than these are in force any more. What has passed since
// all were is not known to be good.
func (w *Watcher) lost(ctx context.Context, but []string) {
	texts := strings.Join(but, "\n")
	w.step(ctx, episode.Event{Lost: &episode.Lost{Texts: texts}})
	w.regulars.rules(nil)
	if live := w.floods.Live(); len(live) > 0 && episode.Texts(live) != texts {
		w.good.forget(w.followed)
	}
}

// decode reads a packet into w.packet.
func (w *Watcher) decode(f *frame) { w.decodeBytes(f.head[:f.n], f.length) }

// decodeBytes reads a packet of that length, of which these are the first bytes, into w.packet.
func (w *Watcher) decodeBytes(b []byte, length int) {
	rec := packet.Record{Data: b, Length: length}
	whole, missing := rec.Whole(w.whole)
	if missing > 0 {
		w.whole = whole
	}
	w.packet = packet.Packet{}
	w.link.Decode(whole, &w.packet)
}

// keepUp goes on behind the policy in force, sooner while there are live rules, which another one
// takes with it.
func (w *Watcher) keepUp(ctx context.Context, now time.Time) error {
	every := followEvery
	if w.floods.Busy() || len(w.floods.Live()) > 0 {
		every = followBusy
	}
	if w.floods.Working() || w.floods.Hurried(now) || now.Sub(w.followed) < every {
		return nil
	}
	return w.follow(ctx)
}

// tick ends a bin.
func (w *Watcher) tick(ctx context.Context, now time.Time) error {
	rising := false
	t := &episode.Tick{}
	for _, e := range w.eyes {
		alarms := e.detector.Tick(now)
		for _, f := range detect.Floods(alarms) {
			a := episode.Alarm{Detector: e.Name, Alarm: f}
			a.Before.Packets, a.Before.Bits = e.detector.Usual(now)
			t.Alarms = append(t.Alarms, a)
		}
		rising = rising || len(alarms) > 0 || e.detector.Rising()
	}
	w.step(ctx, episode.Event{Tick: t})
	w.doubt(now)
	w.doubtSegments(now)
	if err := w.keepUp(ctx, now); err != nil {
		return err
	}
	each := calmRate
	if rising {
		w.fast = now.Add(floodLasts)
	}
	switch {
	case w.welcomes:
		each = lookEach(w.cpus) // newcomers among them show in few samples
	case now.Before(w.fast) && !w.floods.Rests(now):
		each = max(calmRate, floodRate/runtime.NumCPU())
	}
	w.aside()
	if each != w.rate {
		if err := w.sampler.SetRate(each); err != nil {
			w.Log("%s: set the rate of samples: %v", w.Dev, err)
		}
		w.rate = each
	}
	return nil
}

// lookEach is the rate of samples of each CPU, given the packets of each, by which all together
// take lookRate. One that has less than a tenth of what another one has takes few in any case.
func lookEach(packets map[int]float64) int {
	most, busy := 0.0, 0
	for _, n := range packets {
		most = max(most, n)
	}
	for _, n := range packets {
		if n > most/10 {
			busy++
		}
	}
	return max(calmRate, min(floodRate, lookRate/max(1, busy)))
}

// doubt reads how much the machine sends, where that says whether something is a flood.
func (w *Watcher) doubt(now time.Time) {
	if now.Sub(w.sentNow.At) < readWait || !slices.ContainsFunc(w.eyes, func(e *eye) bool {
		return e.detector.Doubts(now)
	}) {
		return
	}
	packets, told := w.kernel.sent(w.Dev)
	if rate, ok := w.sentNow.Second(now, packets, w.kernel.refused(), w.elsewhere, told); ok {
		for _, e := range w.eyes {
			e.detector.SentNow(now, rate)
		}
	}
}

// refusedEvery is the interval at which segments that the machine refuses are counted.
const refusedEvery = 200 * time.Millisecond

// doubtSegments reads how many segments the machine refuses, where that says whether they are a
// flood.
func (w *Watcher) doubtSegments(now time.Time) {
	if now.Sub(w.refused.At) < refusedEvery || !slices.ContainsFunc(w.eyes, func(e *eye) bool {
		return e.detector.DoubtsSegments(now)
	}) {
		return
	}
	if now.Sub(w.refused.At) > time.Second {
		w.refused = sent.Refused{}
	}
	if segments, _ := w.refused.Since(now, w.kernel.refused(), w.elsewhere); segments > 0 {
		for _, e := range w.eyes {
			e.detector.Refused(float64(segments))
		}
	}
}

// elsewhere is the traffic of all interfaces but the one that is watched.
func (w *Watcher) elsewhere() (sent.Traffic, bool) { return w.kernel.elsewhere(w.Dev) }

// aside keeps off the CPUs that a flood comes in on while it passes.
func (w *Watcher) aside() {
	var busy unix.CPUSet
	if w.floods.Passing() {
		busy = aside.BusyOf(w.cpus, runtime.NumCPU())
	}
	clear(w.cpus)
	w.Aside.From(w.Dev, busy)
}

// second does what is to be done each second.
func (w *Watcher) second(ctx context.Context, now time.Time) error {
	packets, told := w.kernel.sent(w.Dev)
	no := w.kernel.refused()
	unwanted := w.unwanted.Second(now, no)
	rate, ok := w.sent.Second(now, packets, no, w.elsewhere, told)
	for _, e := range w.eyes {
		e.detector.Unwanted(unwanted)
		if ok {
			e.detector.Sent(rate)
		}
	}
	w.sentNow = w.sent
	raised := w.floods.Passing()
	for _, e := range w.eyes {
		raised = raised || e.detector.Raised(now)
	}
	w.good.tidy(now, raised)
	w.flows.tidy(now)
	done := len(w.floods.Live()) > 0
	if !w.floods.Passing() && !done {
		w.regulars.came(!raised)
	}
	w.costs = w.regulars.second(now, !raised && !done)
	if w.Sampled != nil {
		w.Sampled.Observe(w.Dev)
	}
	blind := w.sight.Look(now, w.seen > 0, w.Sight.Of(w.Dev))
	w.parts.looked(w.sampled, w.seen, blind)
	w.seen = 0
	if !now.Before(w.nextKeep) {
		w.keepBaselines(now)
		w.nextKeep = now.Add(keepEvery)
	}
	w.dismiss(ctx, now)
	if w.floods.Working() || w.floods.Hurried(now) {
		return nil
	}
	w.welcome(ctx, now)
	w.count(ctx)
	w.step(ctx, episode.Event{Second: &episode.Second{}})
	switch {
	case w.floods.Working() || w.floods.Busy() || len(w.floods.Live()) > 0:
	case len(w.eyes) == 0:
		return errIdle
	case !now.Before(w.nextReady):
		w.ready(ctx, now)
	}
	return nil
}

// ready finds out whether rules could be put into force, before there is a flood.
func (w *Watcher) ready(ctx context.Context, now time.Time) {
	if w.parts == nil || w.parts.rules == nil {
		return
	}
	err := w.kernel.ready(ctx, w.Dev)
	if generation.IsGone(err) {
		return // whoever follows the policy says so
	}
	if w.nextReady = now.Add(readyEvery); err != nil {
		w.nextReady = now.Add(readyAgain)
	}
	w.parts.tried(err)
}

// follow goes on behind the policy in force. Live rules go into one that has come without them.
func (w *Watcher) follow(ctx context.Context) error {
	now := time.Now()
	if err := w.sampler.Follow(ctx); err != nil {
		return err
	}
	if w.sampler.Program() == w.program {
		w.followed = now
		return nil
	}
	state, err := inForce(ctx, w.InForce, w.Dev)
	if err != nil {
		return err
	}
	if state.Index != w.state.Index {
		return errNoPolicy // another interface has the name
	}
	w.program = w.sampler.Program()
	if state == w.state {
		w.followed = now
		return nil
	}
	var carried []string
	if there, _, err := w.kernel.live(ctx, w.Dev); err == nil && there != nil {
		carried = there.Rules
	}
	w.lost(ctx, carried)
	if err := w.read(ctx); err != nil {
		return err
	}
	w.refit(ctx)
	if !w.floods.Working() { // all go on as they are
		w.regulars.rules(w.slots(w.floods.Live()))
	}
	return nil
}

// inForce returns the policy that is in force on an interface at this moment.
func inForce(ctx context.Context, all *inforce.Watcher, dev string) (inforce.State, error) {
	s, there, err := all.On(ctx, dev, 0)
	if err == nil && !there {
		err = errNoPolicy
	}
	return s, err
}

// Do runs fn in its turn in the loop. It is false when the watcher has ended.
func (w *Watcher) Do(fn func()) bool {
	done := make(chan struct{})
	select {
	case w.ops <- func() { fn(); close(done) }:
		<-done
		return true
	case <-w.done:
		return false
	}
}

var (
	errGone     = errors.New("the interface is not watched any more")
	errNoPolicy = errors.New("the interface has no policy any more")
	errIdle     = errors.New("there is nothing to watch for")
)
