package dataplane

import (
	"fmt"
	"levee/internal/lang/field"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"levee/internal/filter/codegen"
)

// featureRxVLAN is the offload that takes VLAN tags off received frames, as net/ethtool/common.c
// names it.
const featureRxVLAN = "rx-vlan-hw-parse"

// TakesTagsOff reports whether a device hands frames on with their outermost VLAN tag beside them
// (rx-vlan-offload, as ethtool -k shows it). XDP programs then see an untagged frame; programs at
// TCX are told of the tag. A device that does not say counts as one that leaves frames as they are.
func TakesTagsOff(name string) bool { return hasFeature(name, featureRxVLAN) }

func hasFeature(name, feature string) bool {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return false
	}
	defer e.Close()
	features, err := e.Features(name)
	return err == nil && features[feature]
}

// featureGRO merges received packets of one connection before the stack sees them. Generic XDP is
// behind that, and is not told; native XDP is in front of it, and TCX is told.
const featureGRO = "rx-gro"

// mergedError is why generic XDP cannot judge by lengths.
type mergedError struct{ dev, what string }

func (e *mergedError) Error() string {
	return fmt.Sprintf("it sees packets that %s has merged (GRO), and %s: ethtool -K %[1]s gro off",
		e.dev, e.what)
}

// refuseMerged refuses a policy for generic XDP that would judge merged packets otherwise than
// those on the wire.
func refuseMerged(d *device, p *codegen.Program) error {
	if !hasFeature(d.name, featureGRO) {
		return nil
	}
	for _, s := range p.Slots {
		if s.Rule == nil {
			continue
		}
		for i := range s.Rule.Match {
			if s.Rule.Match[i].Looks(field.Len) {
				return &mergedError{d.name, fmt.Sprintf("line %d asks for their length", s.Line)}
			}
		}
	}
	l, err := netlink.LinkByName(d.name)
	if err != nil {
		return nil // said by who attaches
	}
	const bigTCP = 1 << 16
	if a := l.Attrs(); a.GROMaxSize > bigTCP || a.GROIPv4MaxSize > bigTCP {
		return &mergedError{d.name, "those above 64 KiB (BIG TCP) are malformed"}
	}
	return nil
}
