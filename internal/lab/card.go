package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
)

// Card describes an interface as far as figures depend on it. A number that its driver does not
// tell is 0.
type Card struct {
	Name     string `json:"name"`
	Driver   string `json:"driver"`
	MAC      MAC    `json:"mac"`
	MTU      int    `json:"mtu"`
	Mbit     uint64 `json:"mbit"`     // of the link, a second
	RxRing   uint32 `json:"rx_ring"`  // slots
	TxRing   uint32 `json:"tx_ring"`  // slots
	Channels uint32 `json:"channels"` // that both receive and send; a lab measures with one
}

func (c Card) String() string {
	s := fmt.Sprintf("%s (%s), MTU %d", c.Name, c.Driver, c.MTU)
	if c.Mbit > 0 {
		s += fmt.Sprintf(", %d Mbit/s", c.Mbit)
	}
	if c.RxRing > 0 {
		s += fmt.Sprintf(", rings of %d to receive and %d to send", c.RxRing, c.TxRing)
	}
	return s
}

// ReadCard reads an interface of the calling thread's namespace.
func ReadCard(device string) (c Card, err error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return c, fmt.Errorf("looking at %s: %w", device, err)
	}
	c.Name, c.MTU = device, link.Attrs().MTU
	copy(c.MAC[:], link.Attrs().HardwareAddr)
	err = withEthtool(func(e *ethtool.Ethtool) error {
		c.Driver, _ = e.DriverName(device)
		if r, err := e.GetRing(device); err == nil {
			c.RxRing, c.TxRing = r.RxPending, r.TxPending
		}
		if ch, err := e.GetChannels(device); err == nil {
			c.Channels = ch.CombinedCount
		}
		if s, err := e.CmdGetMapped(device); err == nil && int32(s["speed"]) != unknownSpeed {
			c.Mbit = s["speed"]
		}
		return nil
	})
	return c, err
}

// unknownSpeed is SPEED_UNKNOWN of include/uapi/linux/ethtool.h.
const unknownSpeed = -1

// PacketSockets counts the packet sockets of the calling thread's namespace: a line each, below a
// heading.
func PacketSockets() (int, error) {
	text, err := os.ReadFile("/proc/thread-self/net/packet")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the kernel has none
	}
	return max(strings.Count(string(text), "\n")-1, 0), err
}
