package difftest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

func (g *generator) protects() {
	if !g.chance(3) {
		return
	}
	for range g.between(1, 3) {
		// A broad one would leave nothing to the other rules.
		if match, broad := g.match(true); match != "" && (!broad || g.chance(10)) {
			g.line("protect %s%s", match, g.label())
		}
	}
}

// proofs draws what policies have of proofs by echo, from numbers of its own.
type proofs struct {
	generator
	n int
}

// rule is one that asks whose flow is proven, now and then.
func (g *proofs) rule(of *generator) {
	if g.n > 0 && g.chance(8) {
		of.line("%s udp %sproven flow%s", g.pick("pass", "count", "drop", "count"),
			g.pick("", "", "not "), g.pick("", " port 53", " len > 60", " ipv6"))
	}
}

// prove is a proof by echo.
func (g *proofs) prove(of *generator) {
	g.n++
	ports := g.pick("27015", "53", "> 1023", "{ 53, 443, 1000-60000 }", "!= 53")
	reply := g.pick("", " payload at 4 41", " payload at 0 00/f0 payload at 2 010203040506070809",
		" not payload at 3 80/80 payload at 1 41")
	n := g.between(4, 20)
	in := fmt.Sprint(g.r.IntN(4))
	for at, more := 4+g.r.IntN(8), g.r.IntN(4); more > 0; more-- {
		in += fmt.Sprintf(", %d", at)
		at += 1 + g.r.IntN(30)
	}
	of.line("prove \"%d\" udp port %s reply%s echo %d bytes at %d in request at %s", g.n, ports,
		reply, n, 16+g.r.IntN(9), in)
}

// connections is a rule about connections.
func (g *generator) connections() {
	not := g.pick("", "", "not ")
	g.line("%s %sestablished%s", g.pick("pass", "count", "drop", "count"), not,
		g.pick("", " tcp", " udp", " icmp", " ipv4", " ipv6", " port 53", " len > 60", " syn",
			" flags rst", " icmp6", " untagged", " fragments"))
}

// cookie is a rule that answers SYNs or queries, often broad: few frames are SYNs.
func (g *generator) cookie() {
	if g.cookies++; g.cookies > 16 {
		return
	}
	of := g.pick("tcp", "tcp", "dns udp", "a2s udp")
	text := g.pick("", "", " ipv4", " ipv6", " untagged", " port 1-40000", " not port 443",
		" from 0.0.0.0/1")
	if g.chance(2) {
		text += fmt.Sprintf(" above %d/s", g.between(1, 8))
	}
	g.line("cookie %s%s%s", of, text, g.label())
}

// greylist returns the match of a greylist and what stands behind it, "" if there is none.
func (g *generator) greylist(match string) string {
	if g.greylists++; g.greylists > 16 || g.chance(2) {
		return ""
	}
	if !strings.Contains(match, "port") || strings.Contains(match, "not") {
		match = g.pick(" udp", " tcp", " port 1-40000", " ipv6 udp", " udp port 53",
			" ipv4 not port 443", " tcp syn", " port 27015")
	}
	after, within := g.between(20, 3000), g.between(4, 60)
	match += fmt.Sprintf(" after %dms within %ds", after, within)
	if g.chance(2) {
		match += fmt.Sprintf(" above %d/s", g.between(1, 8))
	}
	return match
}

// limit returns what stands behind a match of a limit. Rates are low, so that few frames reach
// them.
func (g *generator) limit(match string) string {
	text := fmt.Sprintf(" rate %d%s", g.between(1, 30), g.pick("/s", "/s", "/s", "/m", "/h", "/d"))
	if g.chance(4) {
		text = fmt.Sprintf(" rate %d%s", g.between(1, 30), g.pick("kbit/s", "mbit/s"))
	} else if g.chance(2) {
		text += fmt.Sprintf(" burst %d", g.between(1, 20))
	}
	rates := ""
	if g.chance(3) {
		if rates = g.rates(match); rates != "" {
			text = rates
		}
	}
	if keys := g.keys(match, rates != ""); keys != "" {
		text += " by " + keys
	}
	return text
}

// rates returns the rates of a limit by prefix, of both families, for packets that have addresses.
func (g *generator) rates(match string) string {
	if strings.Contains(match, "ether") || strings.Contains(match, "arp") {
		return ""
	}
	all := g.some(g.between(0, 12), g.address)
	all = slices.DeleteFunc(all, func(a string) bool { return strings.Contains(a, "-") })
	for _, p := range []netip.Prefix{netip.PrefixFrom(addr4(g.v4[0]), 9),
		netip.PrefixFrom(addr6(g.v6[0]), 17)} {
		all = append(all, prefixText(p.Masked()))
	}
	for i := range all {
		all[i] += fmt.Sprintf(" %d%s", g.between(1, 30), g.pick("/s", "/s", "/m"))
	}
	return fmt.Sprintf(" rate %s { %s }", g.pick("from", "to"), strings.Join(all, ", "))
}

