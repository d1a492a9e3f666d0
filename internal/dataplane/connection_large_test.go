package dataplane

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"levee/internal/filter/ir"
	"levee/internal/lang/resolve"
)

// largeAnswers are policies under which this machine asks over UDP, and answers at port 9000, and
// which of the datagrams of more than a packet come through. Where one does not, the policy speaks
// of fragments, or `check` does.
var largeAnswers = []struct {
	name, text      string
	arrives, leaves bool
	speaks          bool
	asks            bool // and serves nobody
}{
	{name: "connections alone, of who asks", asks: true, leaves: true,
		text: "pass established\ndefault drop\n"},
	{name: "connections of who asks, with what follows their first", asks: true, arrives: true,
		leaves: true, text: "fragments track\npass established\ndefault drop\n"},
	{name: "connections alone", leaves: true,
		text: "pass established\npass udp port 9000\ndefault drop\n"},
	{name: "with what follows their first", arrives: true, leaves: true,
		text: "fragments track\npass established\npass udp port 9000\ndefault drop\n"},
	{name: "with what follows their first, of UDP, behind", arrives: true, leaves: true,
		text: "pass established\npass udp port 9000\nfragments track udp\ndefault drop\n"},
	{name: "with all fragments", arrives: true, leaves: true,
		text: "pass established\npass udp port 9000\npass fragments\ndefault drop\n"},
	{name: "with all of UDP", arrives: true, leaves: true,
		text: "pass established\npass udp\ndefault drop\n"},
	{name: "without fragments, as it says", leaves: true, speaks: true,
		text: "drop fragments\npass established\npass udp port 9000\ndefault drop\n"},
	{name: "what leaves by its ports", arrives: true,
		text: "fragments track\npass udp\nout pass udp from port 9000\nout pass udp port 9001\n" +
			"default drop\nout default drop\n"},
	{name: "what leaves by its ports, with all fragments", arrives: true, leaves: true,
		text: "fragments track\npass udp\nout pass udp from port 9000\nout pass udp port 9001\n" +
			"out pass fragments\ndefault drop\nout default drop\n"},
}

// TestLargeAnswersAreLostInSilence: fragments have no ports, so all but the first of an answer of
// 1,473 bytes and more belong to no connection; `check` said nothing of that.
func TestLargeAnswersAreLostInSilence(t *testing.T) {
	n := newTestNet(t)
	giveBothFamilies(t, n)
	for ns, dev := range map[netns.NsHandle]string{n.here: "lv0", n.peer: "lv1"} {
		in(t, ns, func() (any, error) {
			l, err := netlink.LinkByName(dev)
			if err != nil {
				return nil, err
			}
			return nil, netlink.LinkSetMTU(l, 1500)
		})
	}
	modes := allModes(t)
	for i, c := range largeAnswers {
		mode := modes[i%len(modes)]
		n.run(t, string(mode)+"/"+c.name, func(t *testing.T) {
			said := warnedOfFragments(t, c.text)
			if lost := !c.arrives || !c.leaves; lost != (said || c.speaks) {
				t.Errorf("`check` warns of fragments: %v", said)
			}
			meanwhile(t, mode, c.text)
			for _, ends := range [][2]string{{"198.51.100.1", "198.51.100.2"},
				{"2001:db8:7::1", "2001:db8:7::2"}} {
				here, peer := net.JoinHostPort(ends[0], "9000"), net.JoinHostPort(ends[1], "9001")
				ask, answer := datagrams(t, n.here, peer, n.peer, peer)
				if err := comesWhole(answer, ask, c.arrives); err != nil {
					t.Errorf("what arrives at %s: %v", ends[0], err)
				}
				if c.asks {
					continue
				}
				ask, answer = datagrams(t, n.peer, here, n.here, here)
				if err := comesWhole(answer, ask, c.leaves); err != nil {
					t.Errorf("what leaves from %s: %v", ends[0], err)
				}
			}
		})
	}
}

// warnedOfFragments says whether `check` warns of what becomes of large datagrams.
func warnedOfFragments(t *testing.T, text string) bool {
	t.Helper()
	p, ds := resolve.Parse("test.levee", []byte(text), nil)
	if ds.HasErrors() {
		t.Fatal(ds)
	}
	for _, f := range ir.Build(p).Findings {
		if strings.HasPrefix(f.Message, "large datagrams break") {
			return true
		}
	}
	return false
}

// comesWhole answers with datagrams of many sizes, and is an error unless all come, or only those
// that are one packet.
func comesWhole(from, to net.Conn, large bool) error {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 1<<16)
	for i, size := range []int{100, 1452, 1473, 1474, 3000, 60000, 10} {
		data := bytes.Repeat([]byte{byte(i + 1)}, size)
		if _, err := from.Write(data); err != nil {
			return err
		}
		if size > 1452 && !large {
			continue // the next would come behind it
		}
		_ = to.SetReadDeadline(time.Now().Add(time.Minute))
		if k, err := to.Read(b); err != nil || !bytes.Equal(b[:k], data) {
			return fmt.Errorf("%d bytes: %d came, of which the first are %x, %w", size, k, b[:1],
				err)
		}
	}
	return nil
}
