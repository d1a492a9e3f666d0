// Package difftest makes random policies and packets that lie on their edges, and compares what
// the oracle says about them with what other engines say.
//
// In go seeds; out come policy texts, frames and the first difference, printed so that it can be
// repeated. The same seed gives the same text and the same frames on every machine. It is test
// machinery that `levee` never runs on its own, and knows no engine: they are handed in.
package difftest

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"levee/internal/lang/action"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// setFileName is the set file of addresses that generated policies name; SetFile makes its
// contents.
const setFileName = "prefixes.txt"

// newRand returns the source of everything that a seed decides; stream keeps policies, set files
// and packets of one seed apart.
func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

const (
	streamPolicy = iota + 1
	streamSetFile
	streamPackets
	streamEntries
	streamChanges
	streamClock
	streamProofs
	streamTold
	streamRings
)

// Generate makes a valid policy, as text. Every statement and every match of the language occurs
// among the seeds, in many shapes: no rules and sixty, one field or all of them, rules that
// overlap or hide one another, few and many prefixes. One seed in 32 is a filter of some hundred
// rules on addresses, protocols and ports.
func Generate(seed uint64) []byte {
	g := &generator{r: newRand(seed, streamPolicy), seed: seed, tell: newRand(seed, streamTold),
		rings:  newRand(seed, streamRings),
		proofs: &proofs{generator: generator{r: newRand(seed, streamProofs)}}}
	g.pools()
	g.weights()
	g.header()
	g.sets()
	g.protects()
	g.rules()
	g.tests()
	return prune(seed, g.out.Bytes())
}

// refused is what the resolver says of a rule that no packet can match. The generator draws terms
// without regard to each other; such rules are left out.
var refused = regexp.MustCompile(`contradict each other|no packet can match|about the same field|given twice|can never hold`)

// prune leaves out the rules that the resolver refuses for contradicting themselves. Any other
// error stays in the text, for Policy to report.
func prune(seed uint64, text []byte) []byte {
	for {
		_, diags := compile(seed, text)
		bad := map[int]bool{}
		for _, d := range diags {
			if d.Severity == diag.Error && refused.MatchString(d.Message) {
				bad[int(d.Line)] = true
			}
		}
		if len(bad) == 0 {
			return text
		}
		var kept []byte
		n := 0
		for line := range bytes.Lines(text) {
			if n++; !bad[n] {
				kept = append(kept, line...)
			}
		}
		text = kept
	}
}

func compile(seed uint64, text []byte) (*policy.Policy, diag.Diagnostics) {
	return resolve.Parse("generated.levee", text, func(path string) (io.ReadCloser, error) {
		for _, f := range setFiles {
			if f.name == path {
				return io.NopCloser(bytes.NewReader(SetFile(seed, path))), nil
			}
		}
		return nil, fs.ErrNotExist
	})
}

// WithoutEthernet takes out of a policy the rules that a device without Ethernet headers refuses.
func WithoutEthernet(p *policy.Policy) {
	refused := map[*policy.Rule]bool{}
	for _, t := range p.Ethernet() {
		refused[t.Rule] = true
	}
	out := func(r *policy.Rule) bool { return refused[r] }
	p.Protect, p.Rules = slices.DeleteFunc(p.Protect, out), slices.DeleteFunc(p.Rules, out)
	p.Inners = slices.DeleteFunc(p.Inners, func(in *policy.Inner) bool {
		asks := func(t policy.Term) bool { return t.Inner == in }
		return !slices.ContainsFunc(p.Rules,
			func(r *policy.Rule) bool { return slices.ContainsFunc(r.Match, asks) })
	})
	for i, in := range p.Inners {
		in.Number = i
	}
}

// SetFile returns the contents of a set file of those names beside the policy of that seed.
func SetFile(seed uint64, name string) []byte {
	g := &generator{r: newRand(seed, streamPolicy), seed: seed}
	g.pools() // the same addresses as in the policy
	entry, stream := g.address, uint64(0)
	for i, f := range setFiles {
		if f.name == name {
			entry, stream = func() string { return f.entry(g) }, uint64(i)
		}
	}
	g.r = newRand(seed+stream<<32, streamSetFile)
	var b bytes.Buffer
	b.WriteString("# made by difftest\n\n")
	for range 1 + g.size() {
		fmt.Fprintf(&b, "%s%s\n", entry(), g.pick("", "", " ; comment", "\t# comment"))
	}
	return b.Bytes()
}

// setFiles are the set files that generated policies name, one of each type.
var setFiles = []struct {
	name  string
	entry func(*generator) string
}{
	{setFileName, (*generator).address},
	{"ports.txt", (*generator).portElement},
	{"services.txt", (*generator).serviceElement},
	{"endpoints.txt", (*generator).endpointElement},
}

