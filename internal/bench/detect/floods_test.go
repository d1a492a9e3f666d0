package detect

import (
	"bytes"
	"io"
	"net/netip"
	"slices"
	"testing"
	"time"

	floodkind "levee/internal/agent/kind"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
	"levee/internal/packet/template"
)

var victim = netip.MustParseAddr("198.18.0.1")

func TestEachFloodHasWaves(t *testing.T) {
	o := &Options{Data: t.TempDir(), During: defaultDuring,
		six: netip.MustParseAddr("2001:db8::1")}
	for _, k := range kinds {
		waves, err := k.waves(o, victim)
		if k.name == "capture" {
			if err == nil {
				t.Error("a capture that is not there is sent")
			}
			continue
		}
		if err != nil || len(waves) == 0 {
			t.Errorf("%s: %v", k.name, err)
		}
		end := time.Duration(0)
		for _, v := range waves {
			if (v.floods == nil) == (v.replay == nil && v.packets == nil) ||
				v.lasts < time.Second || v.at < end {
				t.Errorf("%s: %+v", k.name, v)
			}
			end = v.at + v.lasts
		}
	}
}

// TestEachKindOfFloodIsSent: a row of the table of kinds names the flood that measures it. Packets
// in words are of that kind.
func TestEachKindOfFloodIsSent(t *testing.T) {
	for i, r := range floodkind.Rows {
		if r.Floor == 0 {
			continue
		}
		at := slices.Index(FloodNames(), r.Bench)
		if at < 0 {
			t.Errorf("the row of %s names the flood %q, which kinds in floods.go has not",
				r.Name, r.Bench)
			continue
		}
		waves, err := kinds[at].waves(&Options{During: defaultDuring}, victim)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range waves {
			if w.packets == nil {
				continue
			}
			made, err := template.Compile(w.packets, template.Defaults{}, 1)
			if err != nil {
				t.Fatal(err)
			}
			var p packet.Packet
			packet.Decode(made.Frame(make([]byte, made.Longest()), 0), &p)
			if k := floodkind.OfPacket(&p); k != floodkind.Kind(i) {
				t.Errorf("the row of %s names the flood %q, whose packets are of %s", r.Name,
					r.Bench, k)
			}
		}
	}
}

// TestTheRulesInFrontAreAPolicy, which passes what it says.
func TestTheRulesInFrontAreAPolicy(t *testing.T) {
	p, ds := resolve.Parse("service", slices.Concat(servicePolicy, defaultPolicy), nil)
	if p == nil || len(ds) > 0 || len(p.Detects) != 1 {
		t.Fatalf("%v", ds)
	}
	if !slices.ContainsFunc(p.Rules, func(r *policy.Rule) bool { return r.Label == "datagrams" }) {
		t.Error("no rule passes the flood")
	}
}

func TestAReflectionIsAnswersOfResolvers(t *testing.T) {
	text, err := reflection(7, victim, reflectors)
	if err != nil {
		t.Fatal(err)
	}
	again, err := reflection(7, victim, reflectors)
	if err != nil || !bytes.Equal(text, again) {
		t.Errorf("the same seed makes another capture: %v", err)
	}
	r, err := packet.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	whole, first, later := 0, 0, 0
	from := map[netip.Addr]bool{}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		ip := rec.Data[14:]
		source, _ := netip.AddrFromSlice(ip[12:16])
		from[source] = true
		place := uint16(ip[6])<<8 | uint16(ip[7])
		switch {
		case place&0x1fff != 0:
			later++
			continue
		case place != 0:
			first++
		default:
			whole++
		}
		if ip[9] != packet.ProtoUDP || ip[20] != 0 || ip[21] != 53 || ip[30]&0x80 == 0 {
			t.Fatalf("no answer of a resolver: %x", ip[:40])
		}
	}
	if whole+first != reflected || later < first || whole < reflected/10 ||
		len(from) < reflectors/2 || len(from) > reflectors {
		t.Errorf("%d answers whole, %d and %d fragments, from %d", whole, first, later, len(from))
	}
}
