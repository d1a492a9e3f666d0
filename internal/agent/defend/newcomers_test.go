package defend

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/known"
	"levee/internal/agent/newcomers"
	"levee/internal/dataplane/inspect"
	"levee/internal/packet"
)

// TestNewClientsAreServedBesideWhoSendsAgain: a greylist does not help against a sender that sends
// each packet again after a while. In the limit on strangers behind it new clients lost 99 % as
// long as the flood went on.
func TestNewClientsAreServedBesideWhoSendsAgain(t *testing.T) {
	flood := sentTwice()
	before, later := sessions(100, 77, 0), sessions(100, 78, 22*time.Second)
	known := sessions(100, 78, 27*time.Second) // the same, five seconds after they came
	a := attacked(t, 20*time.Second, 18*time.Second, flood, before, later, known)
	lost, worse := later.dropped/later.came, known.dropped/known.came
	if a.dropped < 0.99 || a.lost > 0.001 || lost > 0.4 || worse > 0.1 {
		t.Errorf("%.2f %% dropped from two seconds on, %.3f %% of clients' packets, %.1f %% of "+
			"new ones, %.1f %% of these five seconds later: %+v", 100*a.dropped, 100*a.lost,
			100*lost, 100*worse, a.all)
	}
	if told := strings.Count(strings.Join(a.all[0].Notes, "\n"), "spared"); told != 1 {
		t.Errorf("the incident says %d times how many are spared: %q", told, a.all[0].Notes)
	}
	if rules := a.all[0].Rules; !strings.Contains(rules[len(rules)-1].Rule, ", 78.") {
		t.Errorf("no newcomer is spared: %+v", rules)
	}
}

// sentTwice is a flood that sends each packet again.
func sentTwice() *stream {
	var sent []packet.Spec
	return &stream{rate: 60_000, make: func(r *rand.Rand) packet.Spec {
		if len(sent) < 1600 || len(sent)%2 == 0 {
			s := likeClients(r)
			s.From, s.ToPort = forgedSource(r), new(uint16(27015))
			sent = append(sent, s)
			return s
		}
		sent = append(sent, packet.Spec{})
		return sent[len(sent)-1600] // 0.4 s ago
	}}
}

// TestBotsThatWaitedAreSparedNoMore: 140 of them sent as clients do until the limit spared them,
// and then 64 packets a second each. 86 % of these passed for as long as they came; it is four
// seconds.
func TestBotsThatWaitedAreSparedNoMore(t *testing.T) {
	bots := func(after time.Duration) *stream {
		s := sessions(140, 78, after)
		like := s.make
		s.make = func(r *rand.Rand) packet.Spec {
			out := like(r)
			own := out.From.As4()
			seed := uint64(binary.BigEndian.Uint32(own[:]))
			out.From = forgedSource(rand.New(rand.NewPCG(seed, 9)))
			return out
		}
		return s
	}
	before, later, then := sessions(100, 77, 0), bots(22*time.Second), bots(32*time.Second)
	then.rate, then.answers = 9000, 0
	a := attacked(t, 20*time.Second, 30*time.Second, sentTwice(), before, later, then)
	if passed := 1 - then.dropped/then.came; passed > 0.3 || before.dropped > 0.02*before.came {
		t.Errorf("%.1f %% of what bots sent passed, %.2f %% of clients' packets were lost: %+v",
			100*passed, 100*before.dropped/before.came, a.all)
	}
}

// TestNewClientsAreServedBesideBotsThatSendOn: beside 6,000 bots with a port each 98 % of what new
// clients sent was dropped for as long as these came.
func TestNewClientsAreServedBesideBotsThatSendOn(t *testing.T) {
	before, later := sessions(100, 77, 0), sessions(100, 79, 26*time.Second)
	known := sessions(100, 79, 34*time.Second) // the same, eight seconds after they came
	flood := &stream{rate: 60_000, make: func(r *rand.Rand) packet.Spec {
		s := likeClients(r)
		from, _, own := bot(r, 6000)
		s.From, s.FromPort, s.ToPort = from, labPort(own), new(uint16(27015))
		return s
	}}
	a := attacked(t, 20*time.Second, 20*time.Second, flood, before, later, known)
	lost := known.dropped / known.came
	if a.dropped < 0.99 || a.lost > 0.001 || before.dropped > 0.001*before.came || lost > 0.7 {
		t.Errorf("%.2f %% dropped from two seconds on, %.3f %% of clients' packets, %.1f %% of "+
			"sessions, %.1f %% of new ones eight seconds later: %+v", 100*a.dropped, 100*a.lost,
			100*before.dropped/before.came, 100*lost, a.all)
	}
}

