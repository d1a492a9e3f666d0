package detect

import (
	"net/netip"
	"slices"
	"testing"

	"levee/internal/agent/kind"
	"levee/internal/packet"
)

// floodsOf are the floods of a second of packets, behind calm traffic.
func floodsOf(t *testing.T, parts ...func(w *world) part) []Alarm {
	t.Helper()
	w := newWorld(Options{})
	w.calm(t, 2000, 15)
	all := w.web(2000, 20_000)
	for _, p := range parts {
		all = append(all, p(w))
	}
	var out []Alarm
	for range 10 {
		out = Floods(w.tenth(all, 400))
	}
	return out
}

func udpTo(hosts uint32, rate float64) func(*world) part {
	return func(w *world) part {
		return part{rate, 100, func() packet.Packet {
			return udp(v4(w.r.Uint32()), v4(0xc0000200+w.r.Uint32N(hosts)), uint16(w.r.Uint32()), 9)
		}}
	}
}

func greTo(to netip.Addr, rate float64) func(*world) part {
	return func(w *world) part {
		return part{rate, 100, func() packet.Packet {
			return packet.Packet{Family: packet.IPv4, EtherType: packet.EtherIPv4,
				Src: v4(w.r.Uint32()), Dst: to, Proto: 47}
		}}
	}
}

// TestFloodsAreToldApart by kind and destination, and one of all hosts of a network is one.
func TestFloodsAreToldApart(t *testing.T) {
	for _, c := range []struct {
		what  string
		parts []func(*world) part
		kinds []kind.Kind
		hosts int
	}{
		{"UDP", []func(*world) part{udpTo(1, 60_000)}, []kind.Kind{kind.UDP}, 0},
		{"UDP and GRE", []func(*world) part{udpTo(1, 60_000), greTo(server, 40_000)},
			[]kind.Kind{kind.UDP, kind.Other}, 0},
		{"GRE", []func(*world) part{greTo(server, 40_000)}, []kind.Kind{kind.Other}, 0},
		{"two hosts", []func(*world) part{udpTo(2, 60_000)}, []kind.Kind{kind.UDP, kind.UDP}, 2},
		{"a network", []func(*world) part{udpTo(256, 60_000)}, []kind.Kind{kind.UDP}, 0},
	} {
		var kinds []kind.Kind
		hosts := 0
		for _, a := range floodsOf(t, c.parts...) {
			kinds = append(kinds, a.Kind)
			if c.hosts > 0 && a.To.IsSingleIP() {
				hosts++
			}
		}
		if !slices.Equal(kinds, c.kinds) || hosts != c.hosts {
			t.Errorf("%s: %v, %d of hosts", c.what, kinds, hosts)
		}
	}
}
