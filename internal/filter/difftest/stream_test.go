package difftest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"testing"

	"levee/internal/filter/oracle"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// streams is the number of streams of each kind that are sent in pieces.
var streams = flag.Int("streams", 24, "streams for each expression and way to cut them")

// piece is a part of a stream that is sent at once.
type piece struct{ from, end int }

// cuts are ways to send a stream. All send each byte, some of them too early or twice.
var cuts = map[string]func(r *rand.Rand, n int) []piece{
	"whole":        func(_ *rand.Rand, n int) []piece { return []piece{{0, n}} },
	"byte by byte": func(_ *rand.Rand, n int) []piece { return split(n, func() int { return 1 }) },
	"split": func(r *rand.Rand, n int) []piece {
		return split(n, func() int { return 1 + r.IntN(90) })
	},
	"twice": func(r *rand.Rand, n int) (all []piece) {
		for _, p := range split(n, func() int { return 1 + r.IntN(90) }) {
			all = append(all, p, piece{max(0, p.from-r.IntN(99)), p.end - r.IntN(2)})
		}
		return all
	},
	"reordered": func(r *rand.Rand, n int) []piece {
		all := split(n, func() int { return 1 + r.IntN(90) })
		for i := range all {
			if j := i + r.IntN(2); j < len(all) {
				all[i], all[j] = all[j], all[i]
			}
		}
		return all
	},
	"dropped where early": func(r *rand.Rand, n int) []piece {
		all := split(n, func() int { return 1 + r.IntN(90) })
		for i := len(all) - 2; i > 0; i -= 3 { // and again, in order
			all = append(all[:i+1], append([]piece{all[i-1]}, all[i:]...)...)
			all[i-1], all[i] = all[i], all[i-1]
		}
		return all
	},
}

func split(n int, next func() int) (all []piece) {
	for from := 0; from < n; {
		end := min(n, from+next())
		all = append(all, piece{from, end})
		from = end
	}
	return all
}

// TestAStreamIsAnsweredAsRegexpAnswersTheWhole: in whatever pieces a stream comes, the answer about
// all that a segment completes is that of package regexp about these bytes, or that nobody knows.
// Program and oracle give the same.
func TestAStreamIsAnsweredAsRegexpAnswersTheWhole(t *testing.T) {
	needRoot(t)
	for _, want := range []struct{ find, regexp string }{
		{`"abba"`, "abba"},
		{`{ "aad", "bcab", 626262 }`, "aad|bcab|bbb"},
		{`/^a+b[^c]*d/`, `^a+b[^c]*d`},
		{`/d.{1,3}c[ab]{4}/ within 500 bytes`, `d.{1,3}c[ab]{4}`},
	} {
		t.Run(want.find, func(t *testing.T) {
			text := fmt.Sprintf("drop tcp port 80 stream contains %[1]s as \"yes\"\n"+
				"drop tcp port 80 not stream contains %[1]s as \"no\"\n"+
				"pass tcp port 80 not stream contains %[1]s or unknown as \"unknown\"\n"+
				"default drop\n", want.find)
			pol, ds := resolve.Parse("stream.levee", []byte(text), nil)
			if ds.HasErrors() {
				t.Fatal(ds.Err())
			}
			within := 0
			for _, m := range pol.Rules[0].Match {
				if m.Pattern != nil {
					within = m.Pattern.Within
				}
			}
			c := Case{Policy: pol, Link: packet.Ethernet, Text: []byte(text), Seed: 1}
			e, err := compileCase(c, false)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			o, clock := oracle.New(pol), newClock(1, []Engine{e})
			o.SetClock(clock.now)
			r := &comparison{c: c, oracle: o, clock: clock, engines: []Engine{e}}
			first := newSender(clock.rand) // what leaves counts only behind what has come
			e.Eval(r.segment(first.client, first.server, 1, 1, packet.SYN, nil))
			yes, no, re := pol.RuleSlot(0), pol.RuleSlot(1), regexp.MustCompile(want.regexp)
			answers := map[string]map[int]int{}
			for name, cut := range cuts {
				answers[name] = map[int]int{}
				most := 2900
				if name == "byte by byte" {
					most = 300 // each is a packet
				}
				for n := range *streams {
					s := newSender(clock.rand)
					s.server = netip.AddrPortFrom(s.server.Addr(), 80)
					data := s.bytes[:1+clock.rand.IntN(min(len(s.bytes), most))]
					leave := r.segment(s.server, s.client, s.proof-1, s.first,
						packet.SYN|packet.ACK, nil)
					if _, err := r.leave(leave); err != nil {
						t.Fatal(err)
					}
					for _, p := range cut(clock.rand, len(data)) {
						f := r.segment(s.client, s.server, s.first+uint32(p.from), s.proof,
							packet.ACK|packet.PSH, data[p.from:p.end])
						slot, _, err := e.Eval(f)
						if err != nil {
							t.Fatal(err)
						}
						if got := o.Eval(f); got.Slot != slot {
							t.Fatalf("%s, %d: the program says %d, the oracle %d of %v", name, n,
								slot, got.Slot, p)
						}
						answers[name][slot]++
						whole := data[:min(p.end, within)]
						all := data[:min(len(data), within)]
						switch is := re.Match(all); {
						case slot == yes && !is, slot == no && re.Match(whole):
							t.Fatalf("%s, %d: %v of %q is answered by slot %d", name, n, p, data,
								slot)
						}
					}
				}
			}
			all := map[int]int{}
			for name, is := range answers {
				early := name == "reordered" || name == "dropped where early"
				if !early && is[yes+2] > 0 {
					t.Errorf("%s: %v", name, is)
				}
				for slot, n := range is {
					all[slot] += n
				}
			}
			if all[yes] == 0 || all[no] == 0 || all[yes+2] == 0 {
				t.Errorf("an answer is missing: %v", answers)
			}
			t.Log(answers)
		})
	}
}

