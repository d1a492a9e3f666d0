package datapath

import (
	"flag"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/policy"
)

var replaces = flag.Int("replaces", 30, "replaces under flood")

// Two policies take turns while frames arrive without a pause. Both drop every frame and count it
// under the same identity: a frame judged by neither would be counted nowhere, one judged by both
// twice, and one lost with a replaced generation's counters would be missing.
func TestReplaceUnderFloodLosesAndDoublesNothing(t *testing.T) {
	n := newTestNet(t)
	for _, mode := range []Mode{XDPNative, TCX} {
		n.run(t, string(mode), func(t *testing.T) {
			a, b := named("a.levee", "one"), named("b.levee", "one")
			b.Rules = append(b.Rules, &policy.Rule{Action: policy.Count, ID: "more", Label: "more"}) // moves the slots behind it
			bring(t, "lv0", mode, a)
			dropped := n.txDropped(t)
			stop, sent := n.flood(t)
			var slowest, sum time.Duration
			for i := range *replaces {
				start := time.Now()
				bring(t, "lv0", mode, []*policy.Policy{b, a}[i%2])
				d := time.Since(start)
				slowest, sum = max(slowest, d), sum+d
			}
			close(stop)
			total := <-sent
			t.Logf("%d replaces, %v each, the slowest %v; %d frames", *replaces, sum/time.Duration(*replaces), slowest, total)
			want := total - (n.txDropped(t) - dropped)
			wantPackets(t, "one", want)
			if want < total/2 {
				t.Errorf("only %d of %d frames arrived", want, total)
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// flood sends frames until stop is closed, then tells how many.
func (n *testNet) flood(t *testing.T) (stop chan struct{}, sent chan uint64) {
	stop, sent = make(chan struct{}), make(chan uint64, 1)
	go func() {
		f := markedFrame(1)
		var count uint64
		defer func() { sent <- count }()
		for count < 20_000_000 {
			select {
			case <-stop:
				return
			default:
			}
			for range 64 {
				if err := unix.Sendto(n.tx, f, 0, &unix.SockaddrLinklayer{Ifindex: n.txIndex}); err != nil {
					t.Errorf("send: %v", err)
					return
				}
				count++
			}
		}
	}()
	return stop, sent
}

// txDropped is what the ring of lv0 refused, counted by its peer.
func (n *testNet) txDropped(t *testing.T) uint64 {
	t.Helper()
	h, err := netlink.NewHandleAt(n.peer)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	l, err := h.LinkByName("lv1")
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Statistics.TxDropped
}
