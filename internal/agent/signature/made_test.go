package signature

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"levee/internal/filter/ir"
	"levee/internal/lang/ast"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
	"levee/internal/packet"
	"levee/internal/packet/template"
)

// victim is the destination of floods and good traffic.
const victim = "198.51.100.10"

// good is a web and name server's morning: SYNs as Linux, Windows and macOS send them, data and
// acknowledgements of their connections, answers of name servers that it asks, questions to its
// own, and pings. Clients come from some networks more than from others.
var good = strings.Join([]string{
	client + `syn window 64240 mss 1460 sack-permitted timestamp random window-scale 7 seq random`,
	client + `syn window 64240 mss 1460 window-scale 8 sack-permitted seq random ttl 108-120 random`,
	client + `syn window 65535 mss 1460 window-scale 6 timestamp random sack-permitted seq random`,
	client + `flags ack window 500-2000 random seq random timestamp random`,
	client + `flags psh,ack window 500-2000 random seq random timestamp random ` +
		`payload random len 100-1200 random`,
	client + `flags fin,ack window 500-2000 random seq random timestamp random`,
	`ipv4 udp from { 9.9.9.9, 1.1.1.1, 8.8.8.8 } random from port 53 to ` + victim +
		` port 32768-60999 random ttl 50-60 random payload hex "1234818000010001" len 90-400 random`,
	`ipv4 udp from { 24.0.0.0/9, 80.64.0.0/11, 151.0.0.0/12 } random from port 1024-65535 random to ` +
		victim + ` port 53 ttl 44-60 random payload hex "12340100000100000000000003777777" ` +
		`len 60-80 random`,
	`ipv4 type echo-request from { 24.0.0.0/9, 80.64.0.0/11 } random to ` + victim +
		` ttl 44-120 random len 84`,
}, "\n")

const client = `ipv4 tcp from { 24.0.0.0/9, 80.64.0.0/11, 151.0.0.0/12, 203.0.112.0/20 } random ` +
	`from port 1024-65535 random to ` + victim + ` port { 443, 443, 80 } random ` +
	`ttl 44-60 random `

// frames makes n frames of a template; from is the number of the first, so that samples differ.
func frames(t testing.TB, text string, from, n int) [][]byte {
	t.Helper()
	text = strings.ReplaceAll(text, " ttl 44-60 random syn window 64240 mss 1460 window-scale",
		" syn window 64240 mss 1460 window-scale") // one ttl a packet
	packets, ds := template.Parse("flood", []byte(text))
	if packets == nil {
		var b bytes.Buffer
		_ = ds.Render(&b, false)
		t.Fatal(b.String())
	}
	made, err := template.Compile(packets, template.Defaults{
		To4: netip.MustParseAddr(victim)}, 20261124)
	if err != nil {
		t.Fatal(err)
	}
	out := make([][]byte, n)
	for i := range out {
		buf := make([]byte, made.Longest())
		out[i] = made.Frame(buf, uint64(from+i))
	}
	return out
}

// sampleOf makes a sample of frames.
func sampleOf(p *policy.Policy, lists ...[][]byte) *Sample {
	s := NewSample(packet.Ethernet, p, 0)
	for _, l := range lists {
		for _, b := range l {
			s.Add(b, 0)
		}
	}
	return s
}

// propose proposes rules, and fails if they are no policy, or not as the figures say.
func propose(t testing.TB, flood, good *Sample, l Limits) *Proposal {
	t.Helper()
	p, err := Propose(flood, good, l)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range p.Rules {
		t.Logf("%s  # %d flood, %d good", r.Text, r.Flood, r.Good)
	}
	t.Log(p.Sentence)
	return p
}

// floods that are told from good traffic, each with a word that a rule must have and the least
// share that is covered.
var floods = []struct {
	name, packets, want string
	least               float64
}{
	{"SYN without options", `ipv4 tcp syn from 0.0.0.0/0 permuted from port random to ` + victim +
		` port 443 seq random ttl 240-244 random window 512`, "syn", 0.99},
	{"SYN as a Linux sends it", `ipv4 tcp syn from 0.0.0.0/0 permuted from port random to ` + victim +
		` port 443 seq random ttl 230-236 random window 64240 mss 1460 sack-permitted ` +
		`timestamp random window-scale 7`, "ttl", 0.99},
	{"UDP to an open port", `ipv4 udp from 0.0.0.0/0 permuted from port random to ` + victim +
		` port 53 ttl 50 payload random len 540`, "udp", 0.99},
	{"DNS reflection", `ipv4 udp from { 11.20.0.0/25, 37.4.9.0/26 } random from port 53 to ` + victim +
		` port 1024-65535 random ttl 40-60 random payload hex "aaaa8180000100200000000103697363" ` +
		`len 1200-1480 random`, "from port 53", 0.99},
	{"ICMP", `ipv4 type echo-request from 0.0.0.0/0 permuted to ` + victim + ` len 1028 ttl 60`,
		"icmp", 0.99},
	{"fragments", `ipv4 udp from 0.0.0.0/0 permuted to ` + victim + ` frag 185 len 1500 id random`,
		"fragments", 0.99},
	{"ACK", `ipv4 tcp flags ack from 0.0.0.0/0 permuted from port random to ` + victim +
		` port random seq random window 0-65535 random ttl 200-255 random`, "ack", 0.95},
	{"carpet", `ipv4 udp from 77.0.0.0/8 permuted from port 123 to 203.0.113.0/24 random ` +
		`port random len 468 ttl 55`, "to 203.0.113.0/24", 0.99},
}

func TestFloodsAreToldFromGoodTraffic(t *testing.T) {
	calm := sampleOf(nil, frames(t, good, 0, 18_000))
	for _, f := range floods {
		t.Run(f.name, func(t *testing.T) {
			p := propose(t, sampleOf(nil, frames(t, f.packets, 0, 10_000)), calm,
				Limits{Collateral: 0.001})
			if len(p.Rules) == 0 || len(p.Rules) > 2 || p.Flood.Coverage() < f.least ||
				p.Good.Collateral() > 0.001 {
				t.Errorf("%d rules, %.4f of the flood, %.5f of the good traffic", len(p.Rules),
					p.Flood.Coverage(), p.Good.Collateral())
			}
			if len(p.Rules) > 0 && !strings.Contains(p.Rules[0].Text, f.want) {
				t.Errorf("no %q in %s", f.want, p.Rules[0].Text)
			}
			wantPolicy(t, p)
		})
	}
}

// wantPolicy checks that rules are policy text as it is laid out.
func wantPolicy(t testing.TB, p *Proposal) {
	t.Helper()
	text := string(p.Policy())
	f, ds := syntax.Parse("proposal", []byte(text))
	if len(ds) > 0 || string(ast.Format(f)) != text {
		t.Errorf("not as it is laid out, or with remarks %v:\n%s", ds, text)
	}
	again, ds := resolve.Resolve(f, nil)
	if again == nil || len(ds) > 0 {
		t.Fatalf("%v\n%s", ds, text)
	}
	for _, f := range ir.Build(again).Findings {
		t.Errorf("a warning: %s\n%s", f.Message, text)
	}
}
