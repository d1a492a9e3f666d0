package dataplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/sender"
	"levee/internal/filter/state"
)

const senderPolicy = `out count udp local as "local"
out count udp forwarded as "forwarded"
out count udp uid 0 as "uid 0"
out count udp uid 1000-1999 as "users"
out count udp not uid 1000-1999 as "no users"
out count udp user nobody as "nobody"
out count udp not user nobody as "not nobody"
out count udp gid 8 as "gid 8"
out count udp group nogroup as "nogroup"
out count udp service "postfix.service" as "postfix"
out count udp not service "postfix.service" as "not postfix"
out count udp service { "cpu.service", "a@b:c.service" } as "odd"
out count udp container { web, "my.db" } as "container"
default pass
`

// senders is lv0 with 192.0.2.1/24, and 192.0.2.2 behind it; and the hierarchy of cgroups.
type senders struct {
	*testNet
	cgroups string
	made    []string
	counted map[string]uint64
}

// reach gives an interface an address, and a neighbour that answers nobody.
func reach(t testing.TB, dev, addr string) netlink.Link {
	giveWays(t, dev, addr)
	l := must2(netlink.LinkByName(dev))
	if err := netlink.NeighAdd(&netlink.Neigh{LinkIndex: l.Attrs().Index,
		State: netlink.NUD_PERMANENT, IP: net.ParseIP("192.0.2.9"),
		HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}}); err != nil {
		t.Fatal(err)
	}
	return l
}

