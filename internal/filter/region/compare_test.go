package region

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"levee/internal/filter/difftest"
	"levee/internal/filter/oracle"
	"levee/internal/lang/ast"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
	"levee/internal/packet"
)

// TestEachDifferenceThatPacketsShowIsFound compares generated policies with what some edits make of
// them, and asks the oracle for the truth: packets on the edges of both.
func TestEachDifferenceThatPacketsShowIsFound(t *testing.T) {
	t.Parallel()
	var sum showing
	for seed := range uint64(120) {
		a, b := generated(t, seed)
		sum.add(compared(t, fmt.Sprintf("seed %d", seed), a, b, seed, 120))
	}
	sum.check(t)
}

// generated is a policy of a seed, and what some edits make of it.
func generated(t *testing.T, seed uint64) (a, b *policy.Policy) {
	t.Helper()
	a, text, err := difftest.Policy(seed)
	if err != nil {
		t.Fatal(err)
	}
	b, _ = edit(t, text, seed)
	return a, b
}

// showing counts differences between policies, those that have no example, and packets that were
// judged otherwise.
type showing struct{ differences, unshown, packets int }

func (s *showing) add(o showing) {
	s.differences += o.differences
	s.unshown += o.unshown
	s.packets += o.packets
}

func (s showing) String() string {
	return fmt.Sprintf("%d differences, %d without an example, shown by %d packets", s.differences,
		s.unshown, s.packets)
}

func (s *showing) check(t *testing.T) {
	t.Helper()
	t.Log(s)
	if s.unshown > 0 || s.packets == 0 {
		t.Errorf("%d of %d differences have no example; %d packets showed some", s.unshown,
			s.differences, s.packets)
	}
}

// compared holds what Compare says of two policies against the verdicts of the oracle on a number
// of packets, half of them on the edges of each.
func compared(t *testing.T, name string, a, b *policy.Policy, seed uint64, packets int) showing {
	t.Helper()
	var sum showing
	ofA, ofB := judge{policy: a}, judge{policy: b}
	found := Compare(t.Context(), a, b)
	if found.Open > 0 {
		t.Errorf("%s: %d pairs given up", name, found.Open)
	}
	known := map[[2]int]bool{}
	for _, d := range found.Differences {
		known[[2]int{d.A, d.B}] = true
		sum.differences++
		if d.Example == nil && !excused(&d) {
			sum.unshown++
			t.Logf("%s: no example of %s -> %s\n%s\n%s\n%+v", name, d.Was, d.Is,
				ruleText(a, d.A), ruleText(b, d.B), d.Parts)
		}
	}
	for i, p := range []*policy.Policy{a, b} {
		for frame := range difftest.Packets(p, seed+uint64(i), packets/2) {
			x, y := ofA.of().Eval(frame), ofB.of().Eval(frame)
			if x.Action == y.Action && x.Answered == y.Answered || late(frame, a, x) ||
				late(frame, b, y) {
				continue
			}
			sum.packets++
			if !known[[2]int{x.Slot, y.Slot}] && !malformed(found, frame) {
				t.Fatalf("%s: not found: %s by %s, %s by %s: %x", name, x.Action,
					ruleText(a, x.Slot), y.Action, ruleText(b, y.Slot), frame)
			}
		}
	}
	return sum
}

// judge makes evaluators that know of no packet before.
type judge struct {
	policy *policy.Policy
	known  *oracle.Evaluator
}

func (j *judge) of() *oracle.Evaluator {
	if j.known == nil {
		j.known = oracle.New(j.policy)
	}
	j.known.Forget()
	return j.known
}

// excused says whether all packets of a difference ask for what no test can say, which the
// difference names, or are malformed: that difference stands for all reasons, and has no example.
func excused(d *Difference) bool {
	unsaid := func(u string) bool {
		return strings.Contains(u, "inner(") || strings.HasPrefix(u, "above ") ||
			strings.Contains(u, "answered by ") ||
			strings.Contains(u, "come for the first time to ") ||
			strings.Contains(u, "stream contains ")
	}
	return !slices.ContainsFunc(d.Parts, func(p Part) bool {
		return len(p.Hidden) == 0 &&
			!strings.Contains(p.Words, "proven") && p.Words != malformedWords &&
			!slices.ContainsFunc(p.Unknown, unsaid)
	})
}

// TestNoPacketIsShorterThanItsPayload: a rule for bytes behind the end of all packets of its
// lengths was told as a difference, of which no packet is an example.
func TestNoPacketIsShorterThanItsPayload(t *testing.T) {
	t.Parallel()
	for length, differs := range map[int]bool{32: false, 33: true} {
		text := fmt.Sprintf("drop udp ipv4 len %d payload at 4 ff\ndefault pass\n", length)
		a, ds := resolve.Parse("a.levee", []byte(text), nil)
		b, more := resolve.Parse("b.levee", []byte("default pass\n"), nil)
		if ds.HasErrors() || more.HasErrors() {
			t.Fatal(ds.Err(), more.Err())
		}
		if found := Compare(t.Context(), a, b); (len(found.Differences) > 0) != differs {
			t.Errorf("len %d: %d differences", length, len(found.Differences))
		}
	}
}

