package region

import (
	"bytes"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"levee/internal/filter/difftest"
	"levee/internal/filter/ir"
	"levee/internal/filter/oracle"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// TestWhoGetsThereIsWhatPacketsShow asks generated policies, and holds the answer against packets
// that the oracle says the question is about.
func TestWhoGetsThereIsWhatPacketsShow(t *testing.T) {
	t.Parallel()
	questions := []string{"tcp", "tcp port 0-1023", "udp to 0.0.0.0/1", "icmp6", "proto 0-50",
		"ipv6 to 2001:db8::/33", "untagged", "from port 53 udp", "fragments"}
	packets, said := 0, 0
	for seed := range uint64(18) {
		plain, text, err := difftest.Policy(seed)
		if err != nil {
			t.Fatal(err)
		}
		q, ds := Ask("p.levee", text, questions[seed%uint64(len(questions))],
			func(path string) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(difftest.SetFile(seed, path))), nil
			})
		if q == nil {
			t.Fatal(ds)
		}
		answers := q.Who()
		of := judge{policy: q.Policy}
		said += len(answers.Ways)
		for frame := range difftest.Packets(plain, seed, 300) {
			res := of.of().Eval(frame)
			var pkt packet.Packet
			packet.Decode(frame, &pkt)
			about := slices.Contains(res.Counted, q.slot) || asks(q, frame)
			if !about || pkt.Malformed != 0 || found(q.Policy, res.Slot) || answers.Open {
				continue
			}
			packets++
			if !answers.say(res.Slot, ir.ClassOf(&pkt), pkt.Src) {
				t.Fatalf("seed %d: %s by %s is not said: %x\n%s", seed, res.Action,
					ruleText(q.Policy, res.Slot), frame, text)
			}
		}
	}
	t.Logf("%d packets, %d ways", packets, said)
	if packets < 200 {
		t.Errorf("only %d packets that a question is about", packets)
	}
}

// found says whether a packet was malformed by what packets before it say, or by what it quotes.
func found(p *policy.Policy, slot int) bool {
	s := p.Slots()[slot]
	return s.Reason == policy.ByMalformed || s.Rule != nil && s.Rule.Malformed
}

// asks says whether a packet is one that a question is about, where a protect rule is in front.
func asks(q *Question, frame []byte) bool {
	p := *q.Policy
	p.Protect, p.Rules = nil, p.Rules[:1]
	return len(oracle.New(&p).Eval(frame).Counted) > 0
}

func (a *Answers) say(slot int, c ir.Class, src netip.Addr) bool {
	return slices.ContainsFunc(a.Ways, func(w Way) bool {
		return w.Slot == slot && slices.ContainsFunc(w.From, func(f Sources) bool {
			return slices.Contains(f.Classes, c) && (f.All || slices.ContainsFunc(f.Prefixes,
				func(p netip.Prefix) bool { return p.Contains(src) }))
		})
	})
}

// TestAQuestionsWords shows what people read.
func TestAQuestionsWords(t *testing.T) {
	const text = `interface eth0
set admins = { 10.0.0.0/8, 192.0.2.7, 2001:db8::/32 }
set blocked = dynamic(max 100)
drop from blocked
pass tcp port 22 from admins
limit tcp port 443 rate 100/s by source
pass tcp port { 80, 443 }
default drop
`
	for match, want := range map[string]string{
		"ipv4 tcp port 22": `pass  p.levee:5  pass tcp from admins port 22
    from 10.0.0.0/8, 192.0.2.7, if not from set blocked  (IPv4 TCP)
drop  p.levee:4  drop from blocked
    from anywhere, if from set blocked  (IPv4 TCP)
`,
		"tcp port 443 from 2001:db8::1": `pass  p.levee:7  pass tcp port { 80, 443 }
    from 2001:db8::1, if not from set blocked, if not above "limit tcp port 443 rate 100/s by source"  (IPv6 TCP)
`,
	} {
		q, ds := Ask("p.levee", []byte(text), match, nil)
		if q == nil {
			t.Fatal(ds)
		}
		told := q.Tell(q.Who())
		var b bytes.Buffer
		told.Print(&b)
		if !strings.HasPrefix(b.String(), want) {
			t.Errorf("%s:\n%s\nwant\n%s", match, b.String(), want)
		}
	}
}

func TestABadQuestionIsRefused(t *testing.T) {
	for _, match := range []string{"tcp port", "tcp\ndefault pass", "from nobody", "pass tcp"} {
		q, ds := Ask("p.levee", []byte("default drop\n"), match, nil)
		if q != nil || !ds.HasErrors() {
			t.Errorf("%q: %v, %v", match, q, ds)
		}
	}
}

// TestNoPacketIsShownThatCannotBe: an echo request is no answer, so no connection passes it, and
// what ends behind its UDP header has no byte of payload.
func TestNoPacketIsShownThatCannotBe(t *testing.T) {
	const text = `pass established
pass icmp type echo-request
pass udp port 53 payload at 0 00
default drop
out pass udp port 53 dns name "a.example"
out default pass
`
	const apart = `pass tcp port 22
default drop
out pass udp port 53 dns name "a.example"
out default pass
`
	for _, c := range []struct {
		text, match string
		slots       []string
	}{
		{text, "icmp type echo-request", []string{"pass icmp type echo-request"}},
		{text, "icmp type echo-reply", []string{"pass established", "default"}},
		{text, "udp port 53 ipv4 len 28", []string{"pass established", "default"}},
		{text, "udp port 53 ipv4 len 29", []string{"pass established",
			"pass udp port 53 payload at 0 00", "default"}},
		// programs cannot ask both, a question may
		{apart, "out gid 5 udp port 53", []string{
			`out pass udp port 53 dns name "a.example"`, "default"}},
	} {
		q, ds := Ask("p.levee", []byte(c.text), c.match, nil)
		if q == nil {
			t.Fatal(ds)
		}
		var got []string
		for _, way := range q.Who().Ways {
			name := "default"
			if r := q.Policy.Slots()[way.Slot].Rule; r != nil {
				name = r.Text
			}
			got = append(got, name)
		}
		if !slices.Equal(got, c.slots) {
			t.Errorf("%s: %q, want %q", c.match, got, c.slots)
		}
	}
}
