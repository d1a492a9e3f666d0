package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Host is one network namespace of a lab.
type Host struct {
	Name      string
	Namespace string // as `ip netns` lists it
	Inode     uint64 // of the namespace, as /proc/PID/ns/net shows it
	Devices   []Device

	ctx context.Context
}

// Device is one end of a veth pair.
type Device struct {
	Name     string
	Index    int
	MAC      MAC
	IPv4     netip.Prefix
	IPv6     netip.Prefix
	Clients4 []netip.Addr // further addresses, in the same subnet
	Clients6 []netip.Addr
	Peer     Peer
	MTU      int
	NAPI     int // process id of the kernel thread that receives, 0 if there is none
	CPU      int // the core which that thread is pinned to, -1 for none
	// Taken holds the former settings of a device that a lab took; nil for one that the lab made.
	Taken *taken `json:",omitempty"`
}

// Peer is the other end of a device.
type Peer struct {
	Host   string
	Device string
	MAC    MAC
	IPv4   netip.Addr
	IPv6   netip.Addr
}

// MAC is an Ethernet address that reads and writes itself as text.
type MAC [6]byte

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText implements encoding.TextMarshaler.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *MAC) UnmarshalText(b []byte) error {
	a, err := net.ParseMAC(string(b))
	if err != nil || len(a) != len(m) {
		return fmt.Errorf("%q is no Ethernet address", b)
	}
	copy(m[:], a)
	return nil
}

// Device returns a device by name, or nil.
func (h *Host) Device(name string) *Device {
	for i := range h.Devices {
		if h.Devices[i].Name == name {
			return &h.Devices[i]
		}
	}
	return nil
}

// Do runs f on an operating-system thread inside the namespace, and returns what f returns.
// Sockets that f opens stay in the namespace; goroutines that it starts are not in it. /sys is
// still that of the caller.
func (h *Host) Do(f func() error) error {
	return Inside(h.Namespace, f)
}

// Inside is Host.Do for a namespace by its name in /run/netns; "" is the current one.
func Inside(namespace string, f func() error) error {
	if namespace == "" {
		return f()
	}
	return insidePath(filepath.Join(netnsDir, namespace), f)
}

// insidePath is Inside for the file of a namespace.
func insidePath(path string, f func() error) error {
	runtime.LockOSThread()
	home, err := unix.Open(threadNetns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("opening the current network namespace: %w", err)
	}
	defer unix.Close(home)
	if err := enter(path); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		// A thread that cannot go home stays locked and ends with its goroutine: no other
		// goroutine may find itself in a strange namespace.
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

// Here returns a host that is the calling process itself, in its namespace, without devices.
func Here() *Host { return &Host{Name: "this host", ctx: context.Background()} }

// Command prepares a program that runs inside the namespace, as exec.CommandContext does. It is
// killed when ctx ends or the lab is closed. It sees the caller's file system, and /sys and
// bpffs as they are: pins it makes stay.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	both, cancel := context.WithCancel(ctx)
	context.AfterFunc(h.ctx, cancel)
	if h.Namespace == "" {
		return exec.CommandContext(both, name, args...)
	}
	return exec.CommandContext(both, "nsenter",
		append([]string{"--net=" + netnsDir + "/" + h.Namespace, "--", name}, args...)...)
}