// generator holds what a policy's statements share, so that they meet in the same values.
type generator struct {
	r    *rand.Rand
	tell *rand.Rand // draws terms on what the kernel tells; nil: there are none
	// rings draws which rules redirect. It is apart, so that all else of a seed stays.
	rings *rand.Rand
	seed  uint64
	out   bytes.Buffer

	v4    []uint32    // bases of the IPv4 addresses
	v6    [][2]uint64 // bases of the IPv6 addresses
	ports []int
	macs  []string
	vlans []int

	enabled []int // weight of each kind of term; 0: this policy has none

	addressSets  []string // static: inline or file
	tableSet     string   // the one file or dynamic set that protect rules may use
	lookedUp     []string // file and dynamic sets
	portSets     []string
	serviceSets  []string
	endpointSets []string
	nameSets     []string
	nameLists    int // names and lists of them in rules
	// those, and dynamic ones, that protect rules must not use: it may be more than one look-up
	files      []string
	withins    int  // terms on what tunnels carry
	protecting bool // the match is for a protect rule
	labels     int
	limits     int
	cookies    int
	greylists  int
	proofs     *proofs
	logs       int
}

func (g *generator) line(format string, args ...any) { fmt.Fprintf(&g.out, format+"\n", args...) }

// chance is true once in n.
func (g *generator) chance(n int) bool { return g.r.IntN(n) == 0 }

// pick is one of its arguments.
func (g *generator) pick(words ...string) string { return words[g.r.IntN(len(words))] }

// between returns a number from lo to hi.
func (g *generator) between(lo, hi int) int { return lo + g.r.IntN(hi-lo+1) }

func (g *generator) pools() {
	for range g.between(1, 6) {
		g.v4 = append(g.v4, g.r.Uint32())
	}
	g.v4 = append(g.v4, 0xc0000200, 0x0a000000)
	for range g.between(1, 4) {
		g.v6 = append(g.v6, [2]uint64{0x2001_0db8_0000_0000 | uint64(g.r.Uint32()), g.r.Uint64()})
	}
	g.ports = []int{0, 22, 53, 67, 68, 80, 443, 546, 547, 1023, 1024, 65535}
	for range 6 {
		g.ports = append(g.ports, g.r.IntN(65536))
	}
	g.macs = []string{"02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff", "01:80:c2:00:00:0e",
		"33:33:00:00:00:01"}
	for range 3 {
		v := g.r.Uint64()
		g.macs = append(g.macs, fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", byte(v), byte(v>>8),
			byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40)))
	}
	g.vlans = []int{1, 2, 100, 4094, 4095, 1 + g.r.IntN(4095)}
}

// long says whether this seed has a long policy.
func (g *generator) long() bool { return g.seed%32 == 31 }

// weights decides which kinds of terms the policy has: all, some, or a single one.
func (g *generator) weights() {
	g.enabled = make([]int, int(numKinds)+len(moreNumbers))
	only := -1
	if g.chance(6) {
		only = g.r.IntN(len(g.enabled))
	}
	sparse := g.chance(2)
	for k := range g.enabled {
		switch {
		case g.long():
			g.enabled[k] = map[kind]int{kFrom: 4, kTo: 4, kFromPort: 1, kPort: 3, kProto: 3,
				kICMP: 1, kFlags: 1}[kind(k)]
		case only >= 0 && k != only, only < 0 && sparse && g.chance(2):
			g.enabled[k] = 0
		default:
			g.enabled[k] = g.between(1, 4)
		}
	}
}

func (g *generator) header() {
	g.line("# generated from seed %d", g.seed)
	if g.chance(3) {
		g.line("interface eth%d", g.r.IntN(3))
	}
	if g.chance(3) {
		g.line("essential off")
	}
	if g.chance(4) {
		g.line("connections max %s", g.pick("1", "16384", "20000", "100000", "4194304"))
	}
	for range g.proofs.r.IntN(3) {
		g.proofs.prove(g)
	}
	if g.chance(4) {
		g.line("on error %s", g.pick("pass", "drop"))
	}
}

// size returns a number of elements: mostly few, seldom many.
func (g *generator) size() int {
	switch {
	case g.chance(20):
		return g.between(200, 1500)
	case g.chance(4):
		return g.between(10, 60)
	}
	return g.between(0, 6)
}

