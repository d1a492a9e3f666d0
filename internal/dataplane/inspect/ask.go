package inspect

import (
	"time"

	"github.com/vishvananda/netlink"
)

const (
	// FirstWait is for how long `up` waits for a packet, where there is reason to expect one.
	FirstWait = time.Second
	AskAgain  = 500 * time.Millisecond
)

// Ask has the kernel ask neighbours whether they are there still, as it does by itself from time to
// time: their answers are packets. A link that was down has forgotten them.
func Ask(some []netlink.Neigh) {
	for _, n := range some {
		n.State = netlink.NUD_PROBE
		_ = netlink.NeighSet(&n) // who is not asked does not answer
	}
}

// asksMost is the number of neighbours that are asked at a time.
const asksMost = 3

// Neighbours returns some that are known on an interface, or on its bridge or bond.
func Neighbours(l netlink.Link) (some []netlink.Neigh) {
	for _, index := range []int{l.Attrs().Index, l.Attrs().MasterIndex} {
		if index == 0 {
			continue
		}
		all, err := netlink.NeighList(index, netlink.FAMILY_ALL)
		if err != nil {
			continue
		}
		for _, n := range all {
			const known = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY
			if n.State&known != 0 && len(n.HardwareAddr) > 0 && len(some) < asksMost {
				some = append(some, n)
			}
		}
	}
	return some
}
