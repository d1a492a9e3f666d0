package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/await"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/plan"
	"levee/internal/lang/dnsname"
	"levee/internal/packet"
	"levee/internal/packet/dns"
)

// query is a frame with a DNS query for a name.
func query(t *testing.T, family packet.Family, name string) []byte {
	t.Helper()
	p, bad := dnsname.Parse(name)
	if bad != nil {
		t.Fatal(bad)
	}
	f, err := packet.Build(packet.Spec{Family: family, Proto: new(uint8(packet.ProtoUDP)),
		ToPort: new(uint16(53)), Payload: dns.Query(dns.Message{Question: true, Name: p.Name,
			Type: 28, EDNS: true, Size: 1232})})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// queries are queries from so many sources in turn, each for a name of its own.
func queries(t testing.TB, family packet.Family, sources int, name string) (frames [][]byte) {
	t.Helper()
	s := packet.Spec{Proto: new(uint8(packet.ProtoUDP)), FromPort: new(uint16(40000)),
		ToPort: new(uint16(53)), From: netip.MustParseAddr("16.0.0.1"),
		To: netip.MustParseAddr("198.51.100.1"), EtherTo: &[6]byte{2, 0, 0, 0, 0, 1},
		EtherFrom: &[6]byte{2, 0, 0, 0, 0, 2}}
	source := 26 // the lower 32 bits of the address, in the frame
	if family == packet.IPv6 {
		s.From, s.To = netip.MustParseAddr("2a00::1"), netip.MustParseAddr("2001:db8::1")
		source = 34
	}
	for i := range sources {
		p, bad := dnsname.Parse(fmt.Sprintf(name, i*2654435761%1_000_000))
		if bad != nil {
			t.Fatal(bad)
		}
		s.Payload = dns.Query(dns.Message{Question: true, Name: p.Name, Type: 1, EDNS: true,
			Size: 1232})
		f, err := packet.Build(s)
		if err != nil {
			t.Fatal(err)
		}
		binary.BigEndian.PutUint32(f[source:], 16<<24|uint32(i)*2654435761>>8)
		frames = append(frames, f)
	}
	return frames
}

// BenchmarkAskAgain measures the time of a query that a cookie answers above an empty program.
func BenchmarkAskAgain(b *testing.B) {
	r := benchRunner(b, "cookie dns udp port 53\npass established\ndefault pass\n")
	for _, family := range []packet.Family{packet.IPv4, packet.IPv6} {
		for _, sources := range []int{1, 1 << 16} {
			b.Run(fmt.Sprintf("%s/sources=%d", family, sources), func(b *testing.B) {
				benchFrames(b, r, queries(b, family, sources, "%07x.example.com"))
			})
		}
	}
}

// BenchmarkNames measures the time of a query above an empty program: by a policy that looks at the
// port, and by ones that look its name up, in a small set, in one of a million names, and in a
// dynamic one of as many; for one name of 22 bytes, and for as many as no cache holds, which are in
// the set of a million or are not.
func BenchmarkNames(b *testing.B) {
	million := func(b *testing.B) string {
		path := filepath.Join(b.TempDir(), "names.txt")
		var out bytes.Buffer
		for i := range 1_000_000 {
			fmt.Fprintf(&out, "h%07x.z.example.com\n", i)
		}
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			b.Fatal(err)
		}
		return path
	}(b)
	for _, c := range []struct{ name, set string }{{"port", ""},
		{"small", `{ "a.example.org", "b.c.example.net" }`},
		{"million", fmt.Sprintf("file(%q, of names)", million)},
		{"dynamic", "dynamic(of names, max 1000000)"}} {
		text := "drop udp port 54\ndefault pass\n"
		if c.set != "" {
			text = "set s = " + c.set + "\ndrop udp port 53 dns name in s\ndefault pass\n"
		}
		r := benchRunner(b, text)
		if c.name == "dynamic" {
			begun := time.Now()
			for i := range 1_000_000 {
				e := sets.Entry{Name: fmt.Sprintf("h%07x.z.example.com", i), Lease: sets.Forever}
				if err := r.SetAdd("s", e); err != nil {
					b.Fatal(err)
				}
			}
			b.Logf("a million names in %v", time.Since(begun))
		}
		for _, n := range []int{1, 1 << 18} {
			for what, name := range map[string]string{"in": "h%07x.z.example.com",
				"not": "n%07x.z.example.com"} {
				b.Run(fmt.Sprintf("%s/names=%d/%s", c.name, n, what), func(b *testing.B) {
					benchFrames(b, r, queries(b, packet.IPv4, n, name))
				})
			}
		}
	}
}

