package region

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"levee/internal/filter/difftest"
	"levee/internal/filter/oracle"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// TestEachDifferenceOfBothSidesIsFound compares policies of what arrives and what leaves with edits
// of them: connections, which the other side begins, and who sends.
func TestEachDifferenceOfBothSidesIsFound(t *testing.T) {
	t.Parallel()
	var sum showing
	for seed := range uint64(12) {
		sum.add(comparedBoth(t, seed, 100))
	}
	sum.check(t)
}

// comparedBoth compares a drawn pair, and holds what is said of what leaves against the verdicts of
// the oracle on a number of packets.
func comparedBoth(t *testing.T, seed uint64, packets int) (sum showing) {
	t.Helper()
	a, b := bothSides(seed)
	found := Compare(t.Context(), a, b)
	if found.Open > 0 {
		t.Errorf("seed %d: %d pairs given up", seed, found.Open)
	}
	known := map[[2]int]bool{}
	for i := range found.Differences {
		d := &found.Differences[i]
		sum.differences++
		known[[2]int{d.A, d.B}] = known[[2]int{d.A, d.B}] || d.Leaves
		if d.Example == nil && !excused(d) {
			sum.unshown++
			of := [2]*policy.Policy{a, b}
			if d.Leaves {
				of = [2]*policy.Policy{leaving(a), leaving(b)}
			}
			t.Logf("seed %d: no example of %s -> %s\n%s\n%s\n%+v", seed, d.Was, d.Is,
				ruleText(of[0], d.A), ruleText(of[1], d.B), d.Parts)
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 3))
	judges := [2]*oracle.Evaluator{oracle.New(a), oracle.New(b)}
	for i, p := range []*policy.Policy{a, b} {
		for frame := range difftest.Packets(p.Leaving(), seed+uint64(i), packets/2) {
			said := drawnSender(rnd)
			var got [2]oracle.Result
			for k, p := range []*policy.Policy{a, b} {
				judges[k].Forget()
				for _, told := range p.Told(said) {
					judges[k].Tell(told.Field, told.Value)
				}
				got[k] = judges[k].Leave(frame)
			}
			x, y := got[0], got[1]
			if x.Action == y.Action || late(frame, a, x) || late(frame, b, y) {
				continue
			}
			sum.packets++
			if !known[[2]int{x.Slot, y.Slot}] && !malformed(found, frame) {
				t.Fatalf("seed %d: not found: %s by %s, %s by %s: %v %x", seed, x.Action,
					ruleText(leaving(a), x.Slot), y.Action, ruleText(leaving(b), y.Slot), said,
					frame)
			}
		}
	}
	return sum
}

// drawnSender returns what the kernel tells of a packet that leaves.
func drawnSender(rnd *rand.Rand) []policy.Told {
	if rnd.IntN(4) == 0 {
		return []policy.Told{{Field: field.Local, Value: rnd.Uint64N(2)}}
	}
	return []policy.Told{{Field: field.Local, Value: 1},
		{Field: field.UID, Value: 999 + rnd.Uint64N(3)}, {Field: field.GID, Value: 50},
		{Field: field.User, Name: rndOf(rnd, "www-data", "postfix", "nobody")},
		{Field: field.Group, Name: rndOf(rnd, "adm", "users")},
		{Field: field.Service, Name: rndOf(rnd, "a.service", "b.service")},
		{Field: field.Container, Name: rndOf(rnd, "web", "db")}}
}

// bothSides draws a policy, and edits it.
func bothSides(seed uint64) (a, b *policy.Policy) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	for {
		lines := []string{"default " + rndOf(rnd, "pass", "drop"),
			"out default " + rndOf(rnd, "pass", "drop")}
		for range 3 + rnd.IntN(6) {
			lines = slices.Insert(lines, 0, drawnRule(rnd))
		}
		edited := slices.Clone(lines)
		for range 1 + rnd.IntN(2) {
			i, k := rnd.IntN(len(edited)-2), rnd.IntN(len(edited)-2)
			switch rnd.IntN(3) {
			case 0:
				edited = slices.Delete(edited, i, i+1)
			case 1:
				edited[i], edited[k] = edited[k], edited[i]
			default:
				edited = slices.Insert(edited, i, drawnRule(rnd))
			}
		}
		a, ds := resolve.Parse("a.levee", []byte(strings.Join(lines, "\n")+"\n"), nil)
		b, more := resolve.Parse("b.levee", []byte(strings.Join(edited, "\n")+"\n"), nil)
		if !ds.HasErrors() && !more.HasErrors() {
			return a, b
		}
	}
}

func rndOf(rnd *rand.Rand, words ...string) string { return words[rnd.IntN(len(words))] }

