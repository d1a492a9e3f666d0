package dataplane

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
)

// What these tests set is not followed by a keeper: nothing settles by itself.
func init() { inspect.SettleTime = 50 * time.Millisecond }

// wantWhy looks at why the policy on lv0 judges otherwise than it says; "" is that it does not.
func wantWhy(t *testing.T, when, want string) {
	t.Helper()
	a := status(t)
	if err := inspect.Settled(t.Context(), []inspect.Attachment{a}); err != nil {
		t.Fatal(err)
	}
	if why := a.Judging.Why(); (why == "") != (want == "") || !strings.Contains(why, want) {
		t.Errorf("%s: %q, want %q", when, why, want)
	}
	if a.Judging.Failed() != (want != "") {
		t.Errorf("%s: failed is %v", when, a.Judging.Failed())
	}
	all, err := inspect.Undelivered(t.Context(), "lv0")
	if err != nil || (len(all) > 0) != (want != "") {
		t.Errorf("%s: undelivered are %q, %v", when, all, err)
	}
}

// TestWhatSelfLacksIsAnAlarm: more destinations than `self` holds were a line in the log of a
// keeper, and without one nothing said that packets for this machine were not `to self`.
func TestWhatSelfLacksIsAnAlarm(t *testing.T) {
	n := newTestNet(t)
	ip(t, "addr add 10.77.0.1/24 dev lv0")
	n.run(t, "self", func(t *testing.T) {
		const text = "drop to self as \"mine\"\ndefault pass\n"
		bring := func() error { return bringPolicyAt(t, "lv0", store.XDPNative, text, 0) }
		if err := bring(); err != nil {
			t.Fatal(err)
		}
		wantWhy(t, "as it came", "")
		ip(t, "addr add 10.78.0.1/32 dev lv0")
		wantWhy(t, "with one more", `delivers 10.78.0.1/32 to this machine, and "self" lacks it (1 of`)
		if err := bring(); err != nil {
			t.Fatal(err)
		}
		wantWhy(t, "brought again", "")
		ip(t, "addr del 10.78.0.1/32 dev lv0")
		wantWhy(t, "with one less, to which nobody sends", "")
		var many strings.Builder
		for i := range 4200 {
			fmt.Fprintf(&many, "route add local 100.64.%d.%d dev lv0\n", i/250, i%250)
		}
		c := exec.Command("ip", "-batch", "-")
		c.Stdin = strings.NewReader(many.String())
		if b, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		const full = `and "self" holds 4096 at most`
		wantWhy(t, "with too many", full)
		if err := bring(); err == nil || !strings.Contains(err.Error(), full) {
			t.Errorf("brought with too many: %v", err)
		}
		if err := bringPolicyAt(t, "lv0", store.XDPNative, "default pass\n", 0); err != nil {
			t.Fatal(err)
		}
		wantWhy(t, "without self", "")
	})
}

// TestACookieOfAnotherAddressIsAnAlarm: at XDP, without a keeper, a cookie let SYNs go on in frames
// for an address that the interface had been given since, and nothing said so.
func TestACookieOfAnotherAddressIsAnAlarm(t *testing.T) {
	n := newTestNet(t)
	ip(t, "addr add 198.51.100.1/24 dev lv0")
	for i, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			const text = "cookie tcp port 9000\ndefault drop\n"
			if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
				t.Fatal(err)
			}
			wantWhy(t, "as it came", "")
			ip(t, fmt.Sprintf("link set lv0 address 02:00:00:00:00:%02x", i+1))
			want := "lv0 has other Ethernet addresses"
			if mode.AtTC() { // the kernel says whose a frame is
				want = ""
			}
			wantWhy(t, "with another address", want)
			if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
				t.Fatal(err)
			}
			wantWhy(t, "brought again", "")
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestATrapAnswersForThisMachineAlone: a diversion asks nobody whom a frame or an address is for,
// since the kernel itself looks before it answers for the trap's socket (decision 0118).
func TestATrapAnswersForThisMachineAlone(t *testing.T) {
	n := newTestNet(t)
	giveBothFamilies(t, n)
	ip(t, "neigh add 198.51.100.2 lladdr 02:00:00:00:00:02 dev lv0 nud permanent")
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			if err := bringPolicyAt(t, "lv0", mode, "divert tcp port 9000\ndefault drop\n",
				0); err != nil {
				t.Fatal(err)
			}
			mac, other := own(t, "lv0"), &[6]byte{2, 0, 0, 0, 0, 0x55}
			// Without a trap the kernel refuses, by a RST: an answer too.
			got := n.answered(t,
				ownSYN("198.51.100.1", other),
				ownSYN("198.51.100.255", mac),
				ownSYN("198.51.100.1", &[6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
				ownSYN("198.51.100.1", mac))
			if want := []int{4}; !slices.Equal(got, want) {
				t.Errorf("answered %v, want %v", got, want)
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}