// TestALargeSetOfNamesHasItsNamesAndNoOthers: one that has a filter in front of its table. A third
// of its elements stands for what is below them alone.
func TestALargeSetOfNamesHasItsNamesAndNoOthers(t *testing.T) {
	const n = 70_000
	var text bytes.Buffer
	for i := range n {
		form := "h%d.z%d.example\n"
		if i%3 == 0 {
			form = "*." + form
		}
		fmt.Fprintf(&text, form, i, i%7)
	}
	path := filepath.Join(t.TempDir(), "names.txt")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for hook, target := range map[string]codegen.Target{"xdp": {Trace: true},
		"tcx": {Trace: true, Hook: codegen.TCX}} {
		r, p := runnerOf(t, fmt.Sprintf("set s = file(%q, of names)\n"+
			"drop udp port 53 dns name in s\ndefault pass\n", path), target)
		for i := range 2_000 {
			at := i * n / 2_000
			for _, c := range []struct {
				form string
				in   bool
			}{{"h%d.z%d.example", at%3 != 0}, {"www.h%d.z%d.example", true},
				{"n%d.z%d.example", false}} {
				name := fmt.Sprintf(c.form, at, at%7)
				slot, _, err := r.Eval(query(t, packet.IPv4, name))
				if err != nil || (slot == p.RuleSlot(0)) != c.in {
					t.Fatalf("at %s %s: slot %d, %v; in the set: %v", hook, name, slot, err, c.in)
				}
			}
		}
	}
}

// TestManySetsOfNamesShareAMap: more than have maps of their own are looked up by their numbers.
func TestManySetsOfNamesShareAMap(t *testing.T) {
	var text strings.Builder
	for i := range plan.MaxOwn + 10 {
		fmt.Fprintf(&text, "set n%d = dynamic(of names, max %d)\n", i, 50+10*i)
	}
	for i := range plan.MaxOwn + 10 {
		fmt.Fprintf(&text, "drop udp port 53 dns name in n%d\n", i)
	}
	r, p := runnerOf(t, text.String()+"default pass\n", codegen.Target{Trace: true})
	for i := range plan.MaxOwn + 10 {
		name := fmt.Sprintf("zone%d.example", i)
		e := sets.Entry{Name: name, Lease: sets.Forever}
		if err := r.SetAdd(fmt.Sprintf("n%d", i), e); err != nil {
			t.Fatal(err)
		}
		slot, _, err := r.Eval(query(t, packet.IPv4, "www."+name))
		if err != nil || slot != p.RuleSlot(i) {
			t.Errorf("%s: slot %d, %v; want %d", name, slot, err, p.RuleSlot(i))
		}
	}
}

