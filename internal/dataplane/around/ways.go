package around

import (
	"context"
	"os"
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/route"
	"levee/internal/filter/state"
	"levee/internal/host/session"
	"levee/internal/kernel"
)

// loopback is the index of lo in every network namespace.
const loopback = 1

// WaysOf returns the contents of the map of interfaces that receive packets in the stack.
func WaysOf(index int, dev string) ([]byte, error) {
	is, err := session.WaysUp(dev)
	if err != nil {
		return nil, err
	}
	slices.Sort(is.Untagged)
	w := route.Ways{From: loopback, Own: index, Untagged: is.Untagged, Tagged: is.Tagged}
	if is.VRF { // whose routes are asked by one of its interfaces
		w.From = index
	}
	return w.Bytes(), nil
}

// PutWays writes them.
func PutWays(m *ebpf.Map, contents []byte) error {
	if err := m.Put(uint32(0), contents); err != nil {
		return kernel.Refuse(err, "tell the program which interfaces packets come up to")
	}
	return nil
}

// FillWays writes the map of interfaces that receive packets, for rules on ways back. The map is
// the interface's. The kernel does not answer on an interface that does not forward.
func FillWays(l *loader.Loaded, index int, dev string, note Note) error {
	m := l.Holding(state.HoldsWays)
	if m == nil {
		return nil
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		if !forwards(family, dev) {
			note("%s: the kernel tells no way back of %s, and rules with reverse-path do not "+
				"hold: `sysctl -w net.%s.conf.lo.forwarding=1` lets it, and forwards nothing",
				dev, map[string]string{"ipv4": "IPv4", "ipv6": "IPv6"}[family], family)
		}
	}
	contents, err := WaysOf(index, dev)
	if err != nil {
		return err
	}
	return PutWays(m, contents)
}

// forwards tells whether the kernel looks routes up for lo, or for the interface. A family that is
// switched off is not missed.
func forwards(family, dev string) bool {
	known := false
	for _, of := range []string{"lo", dev} {
		is, err := os.ReadFile("/proc/sys/net/" + family + "/conf/" + of + "/forwarding")
		if err == nil && string(is) != "0\n" {
			return true
		}
		known = known || err == nil
	}
	return !known
}

// TellWays tells the policy on an interface of a change. It does nothing where no rule asks.
func TellWays(ctx context.Context, dev string, contents []byte) error {
	return tell(ctx, dev, state.HoldsWays, func(m *ebpf.Map) error { return PutWays(m, contents) })
}
