package lab

import (
	"fmt"
	"strings"

	"github.com/safchain/ethtool"
)

// withEthtool asks or sets something of devices in the calling thread's namespace.
func withEthtool(do func(*ethtool.Ethtool) error) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	defer e.Close()
	return do(e)
}

// Counters reads the driver's own counters (`ethtool -S`) of a device in the calling thread's
// namespace. Those of veth are in drivers/net/veth.c.
func Counters(device string) (counters map[string]uint64, err error) {
	err = withEthtool(func(e *ethtool.Ethtool) error {
		counters, err = e.Stats(device)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the counters of %s: %w", device, err)
	}
	return counters, nil
}

// Features of net/ethtool/common.c.
const (
	featureGRO     = "rx-gro"
	featureGSO     = "tx-generic-segmentation"
	featureVLAN    = "tx-vlan-hw-insert"
	prefixChecksum = "tx-checksum-"
	prefixTSO      = "tx-tcp"
)

// GRO tells whether generic receive offload of a device of the calling thread's namespace is on.
// For veth that also means that it receives by NAPI.
func GRO(device string) (on bool, err error) {
	err = withEthtool(func(e *ethtool.Ethtool) error {
		features, err := e.Features(device)
		on = features[featureGRO]
		return err
	})
	if err != nil {
		return false, fmt.Errorf("asking %s for its receive offload: %w", device, err)
	}
	return on, nil
}

// SetGRO turns generic receive offload of a device of the calling thread's namespace on or off.
func SetGRO(device string, on bool) error {
	err := withEthtool(func(e *ethtool.Ethtool) error {
		return e.Change(device, map[string]bool{featureGRO: on})
	})
	if err != nil {
		return fmt.Errorf("%s: turning GRO %s: %w", device,
			map[bool]string{true: "on", false: "off"}[on], err)
	}
	return nil
}

// sendPlain turns off what a device leaves to hardware when it sends: checksums, segmentation, and
// VLAN tags that lie in a packet's metadata only, where XDP does not see them.
func sendPlain(device string) error {
	err := withEthtool(func(e *ethtool.Ethtool) error {
		names, err := e.FeatureNames(device)
		if err != nil {
			return err
		}
		off := map[string]bool{}
		for name := range names {
			if name == featureGSO || name == featureVLAN ||
				strings.HasPrefix(name, prefixChecksum) || strings.HasPrefix(name, prefixTSO) {
				off[name] = false
			}
		}
		return e.Change(device, off)
	})
	if err != nil {
		return fmt.Errorf("%s: turning offloads off: %w", device, err)
	}
	return nil
}
