package difftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// wrong is the oracle with a fault.
type wrong struct {
	*oracle.Evaluator
	counts []uint64
	fault  func(n int, r *oracle.Result)
	n      int
}

func (w *wrong) Eval(frame []byte) (int, action.Action, error) {
	w.n++
	r := w.Evaluator.Eval(frame)
	w.fault(w.n, &r)
	for _, s := range append(r.Counted, r.Slot) {
		w.counts[s]++
	}
	return r.Slot, r.Action, nil
}

func (w *wrong) Packets() []uint64 { return w.counts }

// faultFrames is the number of frames in each comparison below.
const faultFrames = 500

// countingPolicy is the first generated policy whose rules count some frame without deciding it,
// and that has no dynamic sets: nobody fills those of a faulty oracle.
func countingPolicy(t *testing.T) Case {
	for seed := uint64(0); ; seed++ {
		p, text, err := Policy(seed)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(p.Sets,
			func(s *policy.Set) bool { return s.Kind == policy.Dynamic }) {
			continue
		}
		c, counted := Case{Policy: p, Text: text, Seed: seed, Frames: faultFrames}, 0
		w := &wrong{Evaluator: oracle.New(p), counts: make([]uint64, len(p.Slots())),
			fault: func(_ int, r *oracle.Result) { counted += len(r.Counted) }}
		if _, err := Compare(t.Context(), c, w); err != nil {
			t.Fatal(err)
		}
		if counted > 0 {
			return c
		}
	}
}

func TestCompareFindsFaults(t *testing.T) {
	c := countingPolicy(t)
	p := c.Policy
	tests := []struct {
		name, want string
		fault      func(int, *oracle.Result)
	}{
		{"none", "", func(int, *oracle.Result) {}},
		{"another verdict", "frame 77\n", func(n int, r *oracle.Result) {
			if n == 77 {
				r.Action ^= 1
			}
		}},
		{"another slot", "frame 5\n", func(n int, r *oracle.Result) {
			if n == 5 {
				r.Slot = p.DefaultSlot() - r.Slot
			}
		}},
		{"a slot that is not there", "which the policy does not have",
			func(n int, r *oracle.Result) {
				if n == 5 {
					r.Slot = 9999
				}
			}},
		{"a count that is missing", " packets: ",
			func(n int, r *oracle.Result) { r.Counted = nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := &wrong{Evaluator: oracle.New(p), counts: make([]uint64, 10000), fault: tt.fault}
			engine := Engine(w)
			if tt.name != "a slot that is not there" {
				w.counts = make([]uint64, len(p.Slots()))
			}
			stats, err := Compare(t.Context(), c, engine)
			if tt.want == "" {
				if err != nil || stats.Frames != faultFrames {
					t.Fatalf("%d frames, %v", stats.Frames, err)
				}
				return
			}
			d, ok := errors.AsType[*Difference](err)
			if !ok || !strings.Contains(d.Error(), tt.want) ||
				!strings.Contains(d.Error(), fmt.Sprintf("seed %d,", c.Seed)) ||
				!strings.Contains(d.Error(), "default ") {
				t.Errorf("got %v; want a difference with %q, the seed and the policy", err, tt.want)
			}
		})
	}
}

func TestCompareStopsWithItsContext(t *testing.T) {
	p, text, err := Policy(2)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Compare(ctx, Case{Policy: p, Text: text, Frames: 10}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// asksState reports whether a rule asks for connections or for clients that are proven, of which
// there are none without engines.
func asksState(r *policy.Rule) bool {
	return slices.ContainsFunc(r.Match,
		func(t policy.Term) bool { return t.Looks(field.Flow, field.Proven) })
}

// The frames are worth nothing if they miss what the policies are about.
func TestFramesReachWhatPoliciesDecide(t *testing.T) {
	rules, decided := 0, 0
	reasons := map[policy.Reason]int{}
	malformed := map[int]int{}
	for seed := range uint64(100) {
		p, text, err := Policy(seed)
		if err != nil {
			t.Fatal(err)
		}
		stats, err := Compare(t.Context(), Case{Policy: p, Text: text, Seed: seed, Frames: 2000})
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range p.Slots() {
			reasons[s.Reason] += stats.Decided[i]
			switch {
			case s.Reason == policy.ByMalformed:
				malformed[i] += stats.Decided[i]
			case s.Reason == policy.ByRule && s.Action.Decides() && !asksState(s.Rule):
				rules++
				if stats.Decided[i] > 0 {
					decided++
				}
			}
		}
	}
	t.Logf("%d of %d rules decided a frame; frames by reason %v, malformed %v", decided, rules,
		reasons, malformed)
	if decided*5 < rules*2 {
		t.Errorf("only %d of %d rules decided a frame", decided, rules)
	}
	for r := policy.ByMalformed; r <= policy.ByDefault; r++ {
		if reasons[r] < 500 {
			t.Errorf("%d of 200,000 frames decided by %s", reasons[r], r)
		}
	}
	for i, name := range policy.Malformed {
		// TestFragmentsAgreeWithTheOracle has those that show beside other fragments.
		if malformed[i] < 50 && !packet.Malformed(i+1).BesideOthers() {
			t.Errorf("%d of 200,000 frames are %s", malformed[i], name)
		}
	}
}

func TestPacketsAreRepeatableAndBounded(t *testing.T) {
	p, _, err := Policy(3)
	if err != nil {
		t.Fatal(err)
	}
	first := slices.Collect(Packets(p, 9, 5000))
	if !slices.EqualFunc(first, slices.Collect(Packets(p, 9, 5000)), bytes.Equal) {
		t.Error("the seed does not decide the frames")
	}
	short, tags, chains, headers := 0, map[int]int{}, map[int]int{}, map[packet.Transport]int{}
	for _, f := range first {
		if len(f) > 3500 {
			t.Fatalf("a frame of %d bytes", len(f))
		}
		if len(f) < 14 {
			short++
		}
		var d packet.Packet
		packet.Decode(f, &d)
		tags[d.Tags]++
		chains[d.ExtensionHeaders]++
		headers[d.Transport]++
	}
	if short == 0 || len(tags) != 3 || len(chains) != 9 || len(headers) != 5 {
		t.Errorf("%d short frames, tags %v, extension headers %v, transports %v", short, tags,
			chains, headers)
	}
	for range Packets(p, 9, 5000) {
		break // the sequence stops when it is told to
	}
}

// Every word of a match occurs in the generated policies.
func TestGenerateUsesTheWholeLanguage(t *testing.T) {
	var all bytes.Buffer
	for seed := range uint64(300) {
		all.Write(Generate(seed))
	}
	text := all.String()
	for _, word := range strings.Split(`interface eth|essential off|connections max |on error pass|on error drop|= file("|= dynamic(max |, lease |protect |pass |drop |count |`+
		`default pass|default drop| malformed| as "|test "| from any| not from | not to | from port | to port | port {| port >| not port |`+
		` tcp| udp| udplite| sctp| dccp| icmp| icmp6| igmp| gre| esp| ah| ospf| ipip| proto {| proto !=| ipv4| ipv6| arp| icmp type | icmp6 type |`+
		` syn| not syn| flags none/| flags syn,ack| len >| len {| ttl <=| dscp ef| dscp =| vlan {| inner-vlan | untagged| not untagged| ether 0x88cc|`+
		` ether {| ether from | ether to {| fragments| not fragments| from net0| from listed| to found0| port doors0| to offers0| from offers0`, "|") {
		if !strings.Contains(text, word) {
			t.Errorf("no policy has %q", word)
		}
	}
}