// TestAnotherAgentKnowsNewcomers that an agent before it has spared. They kept their places for
// good, whatever they sent. A limit that came later named none of those that another one spared,
// and dropped what they sent on.
func TestAnotherAgentKnowsNewcomers(t *testing.T) {
	const first = `limit udp not from { 192.0.2.1, 203.0.113.7, 203.0.113.8 } rate 90/s ` +
		`as "flood-1-1"`
	const second = `limit icmp not from { 192.0.2.1 } rate 90/s as "flood-2-1"`
	k, now := newFakeKernel(t, 1), time.Now()
	k.load([]inspect.LiveRule{{Rule: first}, {Rule: second}})
	k.until = now.Add(time.Minute)
	store := incident.OpenStore(filepath.Join(t.TempDir(), "incidents.json"))
	for n, rule := range []string{first, second} {
		r := incident.Rule{Rule: rule, Label: episode.Label(strconv.Itoa(n+1), 1, 0),
			Action: episode.Limit, State: incident.Live, Since: &now}
		if r.Spared = 2; n > 0 {
			r.Spared = 0
		}
		i := incident.Incident{ID: store.Next(), Detector: "floods", Dev: "eth0",
			State: incident.Open, Began: now, Acted: &now, Rules: []incident.Rule{r}}
		if err := store.Put(i); err != nil {
			t.Fatal(err)
		}
	}
	base, _ := k.policy()
	w := New(Options{Dev: "eth0", Incidents: store, kernel: k, Log: t.Logf})
	w.base = base
	w.step(t.Context(), episode.Event{Policy: &episode.Policy{Detects: base.Detects}})
	w.adopt(t.Context())
	w.floods.Step(now, episode.Event{Second: &episode.Second{}}) // whose change stays unanswered
	texts := func() (out []string) {
		limits, _, _ := w.floods.Strangers(now)
		for _, l := range limits {
			out = append(out, l.Rule.Rule)
		}
		slices.Sort(out)
		return out
	}
	w.welcome(t.Context(), now)
	both := strings.Replace(second, " }", ", 203.0.113.7, 203.0.113.8 }", 1)
	if got := texts(); !slices.Equal(got, []string{both, first}) {
		t.Errorf("limits are %q", got)
	}
	w.newcomers.Came(now, netip.MustParseAddr("203.0.113.7"), 1000)
	w.dismiss(t.Context(), now.Add(time.Second))
	want := []string{strings.Replace(both, ", 203.0.113.7", "", 1),
		strings.Replace(first, ", 203.0.113.7", "", 1)}
	if got := texts(); !slices.Equal(got, want) {
		t.Errorf("limits are %q", got)
	}
}

// TestALimitHasRoomForSoManyNewcomers: a list of a rule has 256 places.
func TestALimitHasRoomForSoManyNewcomers(t *testing.T) {
	var more []netip.Prefix
	for i := range 2 * known.Most {
		a := netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})
		more = append(more, netip.PrefixFrom(a, 32))
	}
	more = append(more, netip.MustParsePrefix("198.51.100.9/32"),
		netip.MustParsePrefix("2001:db8::/64"))
	const text = `limit udp not from { 192.0.2.1, 198.51.100.0/24 } to 192.0.2.9 rate 90/s as "f"`
	for _, c := range []struct {
		more []netip.Prefix
		n    int
		want string
	}{
		{more[:1], 1, strings.Replace(text, " }", ", 203.0.0.0 }", 1)},
		{more[2*known.Most:], 0, text},
		{more, known.Most - 2, ""},
	} {
		got, added := newcomers.Sparing(text, c.more)
		n := len(added)
		if less, back := newcomers.Without(got, added); less != text || back != n {
			t.Errorf("without %d that were added: %d are gone: %s", n, back, less)
		}
		if n != c.n || c.want != "" && got != c.want {
			t.Errorf("%d of %d: %s", n, len(c.more), got)
		}
		if _, ok := valid(got); !ok {
			t.Errorf("no rule: %s", got)
		}
	}
	if _, added := newcomers.Sparing(`limit udp rate 90/s as "f"`, more); len(added) > 0 {
		t.Errorf("a limit without a list spares %d", len(added))
	}
}

// TestAMachineOfManyCPUsTakesNoMoreSamples than the agent reads: it had 20,000 of each.
func TestAMachineOfManyCPUsTakesNoMoreSamples(t *testing.T) {
	for _, c := range []struct{ busy, idle, want int }{{0, 0, floodRate}, {1, 7, floodRate},
		{2, 0, floodRate}, {4, 4, lookRate / 4}, {64, 0, calmRate}} {
		packets := map[int]float64{}
		for n := range c.busy + c.idle {
			if packets[n] = 50; n < c.busy {
				packets[n] = 10_000 + float64(n)
			}
		}
		if got := lookEach(packets); got != c.want {
			t.Errorf("%d CPUs that are busy, and %d: %d, want %d", c.busy, c.idle, got, c.want)
		}
	}
}
