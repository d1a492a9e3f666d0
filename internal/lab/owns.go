package lab

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"levee/internal/kernel"
)

// ErrForeign says that a device belongs to no lab.
var ErrForeign = errors.New("device belongs to no lab that levee made")

// ErrNoDevice says that a network namespace has no such device, errNoNamespace that there is no
// such namespace. Both match kernel.ErrRefused.
var (
	ErrNoDevice    = kernel.Refuse(nil, "no device")
	errNoNamespace = kernel.Refuse(nil, "no network namespace")
)

// Owned returns the lab device called name in the calling thread's network namespace, so that
// traffic is only sent where it can do no harm. It returns ErrForeign unless a living lab has
// this very namespace, by inode, and made the device in it; ErrNoDevice if there is no such device.
func Owned(name string) (*Device, error) {
	ino, err := inode(threadNetns)
	if err != nil {
		return nil, fmt.Errorf("identifying the network namespace: %w", err)
	}
	recs, err := records()
	if err != nil {
		return nil, err
	}
	for _, r := range recs {
		if !r.alive() {
			continue
		}
		for _, h := range r.Hosts {
			if h.Inode != ino {
				continue
			}
			if d := h.Device(name); d != nil {
				return d, nil
			}
		}
	}
	if _, err := netlink.LinkByName(name); errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, fmt.Errorf("there is %w %q in this network namespace; `ip link` lists what "+
			"there is", ErrNoDevice, name)
	}
	return nil, fmt.Errorf("%s: %w", name, ErrForeign)
}
