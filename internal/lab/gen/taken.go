package gen

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"levee/internal/lab"
)

// meter tells what a device takes of the frames that the calling thread redirects to it: a redirect
// succeeds also where the driver takes none.
type meter interface {
	// read is since the meter was made.
	read() (taken, error)
	// counts says who counts, "" for the device itself.
	counts() string
	close()
}

// taken are frames.
type taken struct {
	frames  uint64 // that the device took
	refused uint64 // that it had no room for
	why     string // it would take none
}

// newMeter takes the device's own counters where each frame is in them, as with veth, and the
// kernel's word about the driver elsewhere: cards count late, and what others send.
func newMeter(dev device) (meter, error) {
	m := &vethMeter{dev: dev.name}
	var ok bool
	var err error
	if m.before, ok, err = m.total(); ok || err != nil {
		return m, err
	}
	return newDriverMeter(dev)
}

// vethMeter reads the counters of drivers/net/veth.c, by queue.
type vethMeter struct {
	dev    string
	before taken
}

// total is false for a device that has no such counters.
func (m *vethMeter) total() (t taken, ok bool, err error) {
	counters, err := lab.Counters(m.dev)
	if errors.Is(err, unix.EOPNOTSUPP) { // no counters at all
		return t, false, nil
	}
	for name, n := range counters {
		if !strings.HasPrefix(name, "tx_queue_") {
			continue
		}
		switch {
		case strings.HasSuffix(name, "_xdp_xmit"):
			t.frames += n
			ok = true
		case strings.HasSuffix(name, "_xdp_xmit_errors"):
			t.refused += n
		}
	}
	return t, ok, err
}

func (m *vethMeter) read() (taken, error) {
	t, _, err := m.total()
	t.frames -= m.before.frames
	t.refused -= m.before.refused
	t.why = "its peer must receive by NAPI: `ethtool -K PEER gro on`, or an XDP program on it"
	return t, err
}

func (m *vethMeter) counts() string { return "" }

func (m *vethMeter) close() {}

// driverMeter counts what the kernel says of each batch that it hands to the driver.
type driverMeter struct {
	objs takenObjects
	link link.Link
}

func newDriverMeter(dev device) (m *driverMeter, err error) {
	spec, err := loadTaken()
	if err != nil {
		return nil, err
	}
	var vars takenVariableSpecs
	if err := spec.Assign(&vars); err != nil {
		return nil, err
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/pid", &ns); err != nil {
		return nil, fmt.Errorf("looking at the PID namespace: %w", err)
	}
	if err := vars.Meter.Set(takenMeter{PidnsDev: ns.Dev, PidnsIno: ns.Ino,
		Thread: uint32(unix.Gettid()), Ifindex: int32(dev.index)}); err != nil {
		return nil, err
	}
	m = &driverMeter{}
	defer func() {
		if err != nil {
			m.close()
			err = fmt.Errorf("counting what the driver takes: %w", err)
		}
	}()
	if err := spec.LoadAndAssign(&m.objs, nil); err != nil {
		return nil, err
	}
	m.link, err = link.AttachTracing(link.TracingOptions{Program: m.objs.DevmapXmit})
	return m, err
}

func (m *driverMeter) read() (taken, error) {
	var t takenTaken
	if err := m.objs.Taken.Get(&t); err != nil {
		return taken{}, fmt.Errorf("reading what the driver took: %w", err)
	}
	// The kernel hands nothing to a driver that says that it takes none.
	why := "its driver has no XDP, or only while an XDP program is on the card"
	if t.None > 0 {
		why = unix.Errno(-t.Why).Error() + ": some drivers take them only while an XDP program " +
			"is on the card"
	}
	return taken{t.Frames, t.Refused, why}, nil
}

func (m *driverMeter) counts() string { return "counted as the driver took them" }

func (m *driverMeter) close() {
	if m.link != nil {
		m.link.Close()
	}
	m.objs.Close()
}

// none returns the reason that a device took none of the frames that were redirected to it.
func (t *taken) none() error {
	return fmt.Errorf("the device takes no frames of XDP programs (%s)", t.why)
}

// into takes what the device took into the report of a run.
func (t *taken) into(r *Report) error {
	r.Refused = t.refused
	if lost := int64(r.Sent) - int64(t.frames+t.refused); lost > 0 {
		r.Errors = uint64(lost)
		r.Sent -= r.Errors
	}
	if r.Sent == 0 && r.Errors > 0 {
		return t.none()
	}
	return nil
}
