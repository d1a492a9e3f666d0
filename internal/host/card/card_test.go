package card

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Features of virtio cards as kernel 6.12 shows them, with what qemu 10 was told.
const (
	plain = "0010010000000001111101010000110010000000100000000000000000000000"
	// mrg_rxbuf=off,host_mtu=9000
	largeMTU = "0011010000000000111101010000110010000000100000000000000000000000"
	// mrg_rxbuf=off behind a tap that takes TSO and USO
	merging = "1110010111111110111101010000110010000000100000000000001110000000"
	// ctrl_guest_offloads=off behind such a tap
	unchangeable = "1100010111111111111101010000110010000000100000000000001110000000"
)

func virtio(t *testing.T, features string) *Card {
	t.Helper()
	v := parseVirtio(features + "\n")
	if v == nil {
		t.Fatalf("%s is not understood", features)
	}
	return &Card{Name: "eth0", Driver: virtioNet, MTU: 1500, MaxMTU: 65535, Virtio: v}
}

// A native program is attached, and "costs least", where virtio_net never asks it: without
// mergeable buffers, if the host may hand over more than a frame.
func TestVirtioWithoutMergeableBuffersIsNotTakenNative(t *testing.T) {
	only := func(bits ...int) *Card {
		v := &Virtio{}
		for _, b := range bits {
			v.Features |= 1 << b
		}
		return &Card{Name: "eth0", MTU: 1500, MaxMTU: 1500, Virtio: v}
	}
	jumbo := only(hostMTU)
	jumbo.MaxMTU = 9000
	for _, c := range []struct {
		name string
		card *Card
		why  string // "" if it is taken
	}{
		{"plain", virtio(t, plain), ""},
		{"no virtio", &Card{Driver: "e1000e"}, ""},
		{"large MTU", virtio(t, largeMTU), "an MTU of up to"},
		{"TSO and USO", virtio(t, merging), "guest_tso"},
		{"128 features", virtio(t, merging+strings.Repeat("01", 32)), "guest_tso"},
		{"TSO with mergeable buffers", virtio(t, unchangeable), ""},
		{"nothing but small frames", only(), ""},
		{"an MTU of the host's that is not large", only(hostMTU), ""},
		{"an MTU of the host's that is", jumbo, "9000"},
		{"TSO for IPv4", only(7), "guest_tso"},
		{"TSO for IPv6", only(8), "guest_tso"},
		{"ECN", only(9), "guest_tso"},
		{"UFO", only(10), "guest_tso"},
		{"USO for IPv4", only(54), "guest_uso"},
		{"USO for IPv6", only(55), "guest_uso"},
		{"with mergeable buffers", only(7, 8, 54, 55, mrgRxbuf), ""},
		{"a bond of it", &Card{Bond: true, Ports: []*Card{virtio(t, plain),
			virtio(t, merging)}}, "eth0 receives"},
	} {
		got := c.card.Unasked()
		if (got == "") != (c.why == "") || !strings.Contains(got, c.why) {
			t.Errorf("%s: %q, want %q", c.name, got, c.why)
		}
	}
}

func TestWhatTheHostDoesNotLetEndIsSaid(t *testing.T) {
	if got := virtio(t, unchangeable).Refuses(); !strings.Contains(got, "ctrl_guest_offloads") {
		t.Errorf("the driver refuses XDP there, and the card says %q", got)
	}
	for _, features := range []string{plain, largeMTU, merging} {
		if got := virtio(t, features).Refuses(); got != "" {
			t.Errorf("%s: %s", features, got)
		}
	}
	merges := &Card{Name: "eth0", Offloads: map[string]Offload{GROHW: {On: true, Fixed: true}}}
	if got := merges.Merges(); !strings.Contains(got, "eth0 merges packets") {
		t.Errorf("a card that merges whatever is asked for says %q", got)
	}
	for _, o := range []Offload{{}, {On: true}, {Fixed: true}} {
		if got := (&Card{Offloads: map[string]Offload{GROHW: o, LRO: o}}).Merges(); got != "" {
			t.Errorf("%+v: %s", o, got)
		}
	}
}

