package dataplane

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/packet"
)

var replaces = flag.Int("replaces", 20, "replaces under flood")

// floodPolicy marks frames from 203.0.113.7 as "a" or as "b", by its sets alone, in two rules each.
func floodPolicy(a, b string) string {
	// a table, not compares
	const rest = ", 10.1.0.0/16, 10.3.0.0/16, 10.5.0.0/16, 10.7.0.0/17, 10.9.0.0/18 }\n"
	return "set a = { " + a + rest + "set b = { " + b + rest + `
count from a as "a counted"
drop  from a as "a dropped"
count from b as "b counted"
drop  from b as "b dropped"
default drop
`
}

// Two policies take turns while frames arrive without a pause. A frame judged by neither would be
// counted nowhere; one judged by the rules of one and the sets of another, by the default; one
// judged by both, twice; one lost with the counters of a replaced generation would be missing.
func TestReplaceUnderFloodLosesAndMisjudgesNothing(t *testing.T) {
	n := newTestNet(t)
	turns := [2]string{floodPolicy("203.0.113.0/24", "198.51.100.0/24"),
		floodPolicy("198.51.100.0/24", "203.0.113.0/24")}
	for _, mode := range append(tcModes(t), store.XDPNative) {
		n.run(t, string(mode), func(t *testing.T) {
			up := func(text string) {
				t.Helper()
				if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
					t.Fatal(err)
				}
			}
			up(turns[0])
			dropped := n.txDropped(t)
			stop, sent := n.flood(t)
			var slowest, sum time.Duration
			for i := range *replaces {
				start := time.Now()
				up(turns[(i+1)%2])
				d := time.Since(start)
				slowest, sum = max(slowest, d), sum+d
			}
			close(stop)
			total := <-sent
			t.Logf("%d replaces, %v each, the slowest %v; %d frames", *replaces,
				sum/time.Duration(*replaces), slowest, total)
			want := total - (n.txDropped(t) - dropped)
			var got inspect.Attachment
			await.OK(t, func() error {
				got = status(t)
				if sum := packets(&got, "a dropped") + packets(&got, "b dropped"); sum != want {
					return fmt.Errorf("%d frames were dropped by rules, %d sent and not refused "+
						"by the ring", sum, want)
				}
				return nil
			})
			for _, label := range []string{"a", "b"} {
				if c, d := packets(&got, label+" counted"),
					packets(&got, label+" dropped"); c != d ||
					c == 0 {
					t.Errorf("%s: %d counted, %d dropped", label, c, d)
				}
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
		port := uint16(9)
		f, err := packet.Build(packet.Spec{From: netip.MustParseAddr("203.0.113.7"), ToPort: &port})
		if err != nil {
			t.Error(err)
		}
		var count uint64
		defer func() { sent <- count }()
		for count < 20_000_000 {
			select {
			case <-stop:
				return
			default:
			}
			await.Pass(20*time.Microsecond,
				"a sender that never rests holds up RCU, and with it every replace")
			for range 64 {
				if err := n.offer(f); err != nil {
					t.Errorf("send: %v", err)
					return
				}
				count++
			}
		}
	}()
	return stop, sent
}

// offer sends a frame that the ring of lv0 may refuse, which txDropped counts. Since Linux 6.6, and
// in its stable ones, a veth says so to who sends.
func (n *testNet) offer(f []byte) error {
	err := unix.Sendto(n.tx, f, 0, &unix.SockaddrLinklayer{Ifindex: n.txIndex})
	if errors.Is(err, unix.ENOBUFS) {
		return nil
	}
	return err
}

// txDropped returns how many frames the ring of lv0 has refused, which its peer counts.
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
