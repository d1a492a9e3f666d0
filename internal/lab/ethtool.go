package lab

import (
	"errors"
	"fmt"
	"strings"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
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

// SendPlain turns off what a device leaves to hardware when it sends: checksums, segmentation, and
// VLAN tags that lie in a packet's metadata only, where XDP does not see them.
func SendPlain(device string) error {
	err := withEthtool(func(e *ethtool.Ethtool) error {
		now, err := changeable(e, device)
		if err != nil {
			return err
		}
		off := map[string]bool{}
		for name := range now {
			off[name] = false
		}
		delete(off, featureGRO)
		return e.Change(device, off)
	})
	if err != nil {
		return fmt.Errorf("%s: turning offloads off: %w", device, err)
	}
	return nil
}

// changeable returns the offloads that a lab sets, and whether they are on; without those that the
// driver does not let anybody change.
func changeable(e *ethtool.Ethtool, device string) (map[string]bool, error) {
	all, err := e.FeaturesWithState(device)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for name, s := range all {
		ours := name == featureGRO || name == featureGSO || name == featureVLAN ||
			strings.HasPrefix(name, prefixChecksum) || strings.HasPrefix(name, prefixTSO)
		if ours && s.Available && !s.NeverChanged {
			out[name] = s.Active
		}
	}
	return out, nil
}

// ownFeatures returns the offloads of a device that a lab sets, and whether they are on.
func ownFeatures(device string) (features map[string]bool, err error) {
	err = withEthtool(func(e *ethtool.Ethtool) error {
		features, err = changeable(e, device)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("asking %s for its offloads: %w", device, err)
	}
	return features, nil
}

// channels returns how many channels of a device both receive and send, 0 where it has none such.
func channels(device string) (n uint32, err error) {
	err = withEthtool(func(e *ethtool.Ethtool) error {
		c, err := e.GetChannels(device)
		n = c.CombinedCount
		return err
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("asking %s for its channels: %w", device, err)
	}
	return n, nil
}

func setChannels(device string, n uint32) error {
	err := withEthtool(func(e *ethtool.Ethtool) error {
		c, err := e.GetChannels(device)
		if err == nil {
			c.CombinedCount = n
			_, err = e.SetChannels(device, c)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("giving %s %d channels: %w", device, n, err)
	}
	return nil
}

// restore gives a device in the calling thread's namespace the settings back that it had.
func restore(d *Device, index int) error {
	// Before they are taken away, after which older kernels keep them, asleep.
	err := d.restoreThreads(index)
	if !d.Taken.Threaded { // while it receives by NAPI still, which for veth GRO decides
		err = errors.Join(err, threadNAPI(d.Name, false))
	}
	off := withEthtool(func(e *ethtool.Ethtool) error {
		return e.Change(d.Name, d.Taken.Features)
	})
	if off != nil {
		err = errors.Join(err, fmt.Errorf("%s: turning offloads back: %w", d.Name, off))
	}
	if n := d.Taken.Channels; n > 1 {
		err = errors.Join(err, setChannels(d.Name, n))
	}
	return err
}
