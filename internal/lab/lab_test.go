package lab

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
}

// newLab makes a standard lab that ends with the test.
func newLab(t *testing.T, top Topology) *Lab {
	t.Helper()
	needRoot(t)
	l, err := New(t.Context(), top)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// opened is a lab that exists, persistent or of another process. Its Close leaves the lab alone.
func opened(name string) (*Lab, error) {
	rec, err := load(name)
	if err != nil {
		return nil, err
	}
	return open(rec), nil
}

func TestStandardIsTuned(t *testing.T) {
	before := namedNAPIThreads("eth0")
	l := newLab(t, Standard())
	after := namedNAPIThreads("eth0")
	server, world := l.Host(Server), l.Host(World)
	if server == nil || world == nil {
		t.Fatalf("hosts %v", l.Hosts)
	}
	for _, h := range l.Hosts {
		d := h.Devices[0]
		if d.NAPI == 0 {
			t.Fatalf("%s: no NAPI thread", h.Name)
		}
		comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(d.NAPI), "comm"))
		if err != nil || !strings.HasPrefix(string(comm), "napi/"+d.Name+"-") {
			t.Errorf("%s: NAPI thread %d is %q, %v", h.Name, d.NAPI, comm, err)
		}
		if before[d.NAPI] || !after[d.NAPI] {
			t.Errorf("%s: NAPI thread %d is not found by its name", h.Name, d.NAPI)
		}
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(d.NAPI, &set); err != nil {
			t.Fatal(err)
		}
		if set.Count() != 1 || !set.IsSet(d.CPU) {
			t.Errorf("%s: NAPI thread may use %v, want core %d only", h.Name, set, d.CPU)
		}
		out, err := h.Command(t.Context(), "ip", "-d", "link", "show", d.Name).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range []string{"qdisc noqueue", "numrxqueues 1", d.MAC.String(),
			"mtu 1500"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: no %q in\n%s", h.Name, want, out)
			}
		}
		out, _ = h.Command(t.Context(), "ethtool", "-k", d.Name).CombinedOutput()
		for _, want := range []string{"tx-checksumming: off", "tx-tcp-segmentation: off",
			"tx-vlan-offload: off", "generic-receive-offload: on"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: no %q in\n%s", h.Name, want, out)
			}
		}
	}
}

func TestClientsReachTheServerOverBothFamilies(t *testing.T) {
	l := newLab(t, Standard())
	server, world := l.Host(Server), l.Host(World)
	d, w := server.Devices[0], world.Devices[0]
	for _, c := range []struct{ client, to netip.Addr }{
		{w.Clients4[3], d.IPv4.Addr()},
		{w.Clients6[3], d.IPv6.Addr()},
	} {
		got, err := greet(world, server, c.client, c.to)
		if err != nil || got != c.client {
			t.Errorf("server saw %s, %v; want %s", got, err, c.client)
		}
	}
}

// greet connects by TCP from one host to an address of another and returns the source that the
// server saw. An invalid source leaves the choice to the kernel.
func greet(from, to *Host, source, dest netip.Addr) (netip.Addr, error) {
	var ln net.Listener
	err := to.Do(func() (err error) {
		ln, err = net.Listen("tcp", netip.AddrPortFrom(dest, 80).String())
		return err
	})
	if err != nil {
		return netip.Addr{}, err
	}
	defer ln.Close()
	go func() {
		if conn, err := ln.Accept(); err == nil {
			io.WriteString(conn, conn.RemoteAddr().String())
			conn.Close()
		}
	}()
	var saw netip.AddrPort
	err = from.Do(func() error {
		dialer := net.Dialer{Timeout: time.Minute}
		if source.IsValid() {
			dialer.LocalAddr = &net.TCPAddr{IP: source.AsSlice()}
		}
		conn, err := dialer.Dial("tcp", ln.Addr().String())
		if err != nil {
			return err
		}
		defer conn.Close()
		b, err := io.ReadAll(conn)
		if err != nil {
			return err
		}
		saw, err = netip.ParseAddrPort(string(b))
		return err
	})
	return saw.Addr(), err
}

func TestRouterForwardsBetweenItsLinks(t *testing.T) {
	l := newLab(t, Topology{
		Pairs:   []Pair{{Inner: "router", Outer: "world"}, {Inner: "lan", Outer: "router"}},
		Forward: []string{"router"},
	})
	lan, world := l.Host("lan").Devices[0], l.Host("world").Devices[0]
	for _, c := range []struct {
		from, to string
		addr     netip.Addr
	}{
		{"lan", "world", world.IPv4.Addr()}, {"lan", "world", world.IPv6.Addr()},
		{"world", "lan", lan.IPv4.Addr()}, {"world", "lan", lan.IPv6.Addr()},
	} {
		if _, err := greet(l.Host(c.from), l.Host(c.to), netip.Addr{}, c.addr); err != nil {
			t.Errorf("%s to %s: %v", c.from, c.addr, err)
		}
	}
}

func TestCloseRemovesEverything(t *testing.T) {
	l := newLab(t, Standard())
	server := l.Host(Server)
	cmd := server.Command(context.Background(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the command was not ended")
	}
	for _, h := range l.Hosts {
		if _, err := os.Stat(filepath.Join(netnsDir, h.Namespace)); err == nil {
			t.Errorf("%s is still there", h.Namespace)
		}
	}
	if _, err := opened(l.Name); !errors.Is(err, ErrNoLab) {
		t.Errorf("Open after Close: %v", err)
	}
	if err := server.Do(func() error { return nil }); err == nil {
		t.Error("Do in a closed lab gave no error")
	}
}
