package tally

import (
	"net/netip"
	"testing"

	"levee/internal/await"
	"levee/internal/lab"
	"levee/internal/lab/gen"
	"levee/internal/lab/labtest"
	"levee/internal/packet"
)

func TestPacketsOfKnownHostsAreCounted(t *testing.T) {
	l := labtest.New(t)
	server, world := l.Host(lab.Server), l.Host(lab.World)
	known := netip.MustParsePrefix("198.18.0.0/24")
	in := begin(t, server, In, known)
	out := begin(t, world, Out, known)
	labtest.Send(t, l, 9, 7) // also by IPv6, which is not counted
	to := server.Devices[0].IPv4.Addr()
	others := []netip.Prefix{netip.MustParsePrefix("198.18.1.0/24")}
	for _, f := range []gen.Flood{
		{Kind: gen.UDP}, {Kind: gen.SYN}, {Kind: gen.SYN, TCPOptions: gen.SYNOptions},
		{Kind: gen.ACK}, {Kind: gen.ACK, Flags: packet.SYN | packet.ACK}, {Kind: gen.ICMPEcho},
		{Kind: gen.Fragment},
	} {
		f.To, f.Sources = to, others
		r, err := gen.Run(t.Context(), gen.Config{Namespace: world.Namespace,
			Device: world.Devices[0].Name, CPU: -1, Floods: []gen.Flood{f}, Count: 10, Seed: 1})
		if err != nil || r.Sent != 10 || r.Refused != 0 {
			t.Fatalf("%v: %+v, %v", f.Kind, r, err)
		}
	}
	want := [Kinds]uint64{SYN: 20, TCP: 20, UDP: 10, ICMP: 10, Fragment: 10}
	var got Counts
	await.True(t, "70 packets of others arrive", func() bool {
		got = read(t, in)
		return Packets(&got.Others) >= 70
	})
	for k, n := range want {
		if got.Others[k].Packets != n {
			t.Errorf("%d packets of kind %v arrived, want %d", got.Others[k].Packets, Kind(k), n)
		}
	}
	if n := got.Known[UDP]; n.Packets != 7 || n.Bytes != 7*(14+20+8+8) {
		t.Errorf("datagrams of known hosts that arrived: %+v, want 7", n)
	}
	// The generator's frames go past the stack.
	if left := read(t, out); left.Known[UDP] != got.Known[UDP] || Packets(&left.Others) != 0 {
		t.Errorf("left %+v, arrived %+v", left, got)
	}
}

func TestOnlyDevicesOfLabsAreTouched(t *testing.T) {
	labtest.NeedRoot(t)
	l := labtest.New(t)
	_, err := On(l.Host(lab.Server), "lo", In, netip.MustParsePrefix("198.18.0.0/24"))
	if err == nil {
		t.Error("a tally attached to lo")
	}
	_, err = On(l.Host(lab.Server), "eth0", In, netip.MustParsePrefix("2001:db8::/64"))
	if err == nil {
		t.Error("a tally of IPv6 was begun")
	}
}

func begin(t *testing.T, h *lab.Host, d Direction, known netip.Prefix) *Tally {
	t.Helper()
	x, err := On(h, h.Devices[0].Name, d, known)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func read(t *testing.T, x *Tally) Counts {
	t.Helper()
	c, err := x.Read()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