func newSenders(t testing.TB) *senders {
	n := &senders{testNet: newTestNet(t), cgroups: t.TempDir(), counted: map[string]uint64{}}
	reach(t, "lv0", "192.0.2.1/24")
	if err := unix.Mount("none", n.cgroups, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	before := n.own(t)
	t.Cleanup(func() {
		n.enter(t, before)
		for i := len(n.made) - 1; i >= 0; i-- {
			removeGroup(t, n.made[i])
		}
		if err := unix.Unmount(n.cgroups, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return n
}

// own is the cgroup of this process.
func (n *senders) own(t testing.TB) string {
	t.Helper()
	all, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSpace(path)
		}
	}
	t.Fatal("this process is in no cgroup of version 2")
	return ""
}

// enter puts this process into a cgroup, which it makes. Tests of other processes make and remove
// the same one meanwhile.
func (n *senders) enter(t testing.TB, path string) {
	t.Helper()
	await.OK(t, func() error {
		at := n.cgroups
		for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
			at = filepath.Join(at, part)
			if err := os.Mkdir(at, 0o755); err == nil {
				n.made = append(n.made, at)
			} else if !errors.Is(err, os.ErrExist) {
				return err
			}
		}
		return os.WriteFile(filepath.Join(at, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
	})
}

// remove takes the last cgroup of a path away.
func (n *senders) remove(t *testing.T, path string) {
	t.Helper()
	removeGroup(t, filepath.Join(n.cgroups, path))
}

// removeGroup removes a cgroup once the kernel has let its last process go.
func removeGroup(t testing.TB, path string) {
	t.Helper()
	await.OK(t, func() error {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil // by a call before that was interrupted
	})
}

// sendAs sends a datagram from a socket that is made as a user and a group.
func (n *senders) sendAs(t *testing.T, uid, gid int) {
	t.Helper()
	unix.SetfsgidRetGid(gid)
	unix.SetfsuidRetUid(uid)
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	unix.SetfsuidRetUid(0)
	unix.SetfsgidRetGid(0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	if err := unix.Sendto(s, []byte("x"), 0,
		&unix.SockaddrInet4{Port: 25, Addr: [4]byte{192, 0, 2, 9}}); err != nil {
		t.Fatal(err)
	}
}

// counts holds the labels that have counted packets since it was called last.
func (n *senders) counts(t *testing.T, what, want string) {
	t.Helper()
	a := status0(t)
	var got []string
	for _, c := range a.Counters {
		if d := c.Packets - n.counted[c.ID]; d > 0 && c.Label != "" &&
			!strings.Contains(c.Label, "default") {
			got = append(got, fmt.Sprintf("%s %d", c.Label, d))
		}
		n.counted[c.ID] = c.Packets
	}
	if all := strings.Join(got, ", "); all != want {
		t.Errorf("%s: %s; want %s", what, all, want)
	}
}

// TestWhoSentWasUnknown: rules for what leaves knew addresses and ports, and no senders.
func TestWhoSentWasUnknown(t *testing.T) {
	n := newSenders(t)
	for _, way := range egressWays(t) {
		n.run(t, string(way), func(t *testing.T) {
			n.counted = map[string]uint64{}
			if _, err := Up(t.Context(), UpOptions{Dev: "lv0", PolicyPath: "out.levee",
				Source: []byte(senderPolicy), egressMode: way},
				compileText(senderPolicy)); err != nil {
				t.Fatal(err)
			}
			const nobody = "not nobody 1, "
			for _, c := range []struct {
				what, cgroup string
				uid, gid     int
				want         string
			}{
				{"root", "", 0, 0, "local 1, uid 0 1, no users 1, " + nobody + "not postfix 1"},
				{"a user", "", 1234, 8, "local 1, users 1, " + nobody + "gid 8 1, not postfix 1"},
				{"nobody", "", 65534, 65534, "local 1, no users 1, nobody 1, nogroup 1, " +
					"not postfix 1"},
				{"a service", "system.slice/postfix.service", 1000, 8, "local 1, users 1, " +
					nobody + "gid 8 1, postfix 1"},
				{"within it", "system.slice/postfix.service/worker", 1000, 0, "local 1, users 1, " +
					nobody + "postfix 1"},
				{"in slices", "a.slice/a-b.slice/postfix.service", 1000, 0, "local 1, users 1, " +
					nobody + "postfix 1"},
				{"a user's own", "user.slice/user-1000.slice/user@1000.service/app.slice/" +
					"postfix.service", 1000, 0, "local 1, users 1, " + nobody + "not postfix 1"},
				{"in a session", "user.slice/user-1000.slice/session-1.scope/postfix.service",
					1000, 0, "local 1, users 1, " + nobody + "not postfix 1"},
				{"a longer name", "system.slice/postfix.service.d", 1000, 0, "local 1, users 1, " +
					nobody + "not postfix 1"},
				{"escaped", "system.slice/_cpu.service", 1000, 0, "local 1, users 1, " +
					nobody + "not postfix 1, odd 1"},
				{"an instance", "system.slice/system-a.slice/a@b:c.service", 1000, 0,
					"local 1, users 1, " + nobody + "not postfix 1, odd 1"},
				{"a container", "machine.slice/machine-web.scope/payload", 1000, 0,
					"local 1, users 1, " + nobody + "not postfix 1, container 1"},
				{"one of LXC", "lxc.payload.my.db", 1000, 0,
					"local 1, users 1, " + nobody + "not postfix 1, container 1"},
				{"a false container", "user.slice/user@1000.service/machine-web.scope", 1000, 0,
					"local 1, users 1, " + nobody + "not postfix 1"},
				{"in the root", "", 0, 0, "local 1, uid 0 1, no users 1, " + nobody +
					"not postfix 1"},
			} {
				n.enter(t, c.cgroup)
				for range 2 { // the second finds what the first has found out
					n.sendAs(t, c.uid, c.gid)
					n.counts(t, c.what, c.want)
				}
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestAServiceStartedAgainWasAnother: a unit has another cgroup each time, under the same name. Its
// packets are its own from the first one on, and nobody else's are.
func TestAServiceStartedAgainWasAnother(t *testing.T) {
	n := newSenders(t)
	const text = `out count udp service "postfix.service" as "postfix"
out count udp service "game.service" as "game"
out count udp not service { "postfix.service", "game.service" } as "others"
default pass
`
	n.bring(t, text)
	for i := range 100 {
		for _, unit := range []string{"postfix.service", "game.service", "other.service"} {
			path := "system.slice/" + unit
			n.enter(t, path)
			n.sendAs(t, 0, 0)
			n.enter(t, "system.slice/")
			n.remove(t, path)
		}
		if i%10 == 9 { // and a replace now and then
			n.bring(t, fmt.Sprintf("%s# %d\n", text, i))
		}
	}
	n.counts(t, "100 times", "postfix 100, game 100, others 100")
	for range 3 { // born in its cgroup
		n.start(t, "system.slice/postfix.service")
		n.remove(t, "system.slice/postfix.service")
	}
	n.counts(t, "born there", "postfix 3")
}

// start has a process be born in a cgroup, which it makes, and send from there.
func (n *senders) start(t *testing.T, path string) {
	t.Helper()
	before := n.own(t)
	n.enter(t, path)
	n.enter(t, before)
	dir, err := os.Open(filepath.Join(n.cgroups, path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	text, err := json.Marshal(order{Do: "send", File: "192.0.2.9:25"})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func (n *senders) bring(t testing.TB, text string) {
	t.Helper()
	if _, err := Up(t.Context(), UpOptions{Dev: "lv0", PolicyPath: "out.levee",
		Source: []byte(text)}, compileText(text)); err != nil {
		t.Fatal(err)
	}
}

// TestAnswersOfAServiceHadNoSender: what answers a SYN, what is sent before anybody has accepted
// the connection and after its process has closed it, is of the service and the group that listen.
func TestAnswersOfAServiceHadNoSender(t *testing.T) {
	n := newSenders(t)
	n.inPeer(t, func() { giveWays(t, "lv1", "192.0.2.2/24") })
	for _, multipath := range []bool{false, true} { // which has sockets of the kernel's own
		n.run(t, fmt.Sprint("MPTCP ", multipath), func(t *testing.T) { n.serve(t, multipath) })
	}
}

// serve has a service listen, answer and go.
func (n *senders) serve(t *testing.T, multipath bool) {
	const text = `out count tcp service "postfix.service" as "service"
out count tcp not service "postfix.service" as "no service"
out count tcp gid 8 as "group"
out count tcp not gid 8 as "no group"
out count tcp uid 0 as "user"
out count tcp not uid 0 as "no user"
out count tcp flags rst as "reset"
out count tcp as "all"
default pass
`
	n.bring(t, text)
	defer func() {
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Error(err)
		}
	}()
	n.enter(t, "system.slice/postfix.service")
	unix.SetfsgidRetGid(8)
	var how net.ListenConfig
	how.SetMultipathTCP(multipath)
	l, err := how.Listen(t.Context(), "tcp4", "192.0.2.1:25")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var c net.Conn
	n.inPeer(t, func() { c = n.dial(t, "192.0.2.1:25") })
	defer c.Close()
	if _, err := c.Write([]byte("HELO")); err != nil { // acknowledged while nobody has accepted
		t.Fatal(err)
	}
	served, err := l.Accept()
	unix.SetfsgidRetGid(0)
	if err != nil {
		t.Fatal(err)
	}
	mail := make([]byte, 1<<20)
	if _, err := served.Read(mail[:4]); err != nil {
		t.Fatal(err)
	}
	raw, err := served.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// Before Linux 6.18 net.core.wmem_max is less than what is written before anybody reads.
	var refused error
	if err := raw.Control(func(fd uintptr) {
		refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 2<<20)
	}); err != nil || refused != nil {
		t.Fatal(err, refused)
	}
	written, err := served.Write(mail)
	if err == nil {
		err = served.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for read < written { // most of it is sent after the close
		k, err := c.Read(mail)
		if read += k; err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	l.Close()
	a := status0(t)
	all := packets(&a, "all")
	if all < 10 {
		t.Fatalf("%d packets", all)
	}
	for _, what := range []string{"service", "group", "user"} {
		if got := packets(&a, what); got+2 < all || got > all { // the end may be the kernel's own
			t.Errorf("%d of %d packets are of the %s", got, all, what)
		}
		if got := packets(&a, "no "+what); got > 0 {
			t.Errorf("%d of %d packets are not of the %s", got, all, what)
		}
	}
	before := packets(&a, "user")
	n.inPeer(t, func() {
		if c, err := net.Dial("tcp4", "192.0.2.1:26"); err == nil {
			c.Close()
			t.Error("somebody listens")
		}
	})
	a = status0(t)
	if got := packets(&a, "reset"); got == 0 {
		t.Error("no port was closed")
	}
	if got := packets(&a, "user"); got != before {
		t.Error("the kernel's own reset has a user")
	}
}

// inPeer does something in the other namespace.
func (n *senders) inPeer(t *testing.T, do func()) {
	t.Helper()
	if err := netns.Set(n.peer); err != nil {
		t.Fatal(err)
	}
	do()
	if err := netns.Set(n.here); err != nil {
		t.Fatal(err)
	}
}

// dial connects from this thread's namespace; net's own dialer may do it from another one's.
func (n *senders) dial(t *testing.T, to string) net.Conn {
	t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddrPort(to)
	if err := unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUF, 16<<10); err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(s, &unix.SockaddrInet4{Port: int(a.Port()),
		Addr: a.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(s), to)
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWhatIsForwardedHasNoSender: of a packet that is passed on nothing is known but that.
func TestWhatIsForwardedHasNoSender(t *testing.T) {
	n := newSenders(t)
	addVeth(t, "lv2", "lv3", n.peer)
	giveWays(t, "lv2", "10.1.1.1/24")
	set(t, "ipv4/ip_forward", "1")
	set(t, "ipv4/conf/all/rp_filter", "0")
	set(t, "ipv4/conf/lv2/rp_filter", "0")
	n.bring(t, senderPolicy)
	n.inPeer(t, func() {
		giveWays(t, "lv3", "10.1.1.2/24")
		l, err := netlink.LinkByName("lv3")
		if err != nil {
			t.Fatal(err)
		}
		_, to, err := net.ParseCIDR("192.0.2.9/32")
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: to,
			Gw: net.ParseIP("10.1.1.1")}); err != nil {
			t.Fatal(err)
		}
		n.sendAs(t, 1000, 8)
	})
	await.OK(t, func() error {
		if a := status0(t); packets(&a, "forwarded") == 0 {
			return errors.New("nothing was forwarded")
		}
		return nil
	})
	n.counts(t, "forwarded", "forwarded 1")
}

// TestAnotherNamespaceSentAsAUserOfThisOne: a container that has an interface on top of the
// policy's sends past no other one, and its root was taken for that of the machine.
func TestAnotherNamespaceSentAsAUserOfThisOne(t *testing.T) {
	n := newSenders(t)
	below, err := netlink.LinkByName("lv0")
	if err != nil {
		t.Fatal(err)
	}
	n.bring(t, senderPolicy)
	for _, kind := range []netlink.Link{
		&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "on0",
			ParentIndex: below.Attrs().Index, Namespace: netlink.NsFd(n.peer)},
			Mode: netlink.MACVLAN_MODE_BRIDGE},
		&netlink.IPVlan{LinkAttrs: netlink.LinkAttrs{Name: "on0",
			ParentIndex: below.Attrs().Index, Namespace: netlink.NsFd(n.peer)},
			Mode: netlink.IPVLAN_MODE_L2},
	} {
		if err := netlink.LinkAdd(kind); errors.Is(err, unix.EOPNOTSUPP) {
			t.Logf("%s is not at hand", kind.Type())
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		n.inPeer(t, func() {
			l := reach(t, "on0", "192.0.2.3/24")
			n.sendAs(t, 0, 8)
			n.sendAs(t, 1000, 8)
			if err := netlink.LinkDel(l); err != nil {
				t.Fatal(err)
			}
		})
		n.counts(t, kind.Type(), "local 2")
	}
}

// TestUnknownSendersAreRefused: a name that nobody has, or that two have, is an error, and what is
// in force stays.
func TestUnknownSendersAreRefused(t *testing.T) {
	newSenders(t).bring(t, "out drop udp port 26\ndefault pass\n")
	for text, want := range map[string]string{
		"out drop user \"levee-no-one\"\n":  "there is no user levee-no-one on this machine",
		"out drop group \"levee-no-one\"\n": "write its number, as in: gid 1000",
	} {
		text += "default pass\n"
		_, err := Up(t.Context(), UpOptions{Dev: "lv0", PolicyPath: "out.levee",
			Source: []byte(text)}, compileText(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if a := status0(t); len(a.Counters) == 0 || store.Mode(a.Mode) == "" {
			t.Error("nothing is in force")
		}
	}
}

// TestAContainerOfAnotherNameWasJudgedByItsRule: from the moment in which levee is told that a name
// is of another container, packets of both are judged so, also those of cgroups that are known.
func TestAContainerOfAnotherNameWasJudgedByItsRule(t *testing.T) {
	n := newSenders(t)
	n.bring(t, "out count udp container web as \"web\"\nout count udp not container web as "+
		"\"others\"\ndefault pass\n")
	for i := range 20 {
		n.rename(t, "first.scope", "second.scope", i)
		for k, path := range []string{"machine.slice/first.scope", "machine.slice/second.scope"} {
			n.enter(t, path)
			n.sendAs(t, 0, 0)
			want := "others 1"
			if k == i%2 {
				want = "web 1"
			}
			n.counts(t, fmt.Sprint(path, " after ", i, " renames"), want)
		}
	}
}

// TestAUserAddedWasJudgedByAnothersRule: a user who goes is nobody, and who gets his number is not
// taken for him. One who is made under the name has the rule from when levee is told.
func TestAUserAddedWasJudgedByAnothersRule(t *testing.T) {
	n := newSenders(t)
	// root is a name that each machine has; who is behind it here is told below.
	n.bring(t, "out count udp user root as \"named\"\nout count udp not user root as "+
		"\"others\"\ndefault pass\n")
	for i, c := range []struct {
		is           uint32 // whom the name stands for
		named, other int    // users that send
	}{{1001, 1001, 1002}, {sender.NoID, -1, 1001}, {1002, 1002, 1001}, {1003, 1003, 1002}} {
		n.told(t, &sender.Names{Users: []uint32{c.is}}, i)
		for range 2 { // the second finds what the first has found out
			n.sendAs(t, c.other, c.other)
			n.counts(t, fmt.Sprint("another user, ", i), "others 1")
			if c.named > 0 {
				n.sendAs(t, c.named, c.named)
				n.counts(t, fmt.Sprint("who has the name, ", i), "named 1")
			}
		}
	}
}

// rename has web be the container of one cgroup or of the other.
func (n *senders) rename(t *testing.T, first, second string, i int) {
	t.Helper()
	n.told(t, &sender.Names{Containers: [][]string{{[]string{first, second}[i%2]}}}, i)
}

// told tells the policy whom its names stand for, for the i-th time.
func (n *senders) told(t *testing.T, names *sender.Names, i int) {
	t.Helper()
	err := generation.TransactOn(t.Context(), "lv0",
		func(s *store.Store, a *attach.Attachment) error {
			g := a.Current()
			name, _ := codegen.MapOf(g.Maps, state.HoldsSenders)
			m, err := s.OpenPinned(a.Key, g.Generation, name)
			if err != nil {
				return err
			}
			defer m.Close()
			memory, err := store.MapMemory(m, sender.Bytes)
			if err != nil {
				return err
			}
			sender.Memory(memory).Tell(names, [16]byte{byte(i)})
			return unix.Munmap(memory)
		})
	if err != nil {
		t.Fatal(err)
	}
}
