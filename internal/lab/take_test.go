package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"levee/internal/await"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// machines are two hosts with a wire between them, each the home of one end.
func machines(t *testing.T) (a, b *Host) {
	t.Helper()
	needRoot(t)
	l, err := New(t.Context(), Topology{Pairs: []Pair{{Inner: "near", Outer: "far"}},
		ReceiverCPU: -1, GeneratorCPU: -1, Offload: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l.Hosts[0], l.Hosts[1]
}

// state returns the settings of eth0 that should be the same once the device has come back.
func state(t *testing.T, h *Host) (s string) {
	t.Helper()
	err := h.Do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		var list []string
		for _, a := range addrs {
			if !a.IP.IsLinkLocalUnicast() {
				d := detailsOf(&a)
				d.Valid -= d.Valid % 1000 // a second may pass
				d.Preferred -= d.Preferred % 1000
				list = append(list, fmt.Sprintf("%v %+v", a.IPNet, d))
			}
		}
		slices.Sort(list)
		f, err := ownFeatures("eth0")
		if err != nil {
			return err
		}
		threaded, err := threadedNAPI("eth0")
		if err != nil {
			return err
		}
		x := l.Attrs()
		threads, err := readThreads(x.Index)
		s = fmt.Sprint(x.HardwareAddr, x.MTU, x.OperState, list, f, threaded, threads,
			ownSysctls("eth0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// takeOn takes the device of a host.
func takeOn(ctx context.Context, h *Host, end string) (l *Lab, err error) {
	err = h.Do(func() error {
		l, err = Take(ctx, Taking{Device: "eth0", End: end, Peer: h.Devices[0].Peer.MAC})
		return err
	})
	return l, err
}

func TestATakenDeviceComesBackAsItWas(t *testing.T) {
	a, b := machines(t)
	for _, h := range []*Host{a, b} {
		h.Do(func() error { // the lab's own routes would be somebody's
			routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
			for _, r := range routes {
				if r.Protocol != 2 {
					_ = netlink.RouteDel(&r)
				}
			}
			return err
		})
	}
	// as a veth is that nobody has set up: without GRO it receives without NAPI
	if err := b.Do(func() error {
		return errors.Join(threadNAPI("eth0", false), SetGRO("eth0", false))
	}); err != nil {
		t.Fatal(err)
	}
	// as a machine is that trusts nobody on that network
	if err := a.Do(func() error {
		return setSysctls(map[string]string{sysctlDir + "/ipv4/conf/eth0/rp_filter": "1\n",
			sysctlDir + "/ipv6/conf/eth0/accept_ra":        "2\n",
			sysctlDir + "/ipv4/conf/eth0/accept_redirects": "0\n"})
	}); err != nil {
		t.Fatal(err)
	}
	lease(t, a)
	before := state(t, a) + state(t, b)
	one, err := takeOn(t.Context(), a, Server)
	if err != nil {
		t.Fatal(err)
	}
	other, err := takeOn(t.Context(), b, World)
	if err != nil {
		t.Fatal(err)
	}
	server := one.Host(Server)
	if _, err := exec.LookPath("ping"); err != nil { // waiting would not bring it
		t.Fatal(err)
	}
	for _, to := range []string{"198.18.0.2", "198.18.0.13", "2001:db8::2"} {
		await.OK(t, func() error { // what is sent before the kernel has seen the carrier is lost
			out, err := server.Command(t.Context(), "ping", "-c1", "-W1", to).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s does not answer: %w: %s", to, err, out)
			}
			return nil
		})
	}
	if err := server.Do(func() error { _, err := Owned("eth0"); return err }); err != nil {
		t.Errorf("a taken device belongs to no lab: %v", err)
	}
	if err := a.Do(func() error { _, err := Free("eth0"); return err }); !errors.Is(err,
		ErrNoDevice) {
		t.Errorf("the device is still where it was: %v", err)
	}
	renice(t, one)
	for _, l := range []*Lab{one, other} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if after := state(t, a) + state(t, b); after != before {
		t.Errorf("before: %s\nafter:  %s", before, after)
	}
}

// lease gives a device addresses that end, one of which has a peer and no broadcast, and its
// receiving threads a priority.
func lease(t *testing.T, h *Host) {
	t.Helper()
	err := h.Do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for text, more := range map[string]details{
			"192.0.2.7/24": {Label: "eth0:dhcp", Broadcast: []byte{192, 0, 2, 255},
				Valid: 5500, Preferred: 2500},
			"203.0.113.1/32": {Peer: "203.0.113.9/32", Broadcast: net.IPv4zero,
				Scope: unix.RT_SCOPE_LINK, Valid: forever, Preferred: forever},
			"2001:db8:77::5/64": {Flags: unix.IFA_F_NOPREFIXROUTE, Valid: 7500, Preferred: 4500},
		} {
			err = errors.Join(err, more.put(l, text, 0))
		}
		threads, wrong := readThreads(l.Attrs().Index)
		for i := range threads {
			threads[i].Nice = 3
		}
		pids, unknown := napiThreads(l.Attrs().Index)
		return errors.Join(err, wrong, unknown, putThreads(pids, threads))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// renice does what a measurement does with the thread that receives.
func renice(t *testing.T, l *Lab) {
	t.Helper()
	if pid := l.Hosts[0].Devices[0].NAPI; pid > 0 {
		if err := unix.Setpriority(unix.PRIO_PROCESS, pid, -20); err != nil {
			t.Error(err)
		}
	}
}

// TestThreadsHaveTheirPolicyAgain: probes have what receives go first. A veth makes its threads
// anew when it moves; those of a card may stay.
func TestThreadsHaveTheirPolicyAgain(t *testing.T) {
	h, _ := machines(t)
	err := h.Do(func() error {
		index := h.Devices[0].Index
		pids, err := napiThreads(index)
		if err != nil || len(pids) == 0 {
			return fmt.Errorf("threads %v: %w", pids, err)
		}
		before, err := readThreads(index)
		if err != nil {
			return err
		}
		// of those beside the usual one, the one for which a control group needs no budget
		if err := unix.SchedSetAttr(pids[0], &unix.SchedAttr{Size: unix.SizeofSchedAttr,
			Policy: unix.SCHED_BATCH}, 0); err != nil {
			return err
		}
		if changed, err := readThreads(index); err != nil || slices.Equal(changed, before) {
			t.Errorf("%v once it is another, %v", changed, err)
		}
		if err := putThreads(pids, before); err != nil {
			return err
		}
		if after, err := readThreads(index); err != nil || !slices.Equal(after, before) {
			t.Errorf("%v before, %v after: %v", before, after, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestThreadsThatTheKernelDoesNotTellOfComeBack, as before Linux 6.8; not a process that has the
// number of one by now.
func TestThreadsThatTheKernelDoesNotTellOfComeBack(t *testing.T) {
	h, _ := machines(t)
	var pids []int
	err := h.Do(func() (err error) {
		if err = threadNAPI("eth0", true); err == nil {
			pids, err = napiThreads(h.Devices[0].Index)
		}
		return err
	})
	if err != nil || len(pids) == 0 {
		t.Fatalf("threads %v: %v", pids, err)
	}
	d := &Device{Name: "eth0", Taken: &taken{Made: append(slices.Clone(pids), os.Getpid())}}
	if got := d.threads(nil); !slices.Equal(got, pids) {
		t.Errorf("of %v there are %v, not %v", d.Taken.Made, got, pids)
	}
	if got := d.threads([]int{7}); !slices.Equal(got, []int{7}) {
		t.Errorf("%v where the kernel tells of 7", got)
	}
}

func TestAnAddressWhoseLeaseHasEndedStaysAway(t *testing.T) {
	h, _ := machines(t)
	err := h.Do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for later, want := range map[uint32]int{60: 1, 99: 0, 1000: 0} {
			d := details{Broadcast: net.IPv4zero, Valid: 99, Preferred: 50}
			if err := d.put(l, "192.0.2.7/24", later); err != nil {
				return err
			}
			addrs, err := netlink.AddrList(l, netlink.FAMILY_V4)
			if err != nil {
				return err
			}
			found := 0
			for _, a := range addrs {
				if a.IP.String() != "192.0.2.7" {
					continue
				}
				found++
				if a.ValidLft > 39 || a.ValidLft < 30 || a.PreferedLft != 0 {
					t.Errorf("it is valid for %d s, preferred for %d", a.ValidLft, a.PreferedLft)
				}
				if err := netlink.AddrDel(l, &a); err != nil {
					return err
				}
			}
			if found != want {
				t.Errorf("%d s later there are %d", later, found)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestANamespaceWithTheInodeOfAnotherIsNoHome: the kernel gives a new namespace the inode of one
// that is gone.
func TestANamespaceWithTheInodeOfAnotherIsNoHome(t *testing.T) {
	needRoot(t)
	ino, err := inode(threadNetns)
	if err != nil {
		t.Fatal(err)
	}
	cookie, err := cookieOf()
	if err != nil || cookie == 0 {
		t.Fatal(cookie, err)
	}
	for of, want := range map[uint64]bool{0: true, cookie: true, cookie + 1: false} {
		if path := findNetns(ino, of); (path != "") != want {
			t.Errorf("cookie %d, own %d: found %q", of, cookie, path)
		}
	}
}

// TestTheThreadsOfADeviceAreReadWhereSysIsOfItsNamespace: as in the machine's own namespace, and
// behind ip netns exec.
func TestTheThreadsOfADeviceAreReadWhereSysIsOfItsNamespace(t *testing.T) {
	needRoot(t)
	if on, err := threadedNAPI("lo"); on || err != nil {
		t.Errorf("the loopback interface of this machine: %v, %v", on, err)
	}
}

// takeChild makes the test binary take eth0 of the namespace that it is started in.
const takeChild = "LEVEE_TAKE_CHILD"

func takeAndWait() error {
	if _, err := Take(context.Background(), Taking{Device: "eth0", End: World}); err != nil {
		return err
	}
	fmt.Println("taken")
	select {}
}

func TestADeviceThatAKilledProcessTookComesBack(t *testing.T) {
	_, b := machines(t)
	before := state(t, b)
	owner := b.Command(t.Context(), os.Args[0])
	owner.Env = append(os.Environ(), takeChild+"=1")
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "taken\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := owner.Wait(); !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	if err := Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := state(t, b); after != before {
		t.Errorf("before: %s\nafter:  %s", before, after)
	}
}

func TestADeviceInUseIsNotTaken(t *testing.T) {
	a, b := machines(t)
	refuses := func(h *Host, why string) {
		t.Helper()
		before := state(t, h)
		_, err := takeOn(t.Context(), h, Server)
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), why) {
			t.Errorf("want a refusal for %q, got %v", why, err)
		}
		if after := state(t, h); after != before {
			t.Errorf("refused, and changed: %s to %s", before, after)
		}
	}
	refuses(a, "route over it")
	in := func(h *Host, f func(l netlink.Link) error) {
		t.Helper()
		err := h.Do(func() error {
			l, err := netlink.LinkByName("eth0")
			if err == nil {
				err = f(l)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var on link.Link
	in(b, func(l netlink.Link) (err error) {
		on, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: l.Attrs().Index})
		return err
	})
	refuses(b, "levee down --dev eth0")
	if err := on.Close(); err != nil {
		t.Fatal(err)
	}
	clsact := &netlink.GenericQdisc{QdiscType: "clsact"}
	in(b, func(l netlink.Link) error {
		clsact.QdiscAttrs = netlink.QdiscAttrs{LinkIndex: l.Attrs().Index,
			Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
		return netlink.QdiscAdd(clsact)
	})
	refuses(b, "it has a qdisc, clsact ffff:0")
	in(b, func(netlink.Link) error { return netlink.QdiscDel(clsact) })
	above := true
	in(b, func(l netlink.Link) error {
		err := netlink.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "eth0.5",
			ParentIndex: l.Attrs().Index}, VlanId: 5})
		if errors.Is(err, unix.EOPNOTSUPP) { // a kernel without VLANs
			above, err = false, nil
		}
		return err
	})
	if above {
		refuses(b, "eth0.5 is above it")
	}
	in(b, func(l netlink.Link) error {
		if up, err := netlink.LinkByName("eth0.5"); err == nil {
			if err := netlink.LinkDel(up); err != nil {
				return err
			}
		}
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		return errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetMaster(l, bridge))
	})
	refuses(b, "port of another interface")
}
