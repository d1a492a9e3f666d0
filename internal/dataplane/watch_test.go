package dataplane

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"levee/internal/await"
	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/logging"
	"levee/internal/packet"
)

// TestWatchTellsOfPacketsAndOfLosses in each mode: the rules, the packets, over a replace, and as
// many losses as there were packets that were not told of.
func TestWatchTellsOfPacketsAndOfLosses(t *testing.T) {
	n := newTestNet(t)
	const text = "log udp port 53 as \"dns\"\nlog malformed as \"odd\"\nlog sample 1/4 as " +
		"\"some\"\ndefault drop\n"
	build := func(port uint16) []byte {
		f, err := packet.Build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)), ToPort: &port,
			Len: new(300), From: netip.MustParseAddr("203.0.113.9")})
		if err != nil {
			t.Fatal(err)
		}
		copy(f, bytes.Repeat([]byte{0xff}, 6))
		return f
	}
	for _, mode := range []store.Mode{store.XDPNative, store.XDPGeneric, tcModes(t)[0]} {
		n.run(t, string(mode), func(t *testing.T) {
			up := func(text string) {
				t.Helper()
				if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
					t.Fatal(err)
				}
			}
			up(text)
			var mu sync.Mutex
			told := map[string]int{}
			var last tap.Event
			lost := tap.Losses{}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				runtime.LockOSThread() // and the thread ends with it
				if err := netns.Set(n.here); err != nil {
					done <- err
					return
				}
				done <- tap.Watch(ctx, "lv0", func(e tap.Event) {
					mu.Lock()
					defer mu.Unlock()
					told[e.Rule.Label]++
					if e.Rule.Label == "dns" {
						last = e
						last.Packet = bytes.Clone(e.Packet)
					}
				}, func(l tap.Losses) {
					mu.Lock()
					defer mu.Unlock()
					lost.Bound, lost.Ring = lost.Bound+l.Bound, lost.Ring+l.Ring
				})
			}()
			count := func(label string) int {
				mu.Lock()
				defer mu.Unlock()
				return told[label]
			}
			frame := build(53)
			await.OK(t, func() error { // until the watch has begun
				n.sendFrame(t, frame)
				if count("dns") == 0 {
					return errors.New("nothing was told of")
				}
				return nil
			})
			if err := tap.Watch(ctx, "lv0", nil, nil); err == nil ||
				!strings.Contains(err.Error(), "already") {
				t.Errorf("a second watch: %v", err)
			}
			n.sendFrame(t, frame[:20])
			up(text + "# again\n")
			before := count("dns")
			await.OK(t, func() error {
				n.sendFrame(t, frame) // one at a time, for the bound
				if count("dns") < before+20 || count("odd") == 0 && mode != store.XDPGeneric {
					return errors.New("nothing was told of")
				}
				return nil
			})
			mu.Lock()
			if last.Bytes != len(frame) || len(last.Packet) != logging.EventPacket ||
				!bytes.Equal(last.Packet, frame[:logging.EventPacket]) {
				t.Errorf("told of %d bytes, %x", last.Bytes, last.Packet)
			}
			mu.Unlock()
			// More than the bound of a second, in less than one.
			first, was := count("dns"), status(t)
			start := time.Now()
			for range 30_000 {
				n.sendFrame(t, frame)
			}
			now := status(t)
			took := time.Since(start)
			stop()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			sent := int(packets(&now, "dns") - packets(&was, "dns"))
			got := count("dns") - first
			// The sender may have changed its CPU.
			if most := int(logging.EventsPerSecond * (took.Seconds() + 0.1) *
				float64(runtime.NumCPU())); got > most {
				t.Errorf("told of %d packets in %v, at most %d", got, took, most)
			}
			if missing := sent - got; missing > int(lost.Bound+lost.Ring) {
				t.Errorf("%d of %d packets were not told of, and %+v are counted", missing, sent,
					lost)
			}
			if some := count("some"); some == 0 {
				t.Error("none of the sampled packets was told of")
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}