// TestAConnectionOfTheSameNumberIsSearched: a client that ends a connection and begins another from
// its port may choose the number of its first byte again. What was known of the bytes before was
// taken for known of those behind: a search that had ended answered "no" about all of them.
func TestAConnectionOfTheSameNumberIsSearched(t *testing.T) {
	needRoot(t)
	const text = `drop tcp port 80 stream contains "evil" within 16 bytes as "yes"
drop tcp port 80 not stream contains "evil" within 16 bytes as "no"
pass tcp port 80 as "unknown"
default drop
`
	pol, ds := resolve.Parse("stream.levee", []byte(text), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	c := Case{Policy: pol, Link: packet.Ethernet, Text: []byte(text), Seed: 1}
	e, err := compileCase(c, false)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	o, clock := oracle.New(pol), newClock(1, []Engine{e})
	o.SetClock(clock.now)
	r := &comparison{c: c, oracle: o, clock: clock, engines: []Engine{e}}
	s := newSender(clock.rand)
	s.server = netip.AddrPortFrom(s.server.Addr(), 80)
	e.Eval(r.segment(s.client, s.server, s.first-1, 0, packet.SYN, nil))
	for i, step := range []struct {
		proof uint32 // that an answer to a SYN asks for first; 0 if none leaves
		at    uint32
		says  string
		is    string
	}{
		{1, 0, "all is well here", "no"},
		{0, 16, "evil", "no"}, // behind what is searched
		{1, 0, "evil", "no"},  // the answer is repeated: bytes of these numbers were there
		{7, 0, "it is evil", "yes"},
		{0, 10, " still", "yes"},
		{9, 0, "all", "no"},
		{0, 3, " evil", "yes"},
	} {
		if step.proof > 0 {
			s.proof = step.proof
			if _, err := r.leave(r.segment(s.server, s.client, s.proof-1, s.first,
				packet.SYN|packet.ACK, nil)); err != nil {
				t.Fatal(err)
			}
		}
		f := r.segment(s.client, s.server, s.first+step.at, s.proof, packet.ACK|packet.PSH,
			[]byte(step.says))
		slot, _, err := e.Eval(f)
		if err != nil {
			t.Fatal(err)
		}
		for who, slot := range map[string]int{"the program": slot, "the oracle": o.Eval(f).Slot} {
			if got := pol.Rules[slot-pol.RuleSlot(0)].Label; got != step.is {
				t.Errorf("segment %d, %q: %s says %q, want %q", i, step.says, who, got, step.is)
			}
		}
	}
}