// drawnRule draws a rule about connections and their packets.
func drawnRule(rnd *rand.Rand) string {
	one := func(in int, words ...string) string {
		if rnd.IntN(in) > 0 {
			return ""
		}
		return " " + rndOf(rnd, words...)
	}
	text := rndOf(rnd, "pass", "pass", "drop") +
		" " + rndOf(rnd, "tcp", "udp", "udp", "icmp", "tcp port 25", "udp port 53",
		"udp port 53 dns query", "udp dns name \"example.com\"", "udp dns type A", "ipv4", "ipv6") +
		one(4, "to 198.51.100.0/24", "from 192.0.2.0/28", "from 10.1.0.0/16", "to 10.2.3.4") +
		one(5, "len > 100", "len 64-1400") +
		one(3, "established", "not established")
	if rnd.IntN(2) == 0 {
		return text
	}
	return "out " + text + one(2, "user www-data", "user { www-data, postfix }", "group adm",
		"service \"a.service\"", "not service \"a.service\"", "container web", "uid >= 1000",
		"local", "forwarded", fmt.Sprintf("not group users uid %d", rnd.IntN(2000)))
}

// TestWhatBeganUnderOtherRulesIsShownByNothing: differences of connections that by one of the
// policies nothing begins had no example, and nobody said why. Drawn packets behind drawn packets
// of the same ends show none of those of which that is said now.
func TestWhatBeganUnderOtherRulesIsShownByNothing(t *testing.T) {
	t.Parallel()
	said, tried := 0, 0
	for seed := range uint64(120) {
		a, b := bothSides(seed)
		c := &comparison{policies: [2]*policy.Policy{a, b}}
		for _, d := range Compare(t.Context(), a, b).Differences {
			if d.Example != nil || !slices.ContainsFunc(d.Parts, func(p Part) bool {
				return slices.Contains(p.Hidden, otherRules)
			}) {
				continue
			}
			said++
			rnd := rand.New(rand.NewPCG(seed, 4))
			for range 2000 {
				e := drawnSequence(rnd, d.Leaves)
				x, ok := e.judge(c.evaluator(0), a)
				y, also := e.judge(c.evaluator(1), b)
				if !ok || !also {
					continue
				}
				if tried++; x == d.A && y == d.B {
					t.Fatalf("seed %d: %v shows %+v", seed, e.Steps(), d)
				}
			}
		}
	}
	t.Logf("%d differences, %d sequences", said, tried)
	if said == 0 || tried == 0 {
		t.Error("nothing was tried")
	}
}

// drawnSequence draws a packet behind one or two of the same ends.
func drawnSequence(rnd *rand.Rand, leaves bool) *Example {
	family := rndOf(rnd, "ipv4", "ipv4", "ipv6")
	addr := func() string {
		if family == "ipv6" {
			return rndOf(rnd, "2001:db8::1", "2001:db8:1::1", "fe80::1", "fe80::2")
		}
		return rndOf(rnd, "198.51.100.1", "192.0.2.1", "10.1.2.3", "10.1.9.9", "10.2.3.4",
			"203.0.113.5")
	}
	port := func() string { return rndOf(rnd, "25", "53", "9", "67", "68", "546", "547") }
	local, remote, localPort, remotePort := addr(), addr(), port(), port()
	proto := rndOf(rnd, "tcp", "udp", "udp")
	step := func(leaves bool, flags ...string) Step {
		from, to, fromPort, toPort := remote, local, remotePort, localPort
		if leaves {
			from, to, fromPort, toPort = to, from, toPort, fromPort
		}
		words := fmt.Sprintf("%s %s from %s to %s from port %s port %s %s", family, proto, from, to,
			fromPort, toPort, rndOf(rnd, "", "", "len 101", "len 1400", "len 64"))
		if proto == "tcp" {
			words += " " + rndOf(rnd, flags...)
		} else if rnd.IntN(2) == 0 {
			words += " " + rndOf(rnd, "dns query", "dns name \"example.com\"",
				"dns type A dns name \"example.com\"", "dns type A dns name \"a.test\"")
		}
		if leaves {
			words += " " + rndOf(rnd, "", "local", "forwarded", "user www-data group adm",
				"user postfix service \"a.service\"", "uid 1000 container web")
		}
		return Step{words, leaves}
	}
	e := &Example{Before: []Step{step(true, "syn", "flags ack", "flags syn,ack")},
		Step: step(leaves, "flags ack", "flags syn,ack", "syn")}
	switch {
	case leaves:
		e.Before = append(e.Before, step(false, "flags syn,ack"))
		e.Before = e.Before[rnd.IntN(2):]
	case rnd.IntN(4) == 0 && proto == "udp":
		e.Before[0].Packet += " ether to 33:33:00:00:00:01"
	}
	return e
}
