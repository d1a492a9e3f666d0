package difftest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Engine is anything that judges frames by a policy: *dataplane.Runner, for one.
type Engine interface {
	// Eval returns what decided, as an index into policy.Slots, and Pass or Drop.
	Eval(frame []byte) (slot int, verdict action.Action, err error)
}

// Counter is an engine that also counts, for each slot, the packets that it decided or, for a
// count rule, that it matched. Compare then holds the sums against the oracle's.
type Counter interface {
	Packets() []uint64
}

// Timed is an engine that takes its time from Compare, which then lets some pass between frames.
// All engines have the same clock.
type Timed interface {
	// Time is the present time in jiffies, and how many of these a second has.
	Time() (jiffies, hz uint64)
	SetTime(jiffies uint64)
}

// Forgetter is an engine that can empty its limits.
type Forgetter interface {
	ForgetLimits() error
}

// Leaver is an engine that is told of frames that leave by the interface.
type Leaver interface {
	Leave(frame []byte) error
}

// Answerer is an engine that answers SYNs and queries in the host's place. All engines give the
// same numbers.
type Answerer interface {
	// Answer is the frame that goes back in place of the last one, nil if none does.
	Answer() []byte
}

// Refuser is an engine with a program that the kernel asks for the sockets of segments.
type Refuser interface {
	// Refuses says whether the kernel would refuse a segment that belongs to no connection, rather
	// than look for who listens.
	Refuses(frame []byte) (bool, error)
}

// errNotRun is wrapped by the error of an engine that cannot be given this frame at all; the frame
// is then left out of its comparison.
var errNotRun = errors.New("the engine cannot run this frame")

// Case is one comparison: Frames frames, made of Seed for Policy. Its dynamic sets hold
// c.Entries(), which whoever makes an engine has to put there.
type Case struct {
	Policy *policy.Policy
	Link   packet.Link // where the frames arrive
	Text   []byte      // of Policy, for the report
	Seed   uint64
	Frames int
	// Talk, if above 0, parts the frames into sequences of that mean length: each begins hours
	// after the one before, when nothing of it counts any more.
	Talk int
	// Dialogue draws the frames of each sequence from a few connections, whatever the policy.
	Dialogue bool
}

// Entry is one entry of a dynamic set.
type Entry struct {
	policy.Element
	Lease Lease
}

// Lease says how an entry stands while frames are judged.
type Lease uint8

const (
	Forever Lease = iota // no lease
	Running              // ends long after
	Ended                // has ended, and the entry is still there
)

// now is the time of the oracle's clock; leases run around it.
var now = time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC)

func (l Lease) expires() time.Time {
	return [...]time.Time{{}, now.Add(time.Hour), now.Add(-time.Second)}[l]
}

// Difference is a frame that an engine judged otherwise than the oracle, or a sum that differs.
type Difference struct {
	Case   Case
	N      int    // of the frame, from 1; 0 when the sums differ
	Frame  []byte // nil when the sums differ
	Engine string // its type
	Want   string
	Got    string
	Story  oracle.Trace
}

// Error shows all that is needed to see it again.
func (d *Difference) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "difference: seed %d, frame %d\n  oracle: %s\n  %s: %s\n", d.Case.Seed, d.N,
		d.Want, d.Engine, d.Got)
	if d.Frame != nil {
		fmt.Fprintf(&b, "  packet: %x\n", d.Frame)
		for _, l := range d.Story.Layers {
			fmt.Fprintf(&b, "    %4d %s %v\n", l.Offset, l.Name, l.Fields)
		}
		tried := d.Story.Tried
		for _, t := range tried[max(0, len(tried)-4):] {
			fmt.Fprintf(&b, "    tried %s `%s`: %s %s\n", t.Where, t.Text, t.Term, t.Got)
		}
		fmt.Fprintf(&b, "    %s\n", d.Story.Why)
	}
	text := d.Case.Text
	if len(text) > 8000 {
		text = append(text[:8000:8000], "\n... (cut; Generate makes it again from the seed)"...)
	}
	fmt.Fprintf(&b, "  policy:\n%s", text)
	return b.String()
}