// BenchmarkNamesAtEachHook measures what the reading of a name costs above a rule on a port, also
// where packets may lie in several buffers.
func BenchmarkNamesAtEachHook(b *testing.B) {
	for hook, target := range map[string]codegen.Target{"xdp": {}, "xdp.frags": {Frags: true},
		"tc": {Hook: codegen.TCX}} {
		for match, words := range map[string]string{"port": "",
			"name": ` dns name in { "a.example.org", "b.c.example.net" }`} {
			b.Run(hook+"/"+match, func(b *testing.B) {
				target.CPUs = runtime.NumCPU()
				r, _ := runnerOf(b, "drop udp port 53"+words+"\ndefault pass\n", target)
				frames := queries(b, packet.IPv4, 1, "n%07x.z.example.com")
				var ns []float64
				for b.Loop() {
					c, err := r.Bench(frames, 200_000)
					if err != nil {
						b.Fatal(err)
					}
					ns = append(ns, c.NsPerPacket)
				}
				slices.Sort(ns)
				b.ReportMetric(ns[len(ns)/2], "ns/packet")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// TestNamesOfQueriesAreJudgedAtEachHook sends queries of both families to a policy about names.
func TestNamesOfQueriesAreJudgedAtEachHook(t *testing.T) {
	n := newTestNet(t)
	const text = `set abused = { "evil.example", "*.below.example" }
drop udp port 53 dns malformed as "malformed"
drop udp port 53 dns name in abused dns type AAAA dns edns-size > 512 as "abused"
pass udp port 53 dns query as "query"
default pass
`
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			defer Down(t.Context(), "lv0")
			if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
				t.Fatal(err)
			}
			for _, family := range []packet.Family{packet.IPv4, packet.IPv6} {
				for _, name := range []string{"evil.example", "WWW.Evil.Example",
					"a.b.below.example"} {
					n.sendFrame(t, query(t, family, name))
				}
				for _, name := range []string{"below.example", "notevil.example", "example", "."} {
					n.sendFrame(t, query(t, family, name))
				}
				f := query(t, family, "evil.example")
				f[bytes.Index(f, []byte("\x04evil"))] = 0xc0 // a pointer
				n.sendFrame(t, f)
			}
			wantPackets(t, "malformed", 2)
			wantPackets(t, "abused", 6)
			wantPackets(t, "query", 8)
		})
	}
}

// TestNamesOfMessagesInSeveralBuffers sends messages that the first buffer does not hold.
func TestNamesOfMessagesInSeveralBuffers(t *testing.T) {
	n := newTestNet(t)
	largeMTU(t, n)
	const text = `drop udp port 53 dns malformed as "malformed"
drop udp port 53 dns name { "evil.example", "*.below.example" } dns type AAAA as "abused"
pass udp port 53 dns response as "response"
default drop
`
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			defer Down(t.Context(), "lv0")
			if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
				t.Fatal(err)
			}
			long := func(name string, m dns.Message) {
				p, bad := dnsname.Parse(name)
				if bad != nil {
					t.Fatal(bad)
				}
				m.Question, m.Name = true, p.Name
				f, err := packet.Build(packet.Spec{Family: packet.IPv6,
					Proto: new(uint8(packet.ProtoUDP)), ToPort: new(uint16(53)),
					Payload: append(dns.Query(m), make([]byte, 8000)...)})
				if err != nil {
					t.Fatal(err)
				}
				n.sendFrame(t, f)
			}
			deep := strings.Repeat("a.", 119) + "below.example"
			for _, name := range []string{"evil.example", "WWW.Evil.Example", deep} {
				long(name, dns.Message{Response: true, Type: 28})
				long(name, dns.Message{Response: true, Type: 1})
			}
			long("below.example", dns.Message{Response: true, Type: 28})
			long("evil.example", dns.Message{Type: 28}) // bytes behind a question
			wantPackets(t, "malformed", 1)
			wantPackets(t, "abused", 3)
			wantPackets(t, "response", 4)
		})
	}
}

// TestBudgetsOfZonesOutliveAReplace exhausts the budget of a zone. Digests by another secret would
// give it a new one with each policy.
func TestBudgetsOfZonesOutliveAReplace(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "xdp", func(t *testing.T) {
		defer Down(t.Context(), "lv0")
		text := func(more string) string {
			return "limit udp port 53 rate 1/d burst 2 by dns-name/2 as \"zone\"\n" + more +
				"pass udp port 53 as \"query\"\ndefault pass\n"
		}
		if err := bringPolicyAt(t, "lv0", allModes(t)[0], text(""), 0); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			n.sendFrame(t, query(t, packet.IPv4, fmt.Sprintf("r%d.example.com", i)))
		}
		n.sendFrame(t, query(t, packet.IPv6, "other.example.net"))
		wantPackets(t, "zone", 3)
		wantPackets(t, "query", 3)
		if err := bringPolicyAt(t, "lv0", allModes(t)[0], text("count tcp\n"), 0); err != nil {
			t.Fatal(err)
		}
		n.sendFrame(t, query(t, packet.IPv6, "r9.Example.COM"))
		wantPackets(t, "zone", 4)
	})
}

// TestSecretOfNamesIsKeptForNamesOnly looks for what a policy without names has left of them, and
// what one with names leaves that goes, or whose `up` dies at any step.
func TestSecretOfNamesIsKeptForNamesOnly(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "xdp", func(t *testing.T) {
		const names = "drop udp port 53 dns name \"evil.example\"\ndefault pass\n"
		for text, want := range map[string]bool{"default pass\n": false, names: true} {
			if err := bringPolicyAt(t, "lv0", store.Auto, text, 0); err != nil {
				t.Fatal(err)
			}
			if there := strings.Contains(kept(t), "secret.json"); there != want {
				t.Errorf("a secret of names %v, want %v, for %q", there, want, text)
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
			await.OK(t, func() error { return nothingAtAll(t, "down") })
		}
		up := order{Do: "up", Dev: "lv0", File: filepath.Join(t.TempDir(), "a.levee"), Text: names}
		for i, step := range record(t, up) {
			_, _ = Down(t.Context(), "lv0")
			inject(t, up, i, true)
			_, _, _ = inspect.Status(t.Context(), true)
			_, _ = Down(t.Context(), "lv0") // the last steps come after the swap
			await.OK(t, func() error { return nothingAtAll(t, "up killed at "+step) })
		}
	})
}
