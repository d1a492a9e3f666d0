package live

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/kernel"
	"levee/internal/packet"
)

// Modes are the hooks of the program: behind whatever judges packets at ingress, or at XDP, where
// nothing else may be.
const (
	TCX = "tcx"
	XDP = "xdp"
)

// Monitor follows the streams that come to an interface, until it is closed or its process ends.
type Monitor struct {
	*maps
	link link.Link
	// Mode is the program's hook: tcx, xdp-native or xdp-generic.
	Mode string
	// Behind names the filter that packets come through first, and may be dropped by; "" is none.
	Behind string
}

// Open begins to follow streams. The mode is one of Modes, or "" for TCX, and XDP where the kernel
// has no TCX. Errors of the machine match kernel.ErrRefused.
func Open(dev, mode string, o Options) (*Monitor, error) {
	if o.Discard && mode != XDP {
		return nil, errors.New("only at XDP can packets end: add --mode xdp")
	}
	d, err := attach.FindDevice(dev)
	if err != nil {
		return nil, err
	}
	if err := attach.RefuseLayer(d); err != nil {
		return nil, err
	}
	noTCX := error(nil)
	if mode == "" {
		mode = TCX
		if noTCX = kernel.TCX.Check(); errors.Is(noTCX, ebpf.ErrNotSupported) {
			mode = XDP
		}
	}
	if mode == XDP && d.XDP != 0 {
		what := "use --mode tcx, which is behind it"
		if noTCX != nil {
			what = "and " + noTCX.Error()
		}
		return nil, kernel.RefuseAs(unix.EBUSY, "%s already runs the XDP program %s: %s", dev,
			attach.ProgramName(d.XDP), what)
	}
	m, err := load(&o, mode == XDP, d.Link != packet.L3)
	if err != nil {
		return nil, err
	}
	out := &Monitor{maps: m, Mode: mode}
	if err := out.attach(d); err != nil {
		m.Collection.Close()
		return nil, err
	}
	return out, nil
}

func (m *Monitor) attach(d *attach.Device) (err error) {
	if m.Mode == TCX {
		m.link, err = link.AttachTCX(link.TCXOptions{Interface: d.Index, Program: m.program,
			Attach: ebpf.AttachTCXIngress, Anchor: link.Tail()})
		if err != nil {
			return kernel.Refuse(err, "attach the monitor to %s", d.Name)
		}
		var front []string
		if d.XDP != 0 {
			front = append(front, "the XDP program "+attach.ProgramName(d.XDP))
		}
		if ids, err := attach.TcxProgramsAt(d.Index, ebpf.AttachTCXIngress); err == nil {
			for _, id := range ids[:max(0, len(ids)-1)] {
				front = append(front, "the tcx program "+attach.ProgramName(id))
			}
		}
		m.Behind = strings.Join(front, " and ")
		return nil
	}
	var native error
	for _, how := range []struct {
		mode  string
		flags link.XDPAttachFlags
	}{{"xdp-native", link.XDPDriverMode}, {"xdp-generic", link.XDPGenericMode}} {
		m.link, err = link.AttachXDP(link.XDPOptions{Program: m.program, Interface: d.Index,
			Flags: how.flags})
		if err == nil {
			m.Mode = how.mode
			return nil
		}
		if native == nil {
			native = err
		}
	}
	if errors.Is(native, unix.EBUSY) {
		return kernel.Refuse(native, "%s has got another XDP program meanwhile: use --mode tcx, "+
			"which is behind it", d.Name)
	}
	return kernel.Refuse(native, "attach the monitor to %s at XDP", d.Name)
}

// Here says whether the program still is on its interface.
func (m *Monitor) Here() error {
	info, err := m.link.Info()
	if err != nil {
		return fmt.Errorf("ask the kernel about the monitor: %w", err)
	}
	index := uint32(0)
	if x := info.XDP(); x != nil {
		index = x.Ifindex
	}
	if x := info.TCX(); x != nil {
		index = x.Ifindex
	}
	if index == 0 {
		return errors.New("the interface is gone")
	}
	return nil
}

// Close takes the program away.
func (m *Monitor) Close() error {
	err := m.link.Close()
	m.Collection.Close()
	return err
}

// Now returns the clock that the times of streams are of.
func Now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // every Linux has it
	return time.Duration(t.Nano())
}