func (g *generator) sets() {
	for i := range g.r.IntN(4) {
		g.addressSet(fmt.Sprintf("net%d", i))
	}
	if g.chance(3) {
		g.line("set listed = file(%q)", setFileName)
		g.addressSets = append(g.addressSets, "listed")
		g.lookedUp = append(g.lookedUp, "listed")
	}
	for i := range g.r.IntN(3) {
		lease := ""
		if g.chance(2) {
			lease = ", lease " + g.pick("500ms", "30s", "10m", "12h", "7d", "2w")
		}
		name := fmt.Sprintf("found%d", i)
		g.line("set %s = dynamic(max %d%s)", name, g.between(64, 5000), lease)
		g.lookedUp = append(g.lookedUp, name)
	}
	if len(g.lookedUp) > 0 {
		g.tableSet = g.pick(g.lookedUp...)
	}
	for i := range g.r.IntN(3) {
		name := fmt.Sprintf("doors%d", i)
		elems := g.some(1+g.r.IntN(12), g.portElement)
		if len(g.portSets) > 0 && g.chance(2) {
			elems = append(elems, g.pick(g.portSets...))
		}
		g.line("set %s = { %s }", name, strings.Join(elems, ", "))
		g.portSets = append(g.portSets, name)
	}
	for i := range g.r.IntN(3) {
		name := fmt.Sprintf("offers%d", i)
		elems := g.some(1+g.r.IntN(8), g.serviceElement)
		g.line("set %s = { %s,\n}", name, strings.Join(elems, ",\n  "))
		g.serviceSets = append(g.serviceSets, name)
	}
	g.endpoints()
	g.moreFiles()
	g.moreDynamic()
	g.nameSetsOf()
}

// moreDynamic are sets of services, endpoints and names that are filled at run time.
func (g *generator) moreDynamic() {
	for _, d := range []struct {
		set, of string
		to      *[]string
	}{{"openings", "services", &g.serviceSets}, {"partners", "endpoints",
		&g.endpointSets}, {"strangers", "endpoints", &g.endpointSets}, {"told", "names",
		&g.nameSets}} {
		if g.chance(3) {
			g.line("set %s = dynamic(of %s, max %d, lease 10m)", d.set, d.of, g.between(64, 5000))
			*d.to = append(*d.to, d.set)
			g.files = append(g.files, d.set)
		}
	}
}

// endpoints are sets of addresses with services, short and long.
func (g *generator) endpoints() {
	for i := range g.r.IntN(3) {
		name := fmt.Sprintf("ends%d", i)
		elems := g.some(1+g.size(), g.endpointElement)
		if len(g.endpointSets) > 0 && g.chance(2) {
			elems = append(elems, g.pick(g.endpointSets...))
		}
		g.line("set %s = { %s }", name, strings.Join(elems, ",\n    "))
		g.endpointSets = append(g.endpointSets, name)
	}
}

// moreFiles are sets from files that do not hold addresses.
func (g *generator) moreFiles() {
	for _, f := range []struct {
		set, name string
		to        *[]string
	}{{"portlist", "ports.txt", &g.portSets}, {"servicelist", "services.txt",
		&g.serviceSets}, {"endlist", "endpoints.txt", &g.endpointSets}} {
		if g.chance(4) {
			g.line("set %s = file(%q)", f.set, f.name)
			*f.to = append(*f.to, f.set)
			g.files = append(g.files, f.set)
		}
	}
}

func (g *generator) addressSet(name string) {
	elems := g.some(1+g.size(), g.address)
	if len(g.addressSets) > 0 && g.chance(2) {
		elems = append(elems, g.pick(g.addressSets...))
	}
	g.line("set %s = { %s }", name, strings.Join(elems, ",\n    "))
	g.addressSets = append(g.addressSets, name)
}

// some returns n elements, all different.
func (g *generator) some(n int, make func() string) []string {
	var elems []string
	seen := map[string]bool{}
	for range n {
		if e := make(); !seen[e] {
			seen[e] = true
			elems = append(elems, e)
		}
	}
	return elems
}

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
		if word == action.Divert.String() {
			g.line("divert tcp%s%s", g.pick(" ipv4 port < 5000", " ipv6 from port > 60000",
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

// tests adds a test statement, whose packets only have to be packets.
func (g *generator) tests() {
	if !g.chance(3) {
		return
	}
	g.line("test \"made\" {")
	for range g.between(1, 4) {
		g.line("    packet %s expect %s",
			g.pick("ipv6 tcp syn port 80", "udp port 53 len 600", "arp",
				"ipv4 udp frag 185", "vlan 7 inner-vlan 8 icmp type 3/4", "ether 0x88cc",
				"proto 47 ttl 3 dscp 46 options",
				`hex "020000000002 020000000001 0800"`), g.pick("pass", "drop"))
	}
	g.line("}")
}

// Policy is Generate's policy of that seed, resolved with its set file. The error shows the text
// and what is wrong with it: then Generate made something that is not of the language.
func Policy(seed uint64) (*policy.Policy, []byte, error) {
	text := Generate(seed)
	p, diags := compile(seed, text)
	if p == nil {
		return nil, text, fmt.Errorf("generated policy of seed %d is not valid: %w\n%s", seed,
			diags.Err(), text)
	}
	return p, text, nil
}
