package contender

import (
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/examples"
	"levee/internal/await"
	"levee/internal/lab"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

// TestRulesAgreeWithThePolicy sends the packets of the policy's own tests and compares what each
// tool counts as dropped with what the policy expects.
func TestRulesAgreeWithThePolicy(t *testing.T) {
	s, l := newSite(t)
	p, err := Resolve(examples.DemoName, examples.Demo)
	if err != nil {
		t.Fatal(err)
	}
	// The addresses that the packets are for, so that they get as far as INPUT.
	err = s.Host.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, a := range []string{"198.51.100.1/32", "2001:db8:1::1/128"} {
			addr, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(lo, addr); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	send := newWire(t, s, l.Host(lab.World))
	for _, d := range []Defence{NFT(), IPTables()} {
		t.Run(d.Name(), func(t *testing.T) {
			install(t, d, s)
			for _, c := range p.Tests {
				if slices.ContainsFunc(c.Steps, func(s policy.Step) bool { return s.Set != nil }) {
					continue // entries of a dynamic set
				}
				for _, step := range c.Steps {
					if d.Hook() == LocalIn && unseenAtInput(step.Frame) {
						continue
					}
					before, err := d.Dropped(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					send(step.Frame)
					after, err := d.Dropped(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					// A few packets more are the lab's own, of IPv6 for instance.
					if n := after - before; (n >= copies) != (step.Expect == action.Drop) ||
						n > copies+10 {
						t.Errorf("%s: %s: dropped %d of %d, want %s", c.Name, step.Text, n, copies,
							step.Expect)
					}
				}
			}
		})
	}
}

// copies of each packet that are sent.
const copies = 20

// unseenAtInput: ARP does not come by there, and a fragment without the others never.
func unseenAtInput(frame []byte) bool {
	switch {
	case frame[12] == 0x08 && frame[13] == 0x06:
		return true
	case frame[12] == 0x08 && frame[13] == 0x00:
		return frame[14+6]&0x3f|frame[14+7] != 0
	}
	return frame[14+6] == 44
}

// newWire returns a function that sends a frame from the world, to the server's Ethernet address.
func newWire(t *testing.T, s Site, world *lab.Host) func(frame []byte) {
	t.Helper()
	var fd int
	err := world.Do(func() error {
		dev, err := net.InterfaceByName(world.Devices[0].Name)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: dev.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	mac := s.Host.Device(s.Device).MAC
	return func(frame []byte) {
		frame = slices.Clone(frame)
		copy(frame, mac[:])
		before := received(t, s)
		for range copies {
			if _, err := unix.Write(fd, frame); err != nil {
				t.Fatal(err)
			}
		}
		await.True(t, "the server receives what was sent", func() bool {
			return received(t, s)-before >= copies
		})
	}
}

// received returns the number of packets that the server's device has handed on; veth counts them
// behind the rules.
func received(t *testing.T, s Site) (n uint64) {
	t.Helper()
	err := s.Host.Do(func() error {
		c, err := lab.Counters(s.Device)
		n = c[Received]
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