// malformed says whether a frame cannot be decoded and a difference is about such ones: it has the
// slot of one reason, and stands for all.
func malformed(found *Compared, frame []byte) bool {
	var pkt packet.Packet
	packet.Decode(frame, &pkt)
	return pkt.Malformed != packet.WellFormed &&
		slices.ContainsFunc(found.Differences, func(d Difference) bool {
			return d.Parts[0].Words == malformedWords
		})
}

// late says whether a frame can be decoded, and yet a policy finds it malformed: by a fragment
// before it, by what it quotes, or by the packet within. These are not compared.
func late(frame []byte, p *policy.Policy, got oracle.Result) bool {
	var pkt packet.Packet
	packet.Decode(frame, &pkt)
	return pkt.Malformed == packet.WellFormed && found(p, got.Slot)
}

func ruleText(p *policy.Policy, slot int) string {
	s := p.Slots()[slot]
	if s.Rule != nil {
		return p.Where(s) + " " + s.Rule.Text
	}
	return p.Where(s)
}

// edit takes a statement out of a policy, has two change places, or puts in one of another policy.
func edit(t *testing.T, text []byte, seed uint64) (*policy.Policy, []byte) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 99))
	open := func(path string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(string(difftest.SetFile(seed, path)))), nil
	}
	for {
		tree, _ := syntax.Parse("b.levee", text)
		for range 1 + rnd.IntN(3) {
			if len(tree.Stmts) == 0 {
				break
			}
			i, k := rnd.IntN(len(tree.Stmts)), rnd.IntN(len(tree.Stmts))
			switch rnd.IntN(3) {
			case 0:
				tree.Stmts = slices.Delete(tree.Stmts, i, i+1)
			case 1:
				tree.Stmts[i], tree.Stmts[k] = tree.Stmts[k], tree.Stmts[i]
			default:
				other, _ := syntax.Parse("b.levee", difftest.Generate(rnd.Uint64()))
				if n := len(other.Stmts); n > 0 {
					tree.Stmts = slices.Insert(tree.Stmts, i, other.Stmts[rnd.IntN(n)])
				}
			}
		}
		edited := ast.Format(tree)
		if p, ds := resolve.Parse("b.levee", edited, open); p != nil && !ds.HasErrors() {
			return p, edited
		}
	}
}

// TestTheSamePoliciesDoNotDiffer compares each policy with itself.
func TestTheSamePoliciesDoNotDiffer(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		a, text, err := difftest.Policy(seed)
		if err != nil {
			t.Fatal(err)
		}
		if got := Compare(t.Context(), a, a); len(got.Differences) > 0 || got.Open > 0 {
			t.Fatalf("seed %d: %+v\n%s", seed, got, text)
		}
	}
}

// TestALimitThatIsRaisedOnlyPassesMore: what is above 99 packets a second is above 10 of them, too,
// unless other packets come to the two limits.
func TestALimitThatIsRaisedOnlyPassesMore(t *testing.T) {
	for _, c := range []struct {
		name, a, b string
		want       []string
	}{
		{"raised", "limit udp rate 10/s by source", "limit udp rate 99/s by source",
			[]string{"drop -> pass"}},
		{"lowered", "limit udp rate 99/s", "limit udp rate 10/s", []string{"pass -> drop"}},
		{"by something else", "limit udp rate 10/s by source", "limit udp rate 99/s",
			[]string{"drop -> pass", "pass -> drop"}},
		{"of bits", "limit udp rate 10/s", "limit udp rate 99kbit/s",
			[]string{"drop -> pass", "pass -> drop"}},
		{"with less at once", "limit udp rate 10/s burst 50", "limit udp rate 99/s burst 20",
			[]string{"drop -> pass", "pass -> drop"}},
		{"of other packets", "limit udp port 53 rate 10/s", "limit udp rate 99/s",
			[]string{"drop -> pass", "pass -> drop"}},
		{"behind another rule", "pass udp port 53\nlimit udp rate 10/s",
			"pass udp port 54\nlimit udp rate 99/s", []string{"drop -> pass", "pass -> drop"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var of [2]*policy.Policy
			for i, text := range []string{c.a, c.b} {
				p, ds := resolve.Parse("edge.levee", []byte(text+"\ndefault pass\n"), nil)
				if ds.HasErrors() {
					t.Fatal(ds)
				}
				of[i] = p
			}
			found := Compare(t.Context(), of[0], of[1])
			var got []string
			for _, d := range found.Differences {
				got = append(got, fmt.Sprintf("%s -> %s", d.Was, d.Is))
			}
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
