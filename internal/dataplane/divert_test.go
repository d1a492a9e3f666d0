package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/codegen"
	"levee/internal/filter/divert"
	"levee/internal/filter/state"
	"levee/internal/lang/action"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

const divertPolicy = `set attackers = dynamic(max 100, lease 10m)
protect from { 198.51.100.12, 2001:db8:7::12 } tcp port 9000 as "spared"
pass from { 198.51.100.13, 2001:db8:7::13 } tcp port 9000 as "friend"
divert tcp port 9000 from attackers as "trap"
pass tcp port 9000 as "service"
pass arp
pass icmp6
default drop
`

// The addresses of the peer, by what the policy makes of them.
var (
	member, spared, friend, stranger = "11", "12", "13", "14"
	families                         = []string{"198.51.100.", "2001:db8:7::"}
)

// newDivertNet has a service at port 9000, which says so.
//
//	+-----------------------+   +---------------------------+
//	| here: .1, the service |   | peer: .11, .12, .13, .14  |
//	| lv0 ------------------------ lv1                      |
//	+-----------------------+   +---------------------------+
func newDivertNet(t *testing.T) *testNet {
	t.Helper()
	n := newTestNet(t)
	enableIPv6(t, n)
	n.serveAt(t, "lv0", "lv1")
	return n
}

// serveAt gives a device on each side its addresses.
func (n *testNet) serveAt(t *testing.T, devHere, devPeer string) {
	t.Helper()
	for ns, dev := range map[netns.NsHandle]string{n.here: devHere, n.peer: devPeer} {
		for _, family := range families {
			bits := map[bool]string{true: "/24", false: "/64"}[family == families[0]]
			hosts := []string{"1"}
			if ns == n.peer {
				hosts = []string{member, spared, friend, stranger}
			}
			for _, host := range hosts {
				giveAddress(t, ns, dev, family+host+bits)
			}
		}
	}
	n.listen(t, "[::]:9000", "service")
}

// TestDivertBelowTheAddress: the policy judges at lv0, and the address is that of another device,
// for which the kernel looks up the socket.
func TestDivertBelowTheAddress(t *testing.T) {
	for _, c := range []struct {
		name    string
		devPeer string
		above   func(*testing.T, *testNet)
	}{
		{"bridge", "lv1", func(t *testing.T, n *testNet) {
			bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "above"}}
			addLink(t, bridge)
			under := must2(netlink.LinkByName("lv0"))
			if err := errors.Join(netlink.LinkSetMaster(under, bridge),
				netlink.LinkSetUp(bridge)); err != nil {
				t.Fatal(err)
			}
		}},
		{"vlan", "above", func(t *testing.T, n *testNet) {
			for _, at := range []struct {
				ns  netns.NsHandle
				dev string
			}{{n.peer, "lv1"}, {n.here, "lv0"}} {
				if err := netns.Set(at.ns); err != nil {
					t.Fatal(err)
				}
				under := must2(netlink.LinkByName(at.dev))
				tagged := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "above",
					ParentIndex: under.Attrs().Index}, VlanId: 7,
					VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
				addLink(t, tagged)
				if err := netlink.LinkSetUp(tagged); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newTestNet(t)
			c.above(t, n)
			for ns, dev := range map[netns.NsHandle]string{n.here: "above", n.peer: c.devPeer} {
				in(t, ns, func() (any, error) {
					return nil, os.WriteFile("/proc/sys/net/ipv6/conf/"+dev+"/disable_ipv6",
						[]byte("0"), 0)
				})
			}
			n.serveAt(t, "above", c.devPeer)
			if err := bringPolicyAt(t, "lv0", store.Auto, divertPolicy, 0); err != nil {
				t.Fatal(err)
			}
			addAttackers(t, member)
			n.wantMember(t, "without a trap", "refused")
			n.join(t, n.trapAt(t, "[::]:9022"), true)
			n.wantMember(t, "with a trap", "trap")
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestAFullLineDropsAndForgetsNothing: what finds no room is dropped, and each of those that have
// found some is diverted until its note ends.
func TestAFullLineDropsAndForgetsNothing(t *testing.T) {
	needRoot(t)
	p, ds := resolve.Parse("test.levee", []byte("divert tcp\ndefault drop\n"), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	prog, err := codegen.Compile(p, codegen.Target{Trace: true, Clock: true, HZ: testHZ})
	if err != nil {
		t.Fatal(err)
	}
	r, err := loader.NewRunner(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	now := uint64(1<<32 - 5*testHZ) // the lower half begins anew in between
	r.SetClock(now)
	memory := func() divert.Stats {
		return divert.Read(must2(store.CopyOfMap(r.Loaded.Holding(state.HoldsDiverted))), now)
	}
	// All places but one line's two: so that a few packets fill the rest.
	all := must2(store.MapMemory(r.Loaded.Holding(state.HoldsDiverted), divert.Size))
	for at := divert.HeadBytes; at < divert.Size; at += 8 {
		if at/8%8 > 1 {
			binary.NativeEndian.PutUint64(all[at:], 1<<63|uint64(uint32(now+10*testHZ)))
		}
	}
	if err := unix.Munmap(all); err != nil {
		t.Fatal(err)
	}
	noted, dropped := [][]byte(nil), 0
	for i := range 50_000 {
		s := segment([]string{"192.0.2.9", "2001:db8::9"}[i%2], packet.SYN)
		s.FromPort, s.ToPort = new(uint16(i)), new(uint16(i>>16+1))
		frame, err := packet.Build(s)
		if err != nil {
			t.Fatal(err)
		}
		slot, verdict, err := r.Eval(frame)
		if err != nil || slot != p.RuleSlot(0) {
			t.Fatalf("slot %d, %v", slot, err)
		}
		if verdict == action.Pass {
			noted = append(noted, frame)
		} else if dropped++; must2(r.Refuses(frame)) {
			t.Fatal("a packet that was dropped is diverted")
		}
	}
	if s := memory(); s.Full != uint64(dropped) || dropped < 5_000 || len(noted) < 20_000 ||
		s.Noted != s.Places/8*6+len(noted) {
		t.Errorf("%d noted, %d dropped, %+v", len(noted), dropped, s)
	}
	for _, passed := range []struct {
		jiffies uint64
		want    bool
	}{{0, true}, {10*testHZ - 1, true}, {1, false}} {
		now += passed.jiffies
		r.SetClock(now)
		for _, frame := range noted {
			if got := must2(r.Refuses(frame)); got != passed.want {
				t.Fatalf("at %d jiffies: diverted %v", now, got)
			}
		}
	}
	if s := memory(); s.Noted != 0 {
		t.Errorf("after all: %+v", s)
	}
}

// listen has a server of both families tell each client its name. (For "tcp" Go would ask only once
// whether there is such a thing, perhaps in a namespace without IPv6.)
func (n *testNet) listen(t *testing.T, address, name string) net.Listener {
	t.Helper()
	l := in(t, n.here, func() (net.Listener, error) {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			var inner error
			err := c.Control(func(fd uintptr) {
				inner = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
			})
			return errors.Join(err, inner)
		}}
		lc.SetMultipathTCP(false)
		return lc.Listen(context.Background(), "tcp6", address)
	})
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, name)
			c.Close()
		}
	}()
	return l
}

