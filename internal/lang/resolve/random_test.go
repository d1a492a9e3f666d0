package resolve

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"levee/internal/lang/ast"
	"levee/internal/lang/syntax"
)

// gen writes random policies that are valid, in no particular layout: terms in any order, odd
// blanks, comments wherever one may stand.
type gen struct {
	*rand.Rand
	b strings.Builder
}

func (g *gen) pick(from ...string) string { return from[g.IntN(len(from))] }

// gap is white space, inside braces also a line end or a comment.
func (g *gen) gap(braces bool) string {
	switch {
	case braces && g.IntN(12) == 0:
		return fmt.Sprintf(" # c%d\n\n\t", g.IntN(100))
	case braces && g.IntN(8) == 0:
		return "\n"
	case braces && g.IntN(12) == 0:
		return fmt.Sprintf("\n# c%d\n", g.IntN(100))
	}
	return g.pick(" ", "  ", "\t")
}

func (g *gen) list(n int, elem func() string) string {
	s := "{" + g.gap(true)
	for i := range n {
		s += elem() + g.gap(true)
		if i < n-1 || g.IntN(4) == 0 {
			s += "," + g.gap(true)
		}
	}
	return s + "}"
}

func (g *gen) listOrOne(elem func() string) string {
	if g.IntN(2) == 0 {
		return elem()
	}
	n := 1 + g.IntN(4)
	if g.IntN(10) == 0 {
		n += 20
	}
	return g.list(n, elem)
}

func (g *gen) span(top int) string {
	lo := g.IntN(top)
	if g.IntN(3) > 0 {
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d-%d", lo, lo+g.IntN(top+1-lo))
}

func (g *gen) number(top int) string {
	if g.IntN(3) == 0 {
		return g.pick("<", "<=", ">", ">=", "=", "!=") + g.pick("",
			" ") + fmt.Sprint(1+g.IntN(top-1))
	}
	return g.listOrOne(func() string { return g.span(top) })
}

func (g *gen) addr(six bool) string {
	if six {
		return g.pick("2001:db8::/32", "2001:db8:1::9", "2001:DB8::1-2001:db8::1f", "fe80::/10",
			fmt.Sprintf("2001:db8::%x", g.IntN(1<<16)))
	}
	return g.pick("10.0.0.0/8", "192.0.2.0-192.0.2.99", "0.0.0.0/0",
		fmt.Sprintf("198.51.100.%d", g.IntN(256)))
}

// terms are terms that can hold together, in random order.
func (g *gen) terms() []string {
	six := g.IntN(2) == 0
	ports := func() string { return g.number(65535) }
	var ts []string
	add := func(odds int, t string) {
		if g.IntN(odds) == 0 {
			if g.IntN(6) == 0 {
				t = "not" + g.gap(false) + t
			}
			ts = append(ts, t)
		}
	}
	addrs := func() string {
		if g.IntN(5) == 0 {
			return g.pick("nets", "seen", "more")
		}
		return g.listOrOne(func() string { return g.addr(six) })
	}
	add(3, "from"+g.gap(false)+addrs())
	add(3, "to"+g.gap(false)+addrs())
	switch g.IntN(4) {
	case 0:
		if six {
			add(1, "icmp6 type "+g.listOrOne(func() string {
				return g.pick("128", "1/4",
					"echo-reply", "133-137")
			}))
		} else {
			add(1, "icmp type "+g.listOrOne(func() string {
				return g.pick("8", "3/4", "echo-reply",
					"13-14")
			}))
		}
	case 1:
		ts = append(ts, g.pick("tcp", "proto tcp", "proto 6"))
		add(2, g.pick("syn", "flags syn,ack", "flags syn/syn,ack,rst", "flags none / fin, syn"))
		add(2, "port "+ports())
	case 2:
		ts = append(ts, g.pick("udp", "proto { udp, tcp }", "proto > 5"))
		add(2, "from port "+ports())
		add(2, g.pick("port high", "to port "+ports(), "port { high, 22 }"))
	case 3:
		add(2, "to "+g.pick("web", "{ web, tcp/22 }", "sctp/9"))
	}
	add(6, "len "+g.number(1500))
	add(6, "ttl "+g.number(255))
	add(6, "dscp "+g.listOrOne(func() string { return g.pick("ef", "cs1", "10-20", "0") }))
	add(8, g.pick("vlan "+g.number(4000), "untagged"))
	add(8, "fragments")
	add(8, "ether from 02:00:00:00:00:0"+fmt.Sprint(g.IntN(10)))
	g.Shuffle(len(ts), func(i, j int) { ts[i], ts[j] = ts[j], ts[i] })
	return ts
}

func (g *gen) line(s string) {
	for g.IntN(5) == 0 {
		g.b.WriteString(g.pick("\n", "# a comment\n", "  # indented\n"))
	}
	g.b.WriteString(s + g.pick("", "", " # behind") + g.pick("\n", "\r\n"))
}

func (g *gen) policy() string {
	g.line("set nets = " + g.list(1+g.IntN(5),
		func() string { return g.addr(true) + "," + g.gap(true) + g.addr(false) }))
	g.line("set more={ nets,203.0.113.0/24, 2001:db8:5::/48 }")
	g.line("set seen = dynamic(" + g.pick("max 10", "lease 5m,max 10", "max 7, lease 1w",
		"rollup,max 9, lease 2s", "max 3, keep") + ")")
	g.line("set high = " + g.list(1+g.IntN(3), func() string { return g.span(65535) }))
	g.line("set web = { tcp/80, udp/443-450 }")
	for i := range g.IntN(12) {
		rule := g.pick("pass", "drop", "count", "protect")
		terms := g.terms()
		if rule == "protect" { // of one file or dynamic set; none here
			terms = []string{"tcp", "port " + g.number(65535)}
		}
		for _, t := range terms {
			rule += g.gap(false) + t
		}
		if g.IntN(3) == 0 {
			rule += fmt.Sprintf(" as \"label %d\"", i)
		}
		g.line(rule)
	}
	if g.IntN(3) == 0 {
		g.line("drop malformed")
	}
	g.line(g.pick("default pass", "default drop"))
	g.line("test \"t\" {" + g.gap(true) + "packet tcp" + g.gap(true) + "port 22 expect drop" +
		g.gap(true) + "set seen has 192.0.2.1" + g.gap(true) + "packet expect pass" + g.gap(true) +
		"}")
	return g.b.String()
}

// TestFormatKeepsMeaning formats random valid policies: formatting is a fixpoint, and the
// formatted policy resolves to the same one.
func TestFormatKeepsMeaning(t *testing.T) {
	const seed, policies = 20261121, 300
	for n := range uint64(policies) {
		g := &gen{Rand: rand.New(rand.NewPCG(seed, n))}
		src := g.policy()
		f, ds := syntax.Parse("random.levee", []byte(src))
		if err := ds.Err(); err != nil {
			t.Fatalf("seed %d, policy %d: %v\n%s", seed, n, err, src)
		}
		p, ds := Resolve(f, nil)
		if err := ds.Err(); err != nil {
			t.Fatalf("seed %d, policy %d: %v\n%s", seed, n, err, src)
		}
		formatted := ast.Format(f)
		checkFixpoint(t, p, formatted, ".")
		if a, b := strings.Count(src, "#"), strings.Count(string(formatted), "#"); a != b {
			t.Errorf("%d comments before, %d after", a, b)
		}
		if t.Failed() {
			t.Fatalf("seed %d, policy %d:\n%s\nformatted:\n%s", seed, n, src, formatted)
		}
	}
}