// The setting of a bond says nothing of tags: its ports take them off, or do not. That of a veth
// device neither: its other end has put them beside the frame.
func TestTagsAreTakenOffWhereFramesCome(t *testing.T) {
	on, off := map[string]Offload{RxVLAN: {On: true}}, map[string]Offload{RxVLAN: {Fixed: true}}
	port := func(name string, o map[string]Offload) *Card { return &Card{Name: name, Offloads: o} }
	for _, c := range []struct {
		name       string
		card       *Card
		devs, mend string
	}{
		{"a card that does", port("eth0", on), "eth0", "ethtool -K eth0 rxvlan off"},
		{"one that does not", port("eth0", off), "", ""},
		{"one that does not tell", port("eth0", nil), "", ""},
		{"one that always does",
			port("eth0", map[string]Offload{RxVLAN: {On: true, Fixed: true}}), "eth0", ""},
		{"a bond of two that do", &Card{Name: "bond0", Bond: true, Offloads: off,
			Ports: []*Card{port("eth0", on), port("eth1", on)}}, "eth0 eth1",
			"ethtool -K eth0 rxvlan off ethtool -K eth1 rxvlan off"},
		{"a bond of one that does", &Card{Name: "bond0", Bond: true, Offloads: on,
			Ports: []*Card{port("eth0", off), port("eth1", on)}}, "eth1",
			"ethtool -K eth1 rxvlan off"},
		{"a bond of none that does", &Card{Name: "bond0", Bond: true, Offloads: on,
			Ports: []*Card{port("eth0", off)}}, "", ""},
		{"veth that says it does not", &Card{Name: "v0", Driver: "veth", Offloads: off}, "v0",
			"ethtool -K PEER txvlan off   # PEER: the other end of v0"},
	} {
		devs, mend := c.card.TakesTagsOff()
		if strings.Join(devs, " ") != c.devs || strings.Join(mend, " ") != c.mend {
			t.Errorf("%s: %q, %q", c.name, devs, mend)
		}
	}
}

func TestFeaturesAreReadByTheBus(t *testing.T) {
	sys := t.TempDir()
	dir := filepath.Join(sys, "bus/pci/devices/0000:01:00.0/virtio3")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "features"), []byte(merging+"\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if v := readVirtio(sys, "0000:01:00.0"); v == nil || v.Has(mrgRxbuf) || !v.Has(54) {
		t.Errorf("read %+v", v)
	}
	for _, bus := range []string{"", "0000:02:00.0", "*", "../devices"} {
		if v := readVirtio(sys, bus); v != nil {
			t.Errorf("%q: read %+v", bus, v)
		}
	}
	for _, text := range []string{"2", "0 1", "11\n1"} {
		if v := parseVirtio(text); v != nil {
			t.Errorf("%q: read %+v", text, v)
		}
	}
}

func TestUnderAProgramAnMTUHasALimit(t *testing.T) {
	at := func(driver string, mtu int) *Card {
		return &Card{Name: "eth0", Driver: driver, MTU: mtu, Physical: true}
	}
	bond := func(ports ...*Card) *Card { return &Card{Name: "bond0", Bond: true, Ports: ports} }
	for _, c := range []struct {
		card *Card
		want int
	}{
		{at("igb", 1500), 1510}, {at("igb", 1510), 1510}, {at("igb", 1511), 3046},
		{at("virtio_net", 1500), 3502}, {at("novel", 1500), 3498},
		{bond(at("virtio_net", 1500), at("igb", 1500)), 1510},
		{&Card{Driver: "veth", MTU: 1500}, 0}, {bond(), 0},
	} {
		if got, ok := c.card.RaisedMTU(3498); got != c.want || ok != (c.want > 0) {
			t.Errorf("%+v: %d, %v, want %d", c.card, got, ok, c.want)
		}
	}
}

// igb takes the link down for 2 s, and `up` said so afterwards, or never.
func TestCardsWhoseLinkGoesDownAreKnown(t *testing.T) {
	igb := &Card{Name: "eth0", Driver: "igb"}
	bond := &Card{Name: "bond0", Driver: "bonding", Bond: true,
		Ports: []*Card{{Name: "eth1", Driver: "virtio_net"}, igb}}
	for _, c := range []*Card{igb, bond} {
		if why := c.Bounces(); !strings.HasPrefix(why, "eth0 (driver igb): ") ||
			!strings.Contains(why, "the link goes down") {
			t.Errorf("%s: %q", c.Name, why)
		}
	}
	// At an MTU that it refuses `up` had said so, and then took tc.
	if igb.Fragments() || bond.Fragments() {
		t.Error("igb is tried at any MTU")
	}
	for _, driver := range []string{"virtio_net", "veth", "novel"} {
		if why := (&Card{Driver: driver}).Bounces(); why != "" {
			t.Errorf("%s: %q", driver, why)
		}
	}
}