// Stats says what a comparison has covered.
type Stats struct {
	Frames    int
	Sequences int         // parts of the frames, see Case.Talk
	Decided   map[int]int // frames by slot
	Malformed int
	// Remembered counts the oracle's entries at the end, by the rows of package state.
	Remembered map[string]int
}

// Compare judges the frames of c with the oracle and with each engine, and stops at the first
// difference, which is a *Difference. Any other error is an engine's or ctx's.
func Compare(ctx context.Context, c Case, engines ...Engine) (Stats, error) {
	o := oracle.NewOn(c.Policy, c.Link)
	clock := newClock(c.Seed, engines)
	o.SetClock(clock.now)
	for _, set := range c.Policy.Sets {
		for _, e := range c.Entries(set) {
			if err := o.AddEntry(set.Name, e.Element, e.Lease.expires()); err != nil {
				return Stats{}, fmt.Errorf("seed %d: %w", c.Seed, err)
			}
		}
	}
	r := &comparison{c: c, oracle: o, clock: clock, engines: engines,
		stats: Stats{Decided: map[int]int{}},
		sums:  make([][]uint64, len(engines)),
		flow:  c.Policy.Tracks(), cookie: c.Policy.Has(action.Cookie),
		queriesA2S: slices.ContainsFunc(c.Policy.Rules, func(p *policy.Rule) bool {
			return p.Cookie != nil && p.Cookie.Answers == action.A2SQueries
		}),
		greylist: c.Policy.Has(action.Greylist),
		proven:   c.Policy.Asks(field.Proven),
		echoes:   c.Policy.Asks(field.ProvenFlow) && len(c.Policy.Proves) > 0,
		streams:  c.Policy.Asks(field.Stream),
		track:    c.Policy.Has(action.Track), divert: c.Policy.Has(action.Divert)}
	for i := range r.sums {
		r.sums[i] = make([]uint64, len(c.Policy.Slots()))
	}
	r.prepareChanges()
	size := blockFrames
	if len(r.entries) > 0 {
		size = changeFrames
	}
	if asksKernel(c.Policy) {
		r.tellers = tellers(o, engines)
		r.tells = rand.New(rand.NewPCG(c.Seed, streamTold))
		size = min(size, toldTogether)
	}
	block := make([][]byte, 0, size)
	for f := range packets(c.Policy, c.elements(), c.Seed, c.Frames) {
		if block = append(block, arriving(c.Link, f)); len(block) < size {
			continue
		}
		if err := errors.Join(r.judge(ctx, block), r.change()); err != nil {
			return r.stats, err
		}
		block = block[:0]
	}
	if err := r.judge(ctx, block); err != nil {
		return r.stats, err
	}
	r.stats.Remembered = o.Remembered()
	return r.stats, compareSums(c, r.sums, engines)
}

// arriving returns an Ethernet frame as it arrives on a device of that link layer: on L3 without
// all that stands before IP, whatever follows it.
func arriving(link packet.Link, f []byte) []byte {
	if link == packet.Ethernet {
		return f
	}
	var p packet.Packet
	packet.Decode(f, &p)
	return f[min(len(f), max(p.NetworkOffset, packet.Ethernet.Header())):]
}

// blockFrames is the number of frames that the oracle judges at a time, on all cores.
const blockFrames = 1024

// comparison is one under way.
type comparison struct {
	c       Case
	oracle  *oracle.Evaluator
	engines []Engine
	clock   *clock
	stats   Stats
	sums    [][]uint64 // packets by slot, for each engine

	// What some rule asks for or does; the policy may have too many to look at each for each frame.
	flow, cookie, queriesA2S, proven, echoes, streams, track, divert, greylist bool

	noted    map[connection]uint64 // until when, in jiffies, where the policy diverts
	dialogue *dialogue
	tellers  []Teller // nil where nobody is told
	tells    *rand.Rand
	left     [][]byte  // of late, where the policy asks for connections
	told     []told    // values that replies had
	given    []given   // answers to SYNs
	asked    []asked   // answers to A2S queries
	whole    []byte    // a packet of which fragments are made
	senders  []*sender // clients over TCP, where the policy searches streams
	rand     *rand.Rand
	entries  []setEntry // of dynamic sets, if all engines can change them
}

