package lab

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Forget empties the conntrack table of the host, as `conntrack -F` does there.
func (h *Host) Forget() error {
	return h.Do(func() error {
		nl, err := netlink.NewHandleAt(netns.None(), unix.NETLINK_NETFILTER)
		if err != nil {
			return fmt.Errorf("opening netlink of netfilter: %w", err)
		}
		defer nl.Close()
		if err := nl.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			return fmt.Errorf("emptying the conntrack table of host %s: %w", h.Name, err)
		}
		return nil
	})
}
