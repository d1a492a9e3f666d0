package lab

import (
	"errors"
	"fmt"
)

// ErrForeign says that a device belongs to no lab.
var ErrForeign = errors.New("device belongs to no lab that levee made")

// Owned returns the lab device called name in the calling thread's network namespace, so that
// traffic is only sent where it can do no harm. It returns ErrForeign unless a living lab has
// this very namespace, by inode, and made the device in it.
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
	return nil, fmt.Errorf("%s: %w", name, ErrForeign)
}
