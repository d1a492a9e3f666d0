package defend

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/inforce"
	"levee/internal/agent/peers"
	"levee/internal/agent/sent"
	"levee/internal/await"
	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// Packets of the world behind a fake kernel, and how many of them are sampled in a second.
const (
	goodSampled  = 300
	floodSampled = 2000
	floodRate60k = 60_000
	detecting    = "detect \"floods\" enforce\n"
	judgeText    = detecting + "default pass\n"
)

// fakeKernel judges packets by the oracle, and holds live rules for their lease.
type fakeKernel struct {
	*rand.Rand
	mu          sync.Mutex
	base        *policy.Policy
	text        string // of it
	state       inforce.State
	program     uint32
	rules       []inspect.LiveRule
	until       time.Time
	judge       *oracle.Evaluator
	with        *policy.Policy
	slots       []policy.Slot // of it
	counts      map[string]episode.Count
	good, flood [][]byte
	judged      map[*byte]oracle.Result // of their frames, by the policy in force
	calm        int                     // packets of the good traffic that are sampled in a second
	rate        float64                 // of the flood
	sampled     int                     // packets of the flood that are sampled in a second
	read        time.Time
	before      error // of the next change, which is not made
	behind      error // of the next change, which is made
	tells       bool  // how much is sent
	begun       time.Time
	puts        int
	lab         *lab // that its packets come from; nil: good and flood
}

