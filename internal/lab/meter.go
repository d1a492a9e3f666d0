package lab

import (
	"errors"
	"fmt"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Meter reads what a device of a host counts, from any thread, as often as a measurement wants.
type Meter struct {
	device string
	driver *ethtool.Ethtool
	stack  *netlink.Handle
}

// Meter opens the counters of a device. Close gives its sockets back.
func (h *Host) Meter(device string) (m *Meter, err error) {
	m = &Meter{device: device}
	err = h.Do(func() error {
		if m.driver, err = ethtool.NewEthtool(); err != nil {
			return fmt.Errorf("opening a socket: %w", err)
		}
		if m.stack, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			m.driver.Close()
			return fmt.Errorf("opening a netlink socket: %w", err)
		}
		return nil
	})
	return m, err
}

// Close ends the meter.
func (m *Meter) Close() {
	m.driver.Close()
	m.stack.Close()
}

// Counters returns the counters of the driver, as Counters has them.
func (m *Meter) Counters() (map[string]uint64, error) {
	c, err := m.driver.Stats(m.device)
	if err != nil {
		return nil, fmt.Errorf("reading the counters of %s: %w", m.device, err)
	}
	return c, nil
}

// SentButDropped returns what SentButDropped says.
func (m *Meter) SentButDropped() (uint64, error) {
	link, err := m.stack.LinkByName(m.device)
	if err != nil {
		return 0, fmt.Errorf("reading the counters of %s: %w", m.device, err)
	}
	st := link.Attrs().Statistics
	if st == nil {
		return 0, errors.New("the kernel tells no counters of " + m.device)
	}
	return st.TxDropped, nil
}
