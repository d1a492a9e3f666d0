package dataplane

import "github.com/safchain/ethtool"

// featureRxVLAN is the offload that takes VLAN tags off received frames, as net/ethtool/common.c names it.
const featureRxVLAN = "rx-vlan-hw-parse"

// TakesTagsOff reports whether a device hands frames on with their outermost VLAN tag beside them
// (rx-vlan-offload, as ethtool -k shows it). XDP programs then see an untagged frame; programs at TCX
// are told of the tag. A device that does not say counts as one that leaves frames as they are.
func TakesTagsOff(name string) bool {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return false
	}
	defer e.Close()
	features, err := e.Features(name)
	return err == nil && features[featureRxVLAN]
}