func newFakeKernel(t *testing.T, seed uint64) *fakeKernel {
	t.Helper()
	k := &fakeKernel{Rand: rand.New(rand.NewPCG(seed, 38)), state: inforce.State{Dev: "eth0"},
		counts: map[string]episode.Count{}, read: time.Now(), begun: time.Now(),
		sampled: floodSampled, calm: goodSampled}
	server := netip.MustParseAddr("192.0.2.1")
	frame := func(s packet.Spec) []byte {
		s.To = server
		b, err := packet.Build(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for i := range 256 {
		k.good = append(k.good, frame(packet.Spec{ToPort: new(uint16(443)), Flags: new(uint8(0x10)),
			From:     netip.AddrFrom4([4]byte{198, 51, 100, byte(i % 64)}),
			FromPort: new(uint16(40_000 + i)), Payload: make([]byte, k.IntN(400))}))
	}
	for range 2048 {
		k.flood = append(k.flood, frame(packet.Spec{Proto: new(uint8(packet.ProtoUDP)),
			From:     netip.AddrFrom4([4]byte{16, byte(k.IntN(256)), byte(k.IntN(256)), 9}),
			FromPort: new(uint16(2000)), ToPort: new(uint16(9999)), TTL: new(uint8(50)),
			Payload: make([]byte, 64)}))
	}
	k.text = judgeText
	k.replace(t)
	return k
}

// replace puts another policy into force, which takes live rules with it.
func (k *fakeKernel) replace(t *testing.T) {
	t.Helper()
	p, ds := resolve.Parse("p", []byte(k.text), nil)
	if p == nil {
		t.Fatal(ds)
	}
	p.Detects[0].Lease, p.Detects[0].Quiet = 10*time.Second, 6*time.Second
	k.mu.Lock()
	defer k.mu.Unlock()
	k.base = p
	k.state.Generation++
	k.load(nil)
}

// load judges by rules, each in front of another one or of the default.
func (k *fakeKernel) load(rules []inspect.LiveRule) {
	lines := strings.Split(k.text, "\n")
	for _, r := range rules {
		at := slices.IndexFunc(lines, func(l string) bool {
			return r.Before != "" && l == r.Before || strings.HasPrefix(l, "default ")
		})
		lines = slices.Insert(lines, at, k.lab.scaled(r.Rule))
	}
	k.with, _ = resolve.Parse("p", []byte(strings.Join(lines, "\n")), nil)
	k.slots = k.with.Slots()
	k.rules, k.judge, k.counts = rules, oracle.New(k.with), map[string]episode.Count{}
	k.judged = map[*byte]oracle.Result{}
	k.program++
	if len(rules) == 0 {
		k.state.Program = k.program
	}
}

// expire ends live rules with their lease.
func (k *fakeKernel) expire() {
	k.lab.advance(k, time.Now())
	if len(k.rules) > 0 && time.Now().After(k.until) {
		k.load(nil)
	}
}

func (k *fakeKernel) texts() (out []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	for _, r := range k.rules {
		out = append(out, r.Rule)
	}
	return out
}

func (k *fakeKernel) policy() (*policy.Policy, inforce.State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.base, k.state
}

func (k *fakeKernel) sample(context.Context, string) (sampler, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read = time.Now()
	return fakeSampler{k}, nil
}

func (k *fakeKernel) put(ctx context.Context, o dataplane.LiveOptions,
	_ dataplane.CompileFunc) error {
	await.Pass(20*time.Millisecond, "a change takes a while")
	k.lab.prove(k, o.Proven)
	return k.change(ctx, o.Over, o.Rules, o.Lease)
}

func (k *fakeKernel) down(ctx context.Context, _ string) error {
	_, state := k.policy()
	return k.change(ctx, state, nil, 0)
}

func (k *fakeKernel) change(ctx context.Context, over inforce.State, rules []inspect.LiveRule,
	lease time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	before, behind := k.before, k.behind
	k.before, k.behind = nil, nil
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case before != nil:
		return before
	case over.Generation != k.state.Generation:
		return dataplane.ErrOtherPolicy
	}
	k.puts++
	k.until = time.Now().Add(lease)
	k.load(rules)
	return behind
}

func (k *fakeKernel) renew(_ context.Context, _ string, lease time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.expire(); len(k.rules) == 0 {
		return dataplane.ErrNotLive
	}
	k.until = time.Now().Add(lease)
	return nil
}

func (k *fakeKernel) live(context.Context, string) (*inspect.LiveRules,
	map[string]episode.Count, error) {
	texts := k.texts()
	if len(texts) == 0 {
		return nil, nil, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]episode.Count{}
	for label, n := range k.counts {
		out[label] = n
	}
	return &inspect.LiveRules{Rules: texts}, out, nil
}

func (k *fakeKernel) ready(context.Context, string) error { return nil }

// sent is a tenth of what comes of the good traffic, where somebody says so.
func (k *fakeKernel) sent(string) (uint64, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lab != nil {
		k.lab.advance(k, time.Now())
		return uint64(k.lab.sent), !k.lab.untold
	}
	return uint64(time.Since(k.begun).Seconds() * goodSampled / 10), k.tells
}

func (k *fakeKernel) refused() sent.Refusals {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lab == nil {
		return sent.Refusals{}
	}
	k.lab.advance(k, time.Now())
	return sent.Refusals{Told: true, Resets: uint64(k.lab.refused),
		Unwanted: uint64(k.lab.unwanted)}
}

func (k *fakeKernel) elsewhere(string) (sent.Traffic, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lab == nil {
		return sent.Traffic{}, false
	}
	k.lab.advance(k, time.Now())
	others := uint64(k.lab.others)
	return sent.Traffic{In: others, Out: others, Loop: uint64(k.lab.loop)}, true
}

type fakeSampler struct{ *fakeKernel }

func (fakeSampler) Follow(context.Context) error { return nil }
func (fakeSampler) Link() packet.Link            { return packet.Ethernet }
func (s fakeSampler) SetRate(each int) error     { return s.lab.setRate(s.fakeKernel, each) }
func (fakeSampler) Close()                       {}

func (s fakeSampler) Program() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.program
}