// reaches says who answers a client, or "refused".
func (n *testNet) reaches(t *testing.T, family, host string) string {
	t.Helper()
	return in(t, n.peer, func() (string, error) {
		d := net.Dialer{Timeout: time.Minute,
			LocalAddr: &net.TCPAddr{IP: net.ParseIP(family + host)}}
		c, err := d.Dial("tcp", net.JoinHostPort(family+"1", "9000"))
		if errors.Is(err, unix.ECONNREFUSED) {
			return "refused", nil
		}
		if err != nil {
			return "", err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			return "", err
		}
		name, err := io.ReadAll(c)
		return string(name), err
	})
}

// wantReached compares who answers each client of both families.
func (n *testNet) wantReached(t *testing.T, when string, want map[string]string) {
	t.Helper()
	for _, family := range families {
		for host, name := range want {
			if got := n.reaches(t, family, host); got != name {
				t.Errorf("%s: %s%s reaches %q, want %q", when, family, host, got, name)
			}
		}
	}
}

// wantMember is wantReached of a member, where nobody else is diverted.
func (n *testNet) wantMember(t *testing.T, when, name string) {
	t.Helper()
	n.wantReached(t, when, map[string]string{member: name, spared: "service", friend: "service",
		stranger: "service"})
}

func (n *testNet) join(t *testing.T, trap *tap.Trap, want bool) {
	t.Helper()
	if joined, err := trap.Join(context.Background()); err != nil || joined != want {
		t.Fatalf("joined: %v, %v", joined, err)
	}
}

func addAttackers(t *testing.T, hosts ...string) {
	t.Helper()
	var all []string
	for _, host := range hosts {
		all = append(all, families[0]+host+"/32", families[1]+host+"/128")
	}
	if _, err := sets.Add(context.Background(), "lv0", "attackers", entriesOf(all...)); err != nil {
		t.Fatal(err)
	}
}

// TestDivert has real clients of both families reach the trap in place of the service, in each
// mode, and nobody else.
func TestDivert(t *testing.T) {
	n := newDivertNet(t)
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			if err := bringPolicyAt(t, "lv0", mode, divertPolicy, 0); err != nil {
				t.Fatal(err)
			}
			n.wantMember(t, "before anybody is an attacker", "service")
			addAttackers(t, member, spared, friend)
			n.wantMember(t, "without a trap", "refused")
			l := n.listen(t, "[::]:9022", "trap")
			trap, err := tap.NewTrap("lv0", []net.Listener{l})
			if err != nil {
				t.Fatal(err)
			}
			n.join(t, trap, true)
			n.wantMember(t, "with a trap", "trap")
			if s := status(t).Diverted; s == nil || !s.Trap || s.Given != 2 || s.Alone == 0 ||
				s.Full != 0 || s.Noted == 0 {
				t.Errorf("status says %+v", s)
			}
			l.Close()
			n.wantMember(t, "when the trap has gone", "refused")
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
			n.wantMember(t, "after down", "service")
		})
	}
}

