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
	"regexp"
	"slices"

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
	streamStretch
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

// refused matches the resolver's errors about rules that no packet can match. The generator draws
// terms without regard to each other; such rules are left out.
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
