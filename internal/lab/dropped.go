package lab

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// SentButDropped returns what a device of the calling thread's namespace dropped for want of room
// at its peer, of live frames and of what sockets sent (veth_get_stats64, drivers/net/veth.c).
func SentButDropped(device string) (uint64, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return 0, fmt.Errorf("reading the counters of %s: %w", device, err)
	}
	if st := link.Attrs().Statistics; st != nil {
		return st.TxDropped, nil
	}
	return 0, nil
}
