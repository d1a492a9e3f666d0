package literal

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/policy"
)

// FuzzReadElements holds for any file of entries: no panic; either bad lines or entries of one type
// come back, each with ports that are a block; and an entry is read again from what it prints.
func FuzzReadElements(f *testing.F) {
	for _, s := range []string{
		"192.0.2.0/24 tcp/443\n", "192.0.2.1-192.0.2.9\tudp/8000-8010 ; x\n2001:db8::/48   gre\n",
		"tcp/80\nudp/1-65535\n", "10.0.0.1\n",
		"80\n", "192.0.2.1 443\n", "tcp\n", "192.0.2.1 tcp/0-65535\n", "0.0.0.0/0 icmp\n",
		"::ffff:1.2.3.4 tcp/1\n", "192.0.2.1 tcp/5-4", "1.2.3.4 tcp/80 x",
		"1.2.3.4\n1.2.3.4 tcp/1\ntcp/1\n", "1.2.3.4, tcp/80\n", "192.0.2.1 icmp/8\n",
		"a.b tcp/1\n\x00 tcp",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		all, ds := ReadElements(bytes.NewReader(src), "fuzz.txt")
		if ds.HasErrors() && len(all) > 0 {
			t.Fatalf("%d entries with %d diagnostics", len(all), len(ds))
		}
		for _, d := range ds {
			if int(d.Line) > bytes.Count(src, []byte("\n"))+1 || d.Line > 0 &&
				(d.Col < 1 || d.EndCol <= d.Col) {
				t.Fatalf("place of %+v", d)
			}
		}
		for i, e := range all {
			typ := LooksLike(all[0].String())
			if err := e.Check(typ); err != nil || len(e.Blocks()) != 1 {
				t.Fatalf("entry %d, %v, of %v: %v, %d blocks", i, e, typ, err, len(e.Blocks()))
			}
			again, ds := ReadElements(strings.NewReader(e.String()), "again")
			if ds.HasErrors() || !slices.Equal(again, []policy.Element{e}) {
				t.Fatalf("%v is read again as %v, %v", e, again, ds)
			}
		}
	})
}

// Merging endpoints keeps exactly what they match, whatever overlaps.
func TestMergedEndpointsMatchTheSame(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 0))
	for range 500 {
		var all []policy.Element
		for range 1 + rng.IntN(12) {
			lo := uint16(rng.IntN(12))
			s := policy.Service{Proto: []uint8{6, 17}[rng.IntN(2)], Lo: lo,
				Hi: lo + uint16(rng.IntN(4))}
			if rng.IntN(6) == 0 {
				s = policy.Service{Proto: 47, Hi: policy.LastPort}
			}
			a := netip.AddrFrom4([4]byte{192, 0, 2, byte(rng.IntN(16))})
			p, _ := a.Prefix(28 + rng.IntN(5))
			all = append(all, policy.Element{Prefix: p, Service: s})
		}
		matches := func(list []policy.Element, a netip.Addr, proto uint8, port uint16) bool {
			return slices.ContainsFunc(list,
				func(e policy.Element) bool {
					return e.Prefix.Contains(a) &&
						e.Service.Holds(proto, port)
				})
		}
		merged := mergeEndpoints(slices.Clone(all))
		if len(merged) > len(all) {
			t.Fatalf("%v became %v", all, merged)
		}
		for _, proto := range []uint8{6, 17, 47, 50} {
			for port := range uint16(18) {
				for last := range byte(17) {
					a := netip.AddrFrom4([4]byte{192, 0, 2, last})
					if matches(all, a, proto, port) != matches(merged, a, proto, port) {
						t.Fatalf("%v %d/%d: %v became %v", a, proto, port, all, merged)
					}
				}
			}
		}
	}
}

func TestBlocksCoverARangeOfPorts(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"192.0.2.1 tcp/8000-8010", "192.0.2.1 tcp/8000-8007, 192.0.2.1 tcp/8008-8009, 192.0.2.1 " +
			"tcp/8010"},
		{"tcp/443", "tcp/443"},
		{"udp/1-65534", ""},
		{"192.0.2.0/24 gre", "192.0.2.0/24 gre"},
		{"192.0.2.1 sctp", "192.0.2.1 sctp"},
		{"10.0.0.0/8", "10.0.0.0/8"},
		{"tcp/65535", "tcp/65535"},
		{"tcp/0", "tcp/0"},
	} {
		all, ds := ReadElements(strings.NewReader(tt.in), "")
		if err := ds.Err(); err != nil {
			t.Fatal(err)
		}
		var texts []string
		ports := 0
		for _, e := range all {
			texts = append(texts, e.String())
			ports += int(e.Service.Hi) - int(e.Service.Lo) + 1
		}
		if got := strings.Join(texts, ", "); tt.want != "" && got != tt.want {
			t.Errorf("%s: %s", tt.in, got)
		}
		if tt.want == "" && (len(all) != 30 || ports != 65534) {
			t.Errorf("%s: %d blocks of %d ports", tt.in, len(all), ports)
		}
	}
}
