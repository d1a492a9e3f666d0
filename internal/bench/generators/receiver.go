package generators

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/link"

	"levee/internal/lab"
)

// receiver is the receiving program on the server's device.
type receiver struct {
	objs receiverObjects
	link link.Link
	host *lab.Host
	name string
}

// receiverOptions say what the receiver notes besides counts; both cost it time.
type receiverOptions struct {
	stamp       bool
	base, count uint32 // sources that are told apart: count IPv4 addresses from base on
}

func newReceiver(l *lab.Lab, o receiverOptions) (*receiver, error) {
	spec, err := loadReceiver()
	if err != nil {
		return nil, err
	}
	var vars receiverVariableSpecs
	if err := spec.Assign(&vars); err != nil {
		return nil, err
	}
	stamp := uint32(0)
	if o.stamp {
		stamp = 1
	}
	if err := errors.Join(vars.Stamp.Set(stamp), vars.SourceBase.Set(o.base),
		vars.SourceCount.Set(o.count)); err != nil {
		return nil, fmt.Errorf("preparing the receiver: %w", err)
	}
	spec.Maps["sources"].MaxEntries = o.count/64 + 1
	r := &receiver{host: l.Host(lab.Server)}
	d := r.host.Devices[0]
	r.name = d.Name
	if err := spec.LoadAndAssign(&r.objs, nil); err != nil {
		return nil, fmt.Errorf("loading the receiver: %w", err)
	}
	err = r.host.Do(func() (err error) {
		r.link, err = link.AttachXDP(link.XDPOptions{Program: r.objs.Receiver, Interface: d.Index,
			Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		r.objs.Close()
		return nil, fmt.Errorf("attaching the receiver: %w", err)
	}
	return r, nil
}

func (r *receiver) close() error { return errors.Join(r.link.Close(), r.objs.Close()) }

func (r *receiver) read() (receiverSeen, error) {
	var v receiverSeen
	if err := r.objs.Seen.Get(&v); err != nil {
		return v, fmt.Errorf("reading the receiver: %w", err)
	}
	return v, nil
}

// refused returns how many packets found no room in the receiver's ring.
func refused(l *lab.Lab) (n uint64, err error) {
	world := l.Host(lab.World)
	err = world.Do(func() error {
		n, err = lab.SentButDropped(world.Devices[0].Name)
		return err
	})
	return n, err
}