// judge compares the verdicts on some frames.
func (r *comparison) judge(ctx context.Context, frames [][]byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	tellAll(r.tells, r.tellers...)
	var before []oracle.Result
	if r.stats.Frames == 0 && len(frames) > 0 {
		if err := r.own(frames); err != nil {
			return err
		}
	}
	if !r.clock.runs() {
		before = verdicts(r.oracle, frames, r.c.Policy.Remembers())
	}
	for i := range frames {
		var want oracle.Result
		if before != nil {
			want = before[i]
		} else {
			if t := r.c.Talk; t > 0 && (r.stats.Frames == 0 || r.clock.rand.IntN(t) == 0) {
				if err := r.begin(); err != nil {
					return err
				}
			}
			if err := r.arrange(frames, i); err != nil {
				return err
			}
			want = r.oracle.Eval(frames[i])
		}
		r.stats.Frames++
		r.stats.Decided[want.Slot]++
		if want.Malformed != packet.WellFormed {
			r.stats.Malformed++
		}
		for j := range r.engines {
			if err := r.ask(j, frames[i], want); err != nil {
				return err
			}
		}
	}
	return nil
}

// arrange lets time pass and frames leave before frame i comes in, and turns frame i into one that
// belongs to an earlier flow.
func (r *comparison) arrange(frames [][]byte, i int) error {
	if r.c.Dialogue {
		return r.converse(frames, i)
	}
	r.clock.step()
	r.again(frames, i)
	if err := r.talk(frames, i); err != nil {
		return err
	}
	r.quote(frames, i)
	if err := r.echo(frames, i); err != nil {
		return err
	}
	if err := r.stream(frames, i); err != nil {
		return err
	}
	r.handshake(frames, i)
	r.queryA2S(frames, i)
	r.fragment(frames, i)
	return nil
}

// begin begins a sequence: hours later, when leases of all kinds have ended, and with empty limits,
// whose times wrap around within a day.
func (r *comparison) begin() error {
	r.stats.Sequences++
	r.clock.pause()
	r.dialogue = newDialogue(r.clock.rand)
	r.senders = nil
	r.told = nil // the program notes times in 24 bits of jiffies, which come around within hours
	for _, e := range r.engines {
		if f, ok := e.(Forgetter); ok {
			if err := f.ForgetLimits(); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask compares the verdict of one engine on one frame with the oracle's.
func (r *comparison) ask(engine int, f []byte, want oracle.Result) error {
	c, e := r.c, r.engines[engine]
	slot, got, err := e.Eval(f)
	if errors.Is(err, errNotRun) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("seed %d, frame %d (%x): %T: %w", c.Seed, r.stats.Frames, f, e, err)
	}
	if slot != want.Slot || got != want.Action {
		return &Difference{Case: c, N: r.stats.Frames, Frame: f, Engine: fmt.Sprintf("%T", e),
			Want: verdict(c.Policy, want.Slot, want.Action), Got: verdict(c.Policy, slot,
				got), Story: r.oracle.Explain(f)}
	}
	if a, ok := e.(Answerer); ok {
		answer := a.Answer()
		if want.Answered != (answer != nil) {
			return &Difference{Case: c, N: r.stats.Frames, Frame: f, Engine: fmt.Sprintf("%T", e),
				Want: fmt.Sprintf("answered %v", want.Answered),
				Got:  fmt.Sprintf("answer %x", answer), Story: r.oracle.Explain(f)}
		}
		if wrong := r.answered(f, answer); wrong != "" {
			return &Difference{Case: c, N: r.stats.Frames, Frame: f, Engine: fmt.Sprintf("%T", e),
				Want: "an answer to the query", Got: fmt.Sprintf("%x: %s", answer, wrong),
				Story: r.oracle.Explain(f)}
		}
	}
	if d, ok := e.(Refuser); ok {
		if err := r.askRefuser(d, f, want); err != nil {
			return err
		}
	}
	r.sums[engine][want.Slot]++
	for _, counted := range want.Counted {
		r.sums[engine][counted]++
	}
	return nil
}

// verdicts returns the oracle's, in the order of the frames, and asked for one by one if they
// depend on those before.
func verdicts(o *oracle.Evaluator, frames [][]byte, inTurn bool) []oracle.Result {
	out := make([]oracle.Result, len(frames))
	workers := runtime.GOMAXPROCS(0)
	if inTurn {
		workers = 1
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(frames)); i = next.Add(1) - 1 {
				out[i] = o.Eval(frames[i])
			}
		})
	}
	wg.Wait()
	return out
}

