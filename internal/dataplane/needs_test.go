package dataplane

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/host/card"
)

const asksForTags = "drop vlan 7\npass untagged tcp port 80\ndefault pass\n"

// A policy about tags was taken in native XDP, with a note, on cards that take tags off before it:
// VLAN 7 was untagged to it. On veth and on bonds the command in the note changed nothing.
func TestTagsThatXDPDoesNotSeeAreJudgedAtTC(t *testing.T) {
	newTestNet(t)
	tc := must2(attach.TCIngress())
	at := func(o UpOptions, text string) *Report {
		t.Helper()
		o.Dev = "lv0"
		r, err := Up(t.Context(), o, compileText(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := at(UpOptions{}, asksForTags)
	if r.Mode != tc || !strings.Contains(r.Reason, "lv0 takes VLAN tags off frames before XDP "+
		"sees "+
		"them, and line 1 asks for them; using "+string(tc)) {
		t.Errorf("at %s: %s", r.Mode, r.Reason)
	}
	if r := at(UpOptions{Mode: store.XDPNative}, asksForTags); r.Mode != store.XDPNative {
		t.Errorf("asked for native XDP: at %s", r.Mode)
	}
	if r := at(UpOptions{}, "drop udp port 7\ndefault pass\n"); r.Mode != store.XDPNative {
		t.Errorf("a policy that asks for no tags: at %s, %s", r.Mode, r.Reason)
	}
}

// Each of these cards was taken in native XDP, or in generic.
func TestWhatACardTellsDecidesTheHook(t *testing.T) {
	on := card.Offload{On: true, Fixed: true}
	merges := &card.Card{Name: "eth0", Offloads: map[string]card.Offload{card.GROHW: on}}
	unasked := &card.Card{Name: "eth0", Driver: "virtio_net", MTU: 1500,
		Virtio: &card.Virtio{Features: 1 << 7}}
	forgets := &card.Card{Name: "eth0", Driver: "vmxnet3"}
	tags := &card.Card{Name: "eth0", Driver: "igb",
		Offloads: map[string]card.Offload{card.RxVLAN: {On: true}}}
	bond := &card.Card{Name: "bond0", Driver: "bonding", Bond: true, Ports: []*card.Card{tags}}
	bridge := &card.Card{Name: "br0", Driver: "bridge"}
	for _, c := range []struct {
		name  string
		card  *card.Card
		mode  store.Mode
		text  string
		asked bool
		why   string // "" if it is taken
	}{
		{"virtio_net into chains of pages", unasked, store.XDPNative, "default pass\n", false,
			"past native XDP"},
		{"and whoever asks for it", unasked, store.XDPNative, "default pass\n", true,
			"past native XDP"},
		{"at tc", unasked, store.TCX, "default pass\n", false, ""},
		{"a driver that forgets", forgets, store.XDPNative, "default pass\n", false,
			"driver vmxnet3: "},
		{"and whoever asks for it", forgets, store.XDPNative, "default pass\n", true, ""},
		{"at tc", forgets, store.TCX, "default pass\n", false, ""},
		{"merged packets", merges, store.XDPGeneric, "default pass\n", true, "sees merged packets"},
		{"merged packets natively", merges, store.XDPNative, "default pass\n", false, ""},
		{"tags", tags, store.XDPNative, asksForTags, false, "eth0 takes VLAN tags off"},
		{"tags generically", tags, store.XDPGeneric, asksForTags, false,
			"eth0 takes VLAN tags off"},
		{"tags at tc", tags, store.Clsact, asksForTags, false, ""},
		{"no tags", tags, store.XDPNative, "default pass\n", false, ""},
		{"tags of a port", bond, store.XDPNative, asksForTags, false, "eth0 takes VLAN tags off"},
		{"tags of a stack", bridge, store.XDPGeneric, asksForTags, false,
			"br0 takes VLAN tags off"},
		{"tags of a port that were put beside the frame", bond, store.XDPGeneric, asksForTags,
			false,
			"bond0 takes VLAN tags off"},
	} {
		p, err := compileText(c.text)(codegen.Target{Hook: c.mode.Hook(), CPUs: 1, HZ: 250})
		if err != nil {
			t.Fatal(err)
		}
		err = attach.Misfit(&netlink.Dummy{}, c.card, c.mode, attach.NeedsOf(p), c.asked)
		if c.why == "" && err != nil || c.why != "" && (!errors.As(err, new(*attach.UnfitError)) ||
			!strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s at %s: %v, want %q", c.name, c.mode, err, c.why)
		}
	}
}

// TestALargerMTUThanTheProgramTakesIsTold: with a program without fragments `ping -s 4000` lost
// everything, and status and doctor said that all was well.
func TestALargerMTUThanTheProgramTakesIsTold(t *testing.T) {
	at := func(driver string, mtu int) *card.Card {
		return &card.Card{Name: "eth0", Driver: driver, MTU: mtu, Physical: true}
	}
	none := at("virtio_net", 4000) // Linux 6.1
	none.NoFragments = true
	bond := &card.Card{Name: "bond0", Bond: true, MTU: 4000, Ports: []*card.Card{
		at("virtio_net", 4000), at("novel", 4000)}}
	for _, c := range []struct {
		name string
		card *card.Card
		mode store.Mode
		frag bool
		want string // "": all is well
	}{
		{"virtio_net", at("virtio_net", 4000), store.XDPNative, false,
			"the MTU is 4000, and a native program takes packets of up to about 3502"},
		{"at what it takes", at("virtio_net", 3502), store.XDPNative, false, ""},
		{"a driver that is not known", at("novel", 4000), store.XDPNative, false, "about 3498"},
		{"a program with fragments", at("virtio_net", 4000), store.XDPNative, true, ""},
		{"one that gets none", none, store.XDPNative, true, "about 3502"},
		{"one that takes no larger MTU", at("igb", 3047), store.XDPNative, true, "about 3046"},
		{"a card that takes none", at("igc", 1501), store.XDPNative, true, "about 1500"},
		{"at tc", at("virtio_net", 4000), store.TCX, false, ""},
		{"a bond", bond, store.XDPNative, false, "about 3498"},
	} {
		got := strings.Join(attach.Amiss(&netlink.Dummy{}, c.card, &store.Description{Mode: c.mode,
			Frags: c.frag}), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The driver has a reason, and `up` made up another: "has no native XDP" for a card that has it,
// "numerical result out of range" for an MTU.
func TestTheDriversOwnReasonIsSaid(t *testing.T) {
	n := newTestNet(t)
	n.inPeer(t, func() {
		if err := netlink.LinkSetMTU(must2(netlink.LinkByName("lv1")), 9000); err != nil {
			t.Error(err)
		}
	})
	r := bring(t, "lv0", store.Auto, named("first.levee", "odd"))
	const want = "driver veth refuses native XDP: Peer MTU is too large to set XDP"
	if !strings.Contains(r.Reason, want) {
		t.Errorf("%q, want %q", r.Reason, want)
	}
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	addIfb(t, "ifb0")
	if _, err := Up(t.Context(), UpOptions{Dev: "ifb0", Mode: store.XDPNative},
		compileHand(named("first.levee", "odd"))); err == nil ||
		strings.Count(err.Error(), "operation not supported") > 0 ||
		strings.Count(err.Error(), "no native XDP") != 1 {
		t.Errorf("it says twice, or not, what is wrong: %v", err)
	}
}