// trapAt has a trap at a port of its own take what lv0 diverts.
func (n *testNet) trapAt(t *testing.T, address string) *tap.Trap {
	t.Helper()
	trap, err := tap.NewTrap("lv0", []net.Listener{n.listen(t, address, "trap")})
	if err != nil {
		t.Fatal(err)
	}
	return trap
}

// notDiverting is divertPolicy, which passes those that the other diverts.
var notDiverting = strings.Replace(divertPolicy, "divert", "pass", 1)

// TestDivertAcrossReplaces: the trap joins an interface once, and who is diverted is what the
// policy in force says, also on trial, and when the kernel ends that.
func TestDivertAcrossReplaces(t *testing.T) {
	n := newDivertNet(t)
	n.run(t, "auto", func(t *testing.T) {
		up := func(text string, confirm time.Duration) {
			t.Helper()
			if err := bringPolicyAt(t, "lv0", store.Auto, text, confirm); err != nil {
				t.Fatal(err)
			}
		}
		trap := n.trapAt(t, "[::]:9022")
		n.join(t, trap, false)
		up(notDiverting, 0)
		n.join(t, trap, false)
		addAttackers(t, member)
		n.wantMember(t, "a policy that does not divert", "service")
		up(divertPolicy, 0)
		n.join(t, trap, true)
		n.wantMember(t, "one that does", "trap")
		up("# another\n"+divertPolicy, 0)
		n.wantMember(t, "replaced", "trap")
		up(notDiverting, 0)
		n.wantMember(t, "without the rule", "service")
		up(divertPolicy, 0)
		n.wantMember(t, "with it again", "trap")
		up(notDiverting, time.Hour)
		n.wantMember(t, "without it, on trial", "service")
		expire(t)
		n.wantMember(t, "when the trial has ended", "trap")
		up(notDiverting, 0)
		up(divertPolicy, time.Hour)
		n.wantMember(t, "with it, on trial", "trap")
		expire(t)
		n.wantMember(t, "when that trial has ended", "service")
		if _, err := Down(context.Background(), "lv0"); err != nil {
			t.Fatal(err)
		}
		n.join(t, trap, false)
		up(divertPolicy, 0)
		addAttackers(t, member)
		n.wantMember(t, "anew, before the trap has looked", "refused")
		n.join(t, trap, true)
		n.wantMember(t, "anew", "trap")
		second := n.trapAt(t, "[::]:9023")
		if _, err := second.Join(context.Background()); err == nil {
			t.Error("two traps at one interface")
		}
		if _, err := Down(context.Background(), "lv0"); err != nil {
			t.Fatal(err)
		}
		if err := nothingAtAll(t, "after down"); err != nil {
			t.Error(err)
		}
	})
}

// TestDeathAtAnyStepDivertsOn: whenever a command is killed, a member reaches the trap as long as a
// policy is there, and down leaves nothing.
func TestDeathAtAnyStepDivertsOn(t *testing.T) {
	n := newDivertNet(t)
	trap := n.trapAt(t, "[::]:9022")
	for _, c := range []struct {
		name string
		do   order
	}{
		{"replace", order{Do: "up", Text: "# another\n" + divertPolicy}},
		{"down", order{Do: "down"}},
	} {
		n.run(t, c.name, func(t *testing.T) {
			c.do.Dev, c.do.File = "lv0", filepath.Join(t.TempDir(), "new.levee")
			prepare := func() {
				t.Helper()
				if err := bringPolicyAt(t, "lv0", store.Auto, divertPolicy, 0); err != nil {
					t.Fatal(err)
				}
				addAttackers(t, member)
				n.join(t, trap, true)
			}
			prepare()
			for i, step := range record(t, c.do) {
				what := fmt.Sprintf("killed at step %d (%s)", i, step)
				prepare()
				inject(t, c.do, i, true)
				got := n.reaches(t, families[i%2], member)
				if c.name == "replace" && got != "trap" {
					t.Fatalf("%s: a member reaches %q", what, got)
				}
				all, _, err := inspect.Status(context.Background(), false)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				got = n.reaches(t, families[i%2], member)
				if want := []string{"service", "trap"}[len(all)]; got != want {
					t.Fatalf("%s: a member reaches %q with %d policies", what, got, len(all))
				}
			}
			_, _ = Down(context.Background(), "lv0") // it may have gone
			if err := nothingAtAll(t, "after all"); err != nil {
				t.Error(err)
			}
		})
	}
}
