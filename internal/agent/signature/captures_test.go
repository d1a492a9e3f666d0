package signature

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"levee/internal/packet"
)

// captured is a flood in a capture, of which some packets are the attack.
type captured struct {
	name   string
	file   []byte
	attack func(*packet.Packet) bool
	least  float64 // share of the attack that is dropped
}

// captures are a flood that is made here, and those of the directory that LEVEE_DATA names.
func captures(t *testing.T) []captured {
	t.Helper()
	all := func(*packet.Packet) bool { return true }
	var b bytes.Buffer
	w, err := packet.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range frames(t, strings.ReplaceAll(floods[0].packets, victim, hit), 0, 4_000) {
		if err := w.Write(f, 0, time.Unix(1_000_000_000, 0)); err != nil {
			t.Fatal(err)
		}
	}
	list := []captured{{"made", b.Bytes(), all, 0.99}}
	dir := os.Getenv("LEVEE_DATA")
	if dir == "" {
		return list
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, "pcap", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	dns := read("dns-amplification-fragmented.pcap")
	return append(list,
		captured{"SYN flood", read("synflood-spoofed.pcap"), all, 0.999},
		captured{"DNS amplification", dns, func(p *packet.Packet) bool {
			return p.Proto == packet.ProtoUDP && (p.Fragment || p.SrcPort == 53)
		}, 0.9},
		captured{"DNS amplification, with what else came", dns, all, 0.6})
}

// hit is the address in the captures.
const hit = "10.10.10.10"

// Floods of captures are told from good traffic that came along with them.
func TestFloodsOfCaptures(t *testing.T) {
	calm := frames(t, strings.ReplaceAll(good, victim, hit), 0, 18_000)
	for _, c := range captures(t) {
		t.Run(c.name, func(t *testing.T) {
			r, err := packet.NewReader(bytes.NewReader(c.file))
			if err != nil {
				t.Fatal(err)
			}
			s, attack := sampleOf(nil, calm[:4000]), 0
			for {
				rec, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				b, missing := rec.Whole(nil)
				var p packet.Packet
				if packet.Decode(b, &p); c.attack(&p) {
					attack++
					s.Add(b, missing)
				}
			}
			p := propose(t, s, sampleOf(nil, calm[4000:]), Limits{Collateral: 0.001})
			t.Logf("%d of %d packets of the attack, among %d", p.Flood.Dropped, attack, s.Len())
			if float64(p.Flood.Dropped) < c.least*float64(attack) || p.Flood.Dropped > attack {
				t.Errorf("the rules drop %d of %d packets", p.Flood.Dropped, attack)
			}
			if p.Good.Collateral() > 0.001 {
				t.Errorf("%.4f of the good traffic", p.Good.Collateral())
			}
			wantPolicy(t, p)
		})
	}
}
