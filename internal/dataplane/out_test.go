package dataplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/packet"
)

// Two policies, of which each drops what the other passes, on either side.
const (
	outOld = "drop udp port 26 as \"in\"\nout drop udp port 25 as \"smtp\"\ndefault pass\n"
	outNew = "drop udp port 25 as \"in\"\nout drop udp port 26 as \"smtp\"\ndefault pass\n" +
		"out default pass\n"
)

func mailOf(t testing.TB, port uint16) []byte {
	t.Helper()
	proto := uint8(packet.ProtoUDP)
	f, err := packet.Build(packet.Spec{Family: packet.IPv4, Proto: &proto, FromPort: &port,
		ToPort: &port, From: netip.MustParseAddr("192.0.2.1"),
		To: netip.MustParseAddr("192.0.2.2")})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// leaves sends a datagram to a port out of lv0, and says whether it has left: the kernel tells the
// sender of one that was dropped at egress.
func (p *pair) leaves(t *testing.T, port uint16) bool {
	t.Helper()
	err := unix.Sendto(p.out, mailOf(t, port), 0, &unix.SockaddrLinklayer{Ifindex: p.outIndex})
	if err != nil && !errors.Is(err, unix.ENOBUFS) {
		t.Fatal(err)
	}
	return err == nil
}

// dropsLeaving is an error unless of what leaves that to one port alone is dropped.
func (p *pair) dropsLeaving(t *testing.T, dropped uint16) error {
	t.Helper()
	for _, port := range []uint16{25, 26} {
		if left := p.leaves(t, port); left == (port == dropped) {
			return fmt.Errorf("to port %d: left %v", port, left)
		}
	}
	return nil
}

func (p *pair) bringText(t *testing.T, text string, mode store.Mode, confirm time.Duration) {
	t.Helper()
	if _, err := Up(t.Context(), UpOptions{Dev: "lv0", Mode: mode, PolicyPath: "out.levee",
		Source: []byte(text), Confirm: confirm, egressMode: p.egress},
		compileText(text)); err != nil {
		t.Fatal(err)
	}
}

// ways are the ways in which a policy can be at both sides.
func ways(t *testing.T) (all []struct{ mode, egress store.Mode }) {
	for _, mode := range allModes(t) {
		all = append(all, struct{ mode, egress store.Mode }{mode, ""})
	}
	return append(all, struct{ mode, egress store.Mode }{store.XDPNative, store.Clsact})
}

// TestWhatLeavesWasJudgedByNobody: a policy was about what arrives, and a machine that had been
// broken into sent mail to whomever it liked.
func TestWhatLeavesWasJudgedByNobody(t *testing.T) {
	p := newPair(t)
	for _, w := range ways(t) {
		p.run(t, fmt.Sprint(w.mode, " ", w.egress), func(t *testing.T) {
			p.egress = w.egress
			before := kernelObjects(t)
			p.bringText(t, outOld, w.mode, 0)
			if err := p.dropsLeaving(t, 25); err != nil {
				t.Fatal(err)
			}
			a := status0(t)
			if n := packets(&a, "smtp"); n != 1 {
				t.Errorf("%d packets counted for the rule, want 1", n)
			}
			if n := packets(&a, "out default"); n != 1 {
				t.Errorf("%d packets counted for the default of what leaves, want 1", n)
			}
			p.bringText(t, outNew, w.mode, 0)
			if err := p.dropsLeaving(t, 26); err != nil {
				t.Fatal("after a replace: ", err)
			}
			a = status0(t)
			if n := packets(&a, "smtp"); n != 2 {
				t.Errorf("%d packets counted for the rule over both policies, want 2", n)
			}
			p.bringText(t, "default pass\n", w.mode, 0)
			if at := egress(t); len(at) != 0 {
				t.Errorf("programs %v at egress of a policy that says nothing of it", at)
			}
			if !p.leaves(t, 25) || !p.leaves(t, 26) {
				t.Error("a policy that says nothing of what leaves drops some of it")
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
			await.OK(t, func() error { return errors.Join(noQdisc(t), nothingAdded(t, before)) })
			runDirIsGone(t)
		})
	}
}

// TestATrialEndedForWhatArrivesOnly: the kernel goes back to the policy before for what leaves at
// the deadline, too, whether that had rules for it or not, without a command.
func TestATrialEndedForWhatArrivesOnly(t *testing.T) {
	p := newPair(t)
	for _, w := range egressWays(t) {
		p.run(t, string(w), func(t *testing.T) {
			p.egress = w
			for _, c := range []struct {
				first string
				port  uint16
			}{{outOld, 25}, {"default pass\n", 0}} {
				p.bringText(t, c.first, store.Auto, 0)
				p.bringText(t, outNew, store.Auto, time.Hour)
				if err := p.dropsLeaving(t, 26); err != nil {
					t.Fatal("on trial: ", err)
				}
				expire(t)
				if err := p.dropsLeaving(t, c.port); err != nil {
					t.Fatal("after the deadline: ", err)
				}
				status(t) // which ends it
				if err := p.dropsLeaving(t, c.port); err != nil {
					t.Fatal("after a command: ", err)
				}
				p.bringText(t, outNew, store.Auto, time.Hour)
				if _, err := Confirm(t.Context(), "lv0"); err != nil {
					t.Fatal(err)
				}
				if err := p.dropsLeaving(t, 26); err != nil {
					t.Fatal("confirmed: ", err)
				}
				if _, err := Down(t.Context(), "lv0"); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestAKilledReplaceLeftBothPoliciesForWhatLeaves: whatever step a command fails or dies at, one
// policy judges what leaves; and after the next command that is the one which judges what arrives.
func TestAKilledReplaceLeftBothPoliciesForWhatLeaves(t *testing.T) {
	p := newPair(t)
	for _, w := range egressWays(t) {
		p.run(t, string(w), func(t *testing.T) {
			p.egress = w
			prepare := func() { p.bringText(t, outOld, store.Auto, 0) }
			do := order{Do: "up", Dev: "lv0", File: "out.levee", Text: outNew, Egress: w}
			prepare()
			steps := record(t, do)
			if !slices.Contains(steps, "link") {
				t.Fatal("nothing was attached at egress")
			}
			prepare()
			for i, step := range steps {
				for _, kill := range []bool{false, true} {
					inject(t, do, i, kill)
					if p.leaves(t, 25) == p.leaves(t, 26) {
						t.Fatalf("step %d (%s), kill %v: not one policy", i, step, kill)
					}
					a := status(t)
					want := uint16(25)
					if onArrival(&a) == outNew {
						want = 26
					}
					if err := p.dropsLeaving(t, want); err != nil {
						t.Fatalf("step %d (%s), kill %v: %v", i, step, kill, err)
					}
					await.OK(t, func() error { return noOtherLinks(t, a, step) })
					if kill || want == 26 { // else all is as it was
						prepare()
					}
				}
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// onArrival tells the policies apart by what drops on arrival.
func onArrival(a *inspect.Attachment) string {
	for _, c := range a.Counters {
		if c.Label == "in" && c.Text == "drop udp port 25 as \"in\"" {
			return outNew
		}
	}
	return outOld
}

// TestForgedSourcesLeft: who has broken into a machine sends with addresses of others (BCP 38).
func TestForgedSourcesLeft(t *testing.T) {
	p := newPair(t)
	l, err := netlink.LinkByName("lv0")
	if err != nil {
		t.Fatal(err)
	}
	own := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)}}
	if err := netlink.AddrAdd(l, own); err != nil {
		t.Fatal(err)
	}
	p.bringText(t, "out drop ipv4 not from self as \"forged\"\ndefault pass\n", store.Auto, 0)
	if !p.leaves(t, 25) {
		t.Error("what has the machine's own address does not leave")
	}
	if err := netlink.AddrDel(l, own); err != nil {
		t.Fatal(err)
	}
	p.bringText(t, "out drop ipv4 not from self as \"forged\"\ndefault pass\n", store.Auto, 0)
	if p.leaves(t, 25) {
		t.Error("what has somebody else's address leaves")
	}
}

// TestAFilterForWhatLeavesWasSaidToBeGone: beside it none notes connections, which was taken for
// one that somebody had deleted; and of one that was deleted nothing was said that is so.
func TestAFilterForWhatLeavesWasSaidToBeGone(t *testing.T) {
	p := newPair(t)
	p.egress = store.Clsact
	for _, c := range []struct{ more, says string }{
		{"", "what leaves is judged by nobody"},
		{"pass established\n", "`established` knows no connection"},
	} {
		p.bringText(t, c.more+outOld, store.XDPNative, 0)
		_, notes, err := inspect.Status(t.Context(), true)
		if err != nil || len(notes) > 0 {
			t.Fatalf("%q: %q, %v", c.more, notes, err)
		}
		l, err := netlink.LinkByName("lv0")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range must2(attach.EgressFilters(l.Attrs().Index)) {
			if err := netlink.FilterDel(f.Filter()); err != nil {
				t.Fatal(err)
			}
		}
		_, notes, err = inspect.Status(t.Context(), true)
		if err != nil || !strings.Contains(strings.Join(notes, "\n"), c.says) {
			t.Errorf("%q: %q, %v", c.more, notes, err)
		}
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnswersOfACookieWereJudgedAsLeaving: at tc, what levee answers in the host's place went
// through the rules of `out`, which dropped it or counted it; at XDP it does not. Found by random
// sequences.
func TestAnswersOfACookieWereJudgedAsLeaving(t *testing.T) {
	n := newTestNet(t)
	addVeth(t, "lw0", "lw1", n.peer)
	n.inPeer(t, func() { ip(t, "link set lw1 up") })
	query := append([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x00"),
		0, 1, 0, 1)
	for _, mode := range tcModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			a := newArena(t, n, mode)
			a.bring("cookie tcp port 80\ncookie dns udp port 53\npass established\n" +
				"default drop\nout default drop\n")
			defer a.end()
			s := a.begin(1)
			for _, at := range []struct{ from, to string }{{"203.0.113.9", "198.51.100.1"},
				{"2001:db8:2::9", "2001:db8:1::1"}} {
				for _, p := range []rawPacket{
					{proto: packet.ProtoTCP, body: rawTCP(50000, 80, tcpSYN, 1, 0, 0)},
					{proto: packet.ProtoUDP, body: rawUDP(50000, 53, query)}} {
					p.toMAC, p.src, p.dst = a.devs[0].mac, netip.MustParseAddr(at.from),
						netip.MustParseAddr(at.to)
					a.log = nil
					if !a.step(s, &turn{event: event{packet: &p, frame: p.frame()}}) ||
						a.oracle.Eval(p.frame()).Answered != true {
						t.Errorf("%q", a.log)
					}
				}
			}
		})
	}
}

// TestWhatAnswersWasNoRule: a machine that only serves had a rule for the ports of each service,
// which a process that begins at such a port met, too. Now it answers whoever comes, goes on with
// connections that are older than the policy, and begins nothing.
func TestWhatAnswersWasNoRule(t *testing.T) {
	n := newTestNet(t)
	giveBothFamilies(t, n)
	p := &pair{testNet: n}
	for _, egress := range []store.Mode{"", store.Clsact} {
		n.run(t, fmt.Sprintf("egress by %q", egress), func(t *testing.T) {
			p.egress = egress
			var older []ends
			var silent []net.Conn // connected before, and heard by nobody
			for _, a := range [][2]string{{"198.51.100.1", "198.51.100.2"},
				{"[2001:db8:7::1]", "[2001:db8:7::2]"}} {
				silent = append(silent, in(t, n.here, func() (net.Conn, error) {
					return net.Dial("udp", a[1]+":9005")
				}))
				toHere := ends{name: "older, to here"}
				toHere.outer, toHere.inner = connect(t, n.peer, a[0]+":9000", n.here, a[0]+":9000")
				fromHere := ends{name: "older, from here"}
				fromHere.inner, fromHere.outer = connect(t, n.here, a[1]+":9001", n.peer,
					a[1]+":9001")
				older = append(older, toHere, fromHere)
			}
			p.bringText(t, "default pass\nout pass icmp6 type 133-137 ttl 255\n"+
				"out pass established as \"answers\"\nout count udp port 9005 as \"a datagram\"\n"+
				"out count tcp port 9007 as \"a segment of a raw socket\"\nout default drop\n",
				store.XDPNative, 0)
			for _, c := range silent {
				was := packets(new(status0(t)), "a datagram")
				if _, err := c.Write([]byte("hello")); err != nil && !errors.Is(err, unix.ENOBUFS) {
					t.Fatal(err)
				}
				c.Close()
				await.OK(t, func() error {
					if packets(new(status0(t)), "a datagram") == was {
						return errors.New("what an older socket begins leaves as an answer")
					}
					return nil
				})
			}
			for i := range older {
				// this side is the first to send
				if err := tells(older[i].inner, older[i].outer); err != nil {
					t.Errorf("%s: %v", older[i].name, err)
				}
				if err := older[i].says(); err != nil {
					t.Error(err)
				}
			}
			for _, a := range [][2]string{{"198.51.100.1", "198.51.100.2"},
				{"[2001:db8:7::1]", "[2001:db8:7::2]"}} {
				served := ends{name: "served over TCP"}
				served.outer, served.inner = connect(t, n.peer, a[0]+":9002", n.here, a[0]+":9002")
				asked := ends{name: "served over UDP"}
				asked.outer, asked.inner = datagrams(t, n.peer, a[0]+":9003", n.here, a[0]+":9003")
				for _, e := range []ends{served, asked} {
					if err := e.says(); err != nil {
						t.Error(err)
					}
				}
				in(t, n.peer, func() (net.Conn, error) {
					if _, err := net.Dial("tcp", a[0]+":9004"); !errors.Is(err, unix.ECONNREFUSED) {
						t.Errorf("a closed port: %v", err)
					}
					return nil, nil
				})
				// Both sockets are connected, and nobody has been heard by them. The segment is
				// that of RFC 9293, section 3.1, with an ACK.
				for _, begins := range []struct{ name, network, to, text string }{
					{"a datagram", "udp", a[1] + ":9005", "hello"},
					{"a segment of a raw socket", "ip:tcp", strings.Trim(a[1], "[]"),
						"\x23\x2e\x23\x2f" + "\x00\x00\x00\x01" + "\x00\x00\x00\x01" +
							"\x50\x10\x20\x00" + "\x00\x00\x00\x00" + "hello"},
				} {
					by := in(t, n.here, func() (net.Conn, error) {
						return net.Dial(begins.network, begins.to)
					})
					defer by.Close()
					// Not that of the default, which the machine's own packets raise, too.
					was := packets(new(status0(t)), begins.name)
					// IPv6 tells who has a raw socket that the packet was dropped.
					_, err := by.Write([]byte(begins.text))
					if err != nil && !errors.Is(err, unix.ENOBUFS) {
						t.Fatal(err)
					}
					await.OK(t, func() error {
						if packets(new(status0(t)), begins.name) == was {
							return fmt.Errorf("%s that begins something leaves", begins.name)
						}
						return nil
					})
				}
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}