// Read gives what came since the last time.
func (s fakeSampler) Read(tell func(tap.Sampled)) error {
	s.mu.Lock()
	s.expire()
	if s.lab != nil {
		out := s.lab.taken()
		s.mu.Unlock()
		for _, one := range out {
			tell(one)
		}
		return nil
	}
	now, from := time.Now(), s.read
	s.read = now
	var out []tap.Sampled
	add := func(all [][]byte, each int, weight float64) {
		n := int(float64(each) * now.Sub(from).Seconds())
		for i := range n {
			b := all[s.IntN(len(all))]
			r, known := s.judged[&b[0]]
			if !known {
				r = s.judge.Eval(b)
				s.judged[&b[0]] = r
			}
			one := tap.Sampled{At: from.Add(now.Sub(from) * time.Duration(i+1) / time.Duration(n)),
				Weight: uint64(weight), Slot: r.Slot, By: s.slots[r.Slot].ID,
				Passed: r.Action == action.Pass, Bytes: len(b), Packet: b[:min(len(b), snap)]}
			if at := r.Slot - s.with.RuleSlot(0); !one.Passed && at >= 0 &&
				at < len(s.with.Rules) {
				c := s.counts[s.with.Rules[at].Label]
				c.Packets += one.Weight
				s.counts[s.with.Rules[at].Label] = c
			}
			out = append(out, one)
		}
	}
	add(s.good, s.calm, float64(goodSampled/s.calm))
	if s.rate > 0 {
		add(s.flood, s.sampled, s.rate/float64(s.sampled))
	}
	s.mu.Unlock()
	for _, one := range out {
		tell(one)
	}
	return nil
}

// shell is an agent's watcher of an interface, with files of incidents and of what is usual that
// outlive it.
type shell struct {
	*testing.T
	k     *fakeKernel
	path  string
	store *incident.Store
	dev   string
	peers *peers.Table
	w     *Watcher
	end   func()
}

func newShell(t *testing.T, seed uint64) *shell {
	s := &shell{T: t, k: newFakeKernel(t, seed), path: memoryDir(t) + "/incidents.json",
		dev: "eth0"}
	s.begin()
	return s
}

// memoryDir is a directory in memory where the machine has one: files that are written a hundred
// times in a schedule take most of its time on a disk.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "levee-t")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// begin is an agent that begins.
func (s *shell) begin() {
	s.store = incident.OpenStore(s.path)
	s.w = New(Options{Dev: s.dev, Incidents: s.store, kernel: s.k, Peers: s.peers,
		Baselines: OpenBaselines(filepath.Join(filepath.Dir(s.path), "baselines.json")),
		Policy: func(context.Context) (*policy.Policy, inforce.State, error) {
			p, state := s.k.policy()
			return p, state, nil
		},
		InForce: &inforce.Watcher{Look: func(context.Context) ([]inforce.State, error) {
			_, state := s.k.policy()
			return []inforce.State{state}, nil
		}},
		Allowed: func(context.Context, *policy.Policy) error { return nil },
		Log:     s.Logf,
	})
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan error, 1)
	go func() { done <- s.w.Run(ctx) }()
	s.end = func() {
		cancel()
		if err := <-done; err != nil {
			s.Errorf("the watcher ended: %v", err)
		}
		if err := s.w.Baselines.save(); err != nil {
			s.Error(err)
		}
	}
}

// floods has the flood come at a rate, none at 0.
func (s *shell) floods(rate float64) {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	s.k.rate = rate
}

// passes waits, and holds all the while that no rule is in force without an incident.
func (s *shell) passes(long time.Duration) {
	s.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); {
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		for _, text := range s.k.texts() {
			_, label, _ := strings.Cut(text, ` as "flood-`)
			id, _, _ := strings.Cut(label, "-")
			if _, ok := s.store.Get(id); !ok {
				s.Fatalf("%q is in force without an incident", text)
			}
		}
	}
}

// over is that after a time of quiet nothing is in force, and no incident is open.
func (s *shell) over() {
	s.Helper()
	s.floods(0)
	for range 9 {
		s.passes(5 * time.Second)
		if len(s.k.texts()) == 0 && !slices.ContainsFunc(s.store.List(),
			func(i incident.Incident) bool { return i.Closed == nil }) {
			break
		}
	}
	if rules := s.k.texts(); len(rules) > 0 {
		s.Errorf("after a time of quiet: %q", rules)
	}
	for _, i := range s.store.List() {
		if i.Closed == nil {
			s.Errorf("after a time of quiet: %s, %s", i.State, i.Sentence)
		}
	}
}

var errKernel = errors.New("the kernel says no")