// keys returns the keys of a limit, which packets have that the match is about.
func (g *generator) keys(match string, rates bool) string {
	if strings.Contains(match, "ether") || strings.Contains(match, "arp") || g.chance(3) {
		return ""
	}
	all := []string{"source", "destination", "source/24 x3", "source/8,20",
		"destination/31,127 x2"}
	if (strings.Contains(match, "syn") || strings.Contains(match, "flags")) &&
		!strings.Contains(match, "not") {
		all = append(all, "flow", "flow", "port", "from port x2")
	}
	if strings.Contains(match, "dns ") {
		all = append(all, "dns-name", "dns-name/2", "dns-name/1 x2")
	}
	most := policy.MaxKeys
	if rates { // which have no factors, and are a key
		most--
		for i := range all {
			all[i], _, _ = strings.Cut(all[i], " x")
		}
	}
	return strings.Join(g.some(g.between(1, most), func() string { return g.pick(all...) }), ", ")
}

// The words of the actions that do not stand before all others, of those that decide, and of those
// that malformed frames may have.
var ruleWords, verdictWords, malformedWords = func() (rules, verdicts, malformed []string) {
	for _, a := range action.Table() {
		if a.First || a.Action == action.Redirect { // see redirected
			continue
		}
		rules = append(rules, a.Word)
		if a.Decides && !a.Effect {
			verdicts = append(verdicts, a.Word)
		}
		if !a.Effect || a.May&action.MayMeetMalformed != 0 {
			malformed = append(malformed, a.Word)
		}
	}
	return rules, verdicts, malformed
}()

func (g *generator) rules() {
	n := 0
	switch g.r.IntN(8) {
	case 0:
		n = g.r.IntN(3)
	case 1, 2, 3:
		n = g.between(1, 12)
	case 4, 5:
		n = g.between(8, 30)
	default:
		n = g.between(20, 60)
	}
	if g.long() {
		n = g.between(100, 400)
	}
	flows := g.chance(4)
	for range n {
		if flows && g.chance(5) {
			g.connections()
		}
		g.proofs.rule(g)
		if g.chance(24) {
			word, to := g.redirected(g.pick(malformedWords...))
			g.line("%s malformed%s%s", word, to, g.label())
			continue
		}
		word := g.pick(slices.Concat(verdictWords, ruleWords)...)
		if word == action.Cookie.String() {
			g.cookie()
			continue
		}
		// Of what is about whole connections, a cookie alone has more words.
		if a, _ := action.Named(word); a.Info().Connection != nil {
			g.line("%s tcp%s%s", word, g.pick(" ipv4 port < 5000", " ipv6 from port > 60000",
				" untagged to port 22", " port 443", " from 0.0.0.0/4", " to tcp/22",
				" to { 128.0.0.0/3, 8000::/4 }", " not from { 0.0.0.0/1, 128.0.0.0/2, ::/1 }"),
				g.label())
			continue
		}
		if word == action.Track.String() {
			g.line("fragments track%s%s", g.pick("", "", " ipv4", " ipv6", " not udp", " ttl > 9",
				" from { 0.0.0.0/1, ::/1 }", " to 128.0.0.0/1"), g.label())
			continue
		}
		match, broad := g.match(false)
		if broad && !g.chance(8) { // or it would hide all that follow
			if g.long() {
				continue
			}
			word = action.Count.String()
		}
		if match != "" {
			match = " " + match
		}
		if word == action.Log.String() {
			if g.logs++; g.logs > 60 { // of 64
				word = action.Count.String()
			} else if g.chance(2) {
				match += fmt.Sprintf(" sample 1/%d", g.between(1, 5))
			}
		}
		if word == action.Limit.String() {
			if g.limits++; g.limits > 30 { // of 32 that a policy may have
				word = action.Count.String()
			} else {
				match += g.limit(match)
			}
		}
		if word == action.Greylist.String() {
			if match = g.greylist(match); match == "" {
				continue
			}
		}
		word, to := g.redirected(word)
		g.line("%s%s%s%s", word, match, to, g.label())
	}
	g.line("default %s", g.pick("pass", "drop"))
}

// redirected makes some of the rules that pass or drop such that redirect.
func (g *generator) redirected(word string) (as, to string) {
	if !slices.Contains(verdictWords, word) || g.rings.IntN(12) > 0 {
		return word, ""
	}
	names := []string{"a", "b", "a-long-name_of_a_ring"}
	return action.Redirect.String(), fmt.Sprintf(" to ring \"%s\" else %s",
		names[g.rings.IntN(len(names))], verdictWords[g.rings.IntN(len(verdictWords))])
}

func (g *generator) label() string {
	switch g.r.IntN(4) {
	case 0:
		g.labels++
		return fmt.Sprintf(" as \"rule %d\"", g.labels)
	case 1:
		return ` as "again"`
	}
	return ""
}