func compareSums(c Case, sums [][]uint64, engines []Engine) error {
	for i, e := range engines {
		want := sums[i]
		counter, ok := e.(Counter)
		if !ok {
			continue
		}
		got := counter.Packets()
		if len(got) != len(want) {
			return fmt.Errorf("seed %d: %T counts %d slots, the policy has %d", c.Seed, e, len(got),
				len(want))
		}
		for slot := range want {
			if got[slot] != want[slot] {
				name := verdict(c.Policy, slot, c.Policy.Slots()[slot].Action)
				return &Difference{Case: c, Engine: fmt.Sprintf("%T", e),
					Want: fmt.Sprintf("%d packets: %s", want[slot],
						name), Got: fmt.Sprintf("%d packets", got[slot])}
			}
		}
	}
	return nil
}

func verdict(p *policy.Policy, slot int, does action.Action) string {
	slots := p.Slots()
	if slot < 0 || slot >= len(slots) {
		return fmt.Sprintf("%s by slot %d, which the policy does not have", does, slot)
	}
	return fmt.Sprintf("%s by slot %d: %s", does, slot, oracle.Decider(p, slots[slot]))
}

// Entries returns what a set holds in this case if it is dynamic: no entries, few or many, each
// once, of the addresses in the rest of the policy. A third has a lease, half of these one that has
// ended.
func (c Case) Entries(s *policy.Set) []Entry {
	if s.Kind != policy.Dynamic {
		return nil
	}
	g := &generator{r: newRand(c.Seed, streamPolicy), seed: c.Seed}
	g.pools()
	g.r = newRand(c.Seed+uint64(s.Pos.Line)<<32, streamEntries)
	entry := map[policy.SetType]func() string{policy.Addresses: g.address,
		policy.Services: g.serviceElement, policy.Endpoints: g.endpointElement,
		policy.Names: g.nameElement}[s.Type]
	var all []Entry
	seen := map[policy.Element]bool{}
	for _, text := range g.some(min(g.size(), s.Max/2), entry) {
		elements, _ := literal.ReadElements(strings.NewReader(text), "")
		for _, e := range elements {
			// Ranges become many; a set of endpoints takes so many sizes of prefixes and ports
			// only.
			if !seen[e] && len(elements) <= 4 && len(all) < s.Max/2 {
				seen[e] = true
				all = append(all, Entry{e,
					[]Lease{Forever, Forever, Forever, Forever, Running, Ended}[g.r.IntN(6)]})
			}
		}
	}
	return all
}

// elements returns what each dynamic set holds, whatever the leases.
func (c Case) elements() func(*policy.Set) []policy.Element {
	all := map[*policy.Set][]policy.Element{}
	for _, s := range c.Policy.Sets {
		for _, e := range c.Entries(s) {
			all[s] = append(all[s], e.Element)
		}
	}
	return func(s *policy.Set) []policy.Element { return all[s] }
}
