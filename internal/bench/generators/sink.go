package generators

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"levee/internal/lab"
)

// sink is the receiving program on the server's device.
type sink struct {
	objs sinkObjects
	link link.Link
	host *lab.Host
	name string
}

// sinkOptions say what the receiver notes besides counts; both cost it time.
type sinkOptions struct {
	stamp       bool
	base, count uint32 // sources that are told apart: count IPv4 addresses from base on
}

func newSink(l *lab.Lab, o sinkOptions) (*sink, error) {
	spec, err := loadSink()
	if err != nil {
		return nil, err
	}
	var vars sinkVariableSpecs
	if err := spec.Assign(&vars); err != nil {
		return nil, err
	}
	stamp := uint32(0)
	if o.stamp {
		stamp = 1
	}
	if err := errors.Join(vars.Stamp.Set(stamp), vars.SourceBase.Set(o.base), vars.SourceCount.Set(o.count)); err != nil {
		return nil, fmt.Errorf("preparing the receiver: %w", err)
	}
	spec.Maps["sources"].MaxEntries = o.count/64 + 1
	s := &sink{host: l.Host(lab.Server)}
	d := s.host.Devices[0]
	s.name = d.Name
	if err := spec.LoadAndAssign(&s.objs, nil); err != nil {
		return nil, fmt.Errorf("loading the receiver: %w", err)
	}
	err = s.host.Do(func() (err error) {
		s.link, err = link.AttachXDP(link.XDPOptions{Program: s.objs.Sink, Interface: d.Index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		s.objs.Close()
		return nil, fmt.Errorf("attaching the receiver: %w", err)
	}
	return s, nil
}

func (s *sink) close() error { return errors.Join(s.link.Close(), s.objs.Close()) }

func (s *sink) read() (sinkSink, error) {
	var v sinkSink
	if err := s.objs.Seen.Get(&v); err != nil {
		return v, fmt.Errorf("reading the receiver: %w", err)
	}
	return v, nil
}

// refused is how many packets the receiver's ring had no room for, as the sending device counts them; redirected frames are
// among them (veth_get_stats64 of drivers/net/veth.c).
func refused(l *lab.Lab) (n uint64, err error) {
	world := l.Host(lab.World)
	name := world.Devices[0].Name
	err = world.Do(func() error {
		dev, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("reading the counters of %s: %w", name, err)
		}
		n = dev.Attrs().Statistics.TxDropped
		return nil
	})
	return n, err
}
