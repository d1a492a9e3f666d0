package doctor

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"levee/internal/host/card"
	"levee/internal/host/linklayer"
	"levee/internal/host/lost"
)

// ErrNoDevice is returned for an interface that is not in this network namespace.
var ErrNoDevice = errors.New("no such interface in this network namespace")

// ReadDevice reads an interface of the calling thread's network namespace. It fails only if there
// is none.
func ReadDevice(name string) (*Device, error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, fmt.Errorf("read interface %q: %w", name, ErrNoDevice)
	}
	if err != nil {
		return nil, fmt.Errorf("read interface %q: %w", name, err)
	}
	a := link.Attrs()
	d := &Device{
		Name: a.Name, Index: a.Index, MTU: a.MTU, Up: a.OperState == netlink.OperUp,
		GROMaxSize: int(a.GROMaxSize), NUMANode: -1, Driver: link.Type(),
	}
	if not := (*linklayer.NotEthernet)(nil); errors.As(linklayer.Ethernet(link), &not) {
		d.NotEthernet = not.What()
	}
	if _, err := linklayer.Of(link); err != nil {
		d.Unjudged = err.Error()
	}
	if x := a.Xdp; x != nil && x.Attached {
		d.Program = &Program{ID: x.ProgId, Generic: x.AttachMode == nl.XDP_ATTACHED_SKB}
	}
	d.XDP, d.Card = xdpFeatures(a.Index), card.Read(a.Name)
	d.askDriver()
	if d.Lost, err = lost.Read(a.Name); err != nil {
		return nil, err
	}
	tree("").sysfs(d)
	return d, nil
}

// askDriver fills in what ethtool tells. Drivers leave out what they do not have.
func (d *Device) askDriver() {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return
	}
	defer e.Close()
	if i, err := e.DriverInfo(d.Name); err == nil {
		d.Driver, d.DriverVersion, d.Bus = i.Driver, i.Version, i.BusInfo
	}
	if c, err := e.GetChannels(d.Name); err == nil {
		d.Channels = &Channels{
			RX: int(c.RxCount), TX: int(c.TxCount), Combined: int(c.CombinedCount),
			MaxRX: int(c.MaxRx), MaxTX: int(c.MaxTx), MaxCombined: int(c.MaxCombined),
		}
	}
	if r, err := e.GetRing(d.Name); err == nil && r.RxMaxPending > 0 {
		d.Ring = &Ring{RX: int(r.RxPending), MaxRX: int(r.RxMaxPending)}
	}
	if c, err := e.GetCoalesce(d.Name); err == nil {
		d.Coalesce = &Coalesce{AdaptiveRX: c.UseAdaptiveRxCoalesce != 0,
			RXMicros: int(c.RxCoalesceUsecs)}
	}
	if p, err := e.GetPause(d.Name); err == nil {
		d.Pause = &Pause{RX: p.RxPause != 0, TX: p.TxPause != 0}
	}
	d.Spread = spread(e, d.Name)
	if f, err := e.Features(d.Name); err == nil {
		d.Features = f
	}
	if s, err := e.CmdGetMapped(d.Name); err == nil {
		if v := s["speed"]; v > 0 && v < 1<<31 { // SPEED_UNKNOWN is ~0
			d.SpeedMbps = int(v)
		}
	}
}

// Of include/uapi/linux/netdev.h.
const (
	cmdDevGet       = 1
	attrIfindex     = 1
	attrXDPFeatures = 3
	xdpBasic        = 1 << 0
	xdpRXSG         = 1 << 5
)

// genlHeader is struct genlmsghdr: command, version, and two bytes that must be zero. The library's
// own type has only the first two and sends what lies behind it in memory.
type genlHeader [nl.SizeofGenlmsg]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }

// xdpFeatures asks the generic netlink family "netdev"; nil before Linux 6.3.
func xdpFeatures(index int) *XDPFeatures {
	family, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		return nil
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	req.AddData(genlHeader{cmdDevGet, 1})
	req.AddData(nl.NewRtAttr(attrIfindex, nl.Uint32Attr(uint32(index))))
	replies, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil || len(replies) == 0 || len(replies[0]) < nl.SizeofGenlmsg {
		return nil
	}
	attrs, err := nl.ParseRouteAttr(replies[0][nl.SizeofGenlmsg:])
	if err != nil {
		return nil
	}
	for _, a := range attrs {
		if a.Attr.Type == attrXDPFeatures && len(a.Value) >= 8 {
			v := binary.NativeEndian.Uint64(a.Value)
			return &XDPFeatures{Basic: v&xdpBasic != 0, Fragments: v&xdpRXSG != 0}
		}
	}
	return nil
}

// sysfs fills in what /sys and /proc/irq tell.
func (t tree) sysfs(d *Device) {
	base := "/sys/class/net/" + d.Name
	d.Threaded = t.line(base + "/threaded")
	if n, ok := t.number(base + "/device/numa_node"); ok {
		d.NUMANode = n
		d.NodeCPUs = cpuList(t.line(fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", n)))
	}
	for _, f := range t.glob(base + "/queues/rx-*/rps_cpus") {
		if mask := t.line(f); strings.Trim(mask, "0,") != "" {
			d.RPS = append(d.RPS, filepath.Base(filepath.Dir(f))+" "+mask)
		}
	}
	irqs := t.glob(base + "/device/msi_irqs/*")
	if device, err := filepath.EvalSymlinks(t.path(base + "/device")); err == nil &&
		len(irqs) == 0 {
		// A virtio device's interrupts are those of the PCI device that it stands on.
		irqs = t.glob(strings.TrimPrefix(filepath.Dir(device), string(t)) + "/msi_irqs/*")
	}
	for _, f := range irqs {
		n, err := strconv.Atoi(filepath.Base(f))
		if err != nil {
			continue
		}
		irq := IRQ{Number: n, CPUs: cpuList(t.line(fmt.Sprintf("/proc/irq/%d/smp_affinity_list",
			n)))}
		entries, err := os.ReadDir(t.path(fmt.Sprintf("/proc/irq/%d", n)))
		if err != nil {
			continue // it has just gone
		}
		for _, e := range entries {
			if e.IsDir() {
				irq.Name = e.Name()
			}
		}
		if strings.HasSuffix(irq.Name, "-config") {
			continue // carries no packets
		}
		d.IRQs = append(d.IRQs, irq)
	}
	slices.SortFunc(d.IRQs, func(a, b IRQ) int { return cmp.Compare(a.Number, b.Number) })
}

// cpuList reads "0-3,8"; what is no such list is empty.
func cpuList(s string) (out []int) {
	const most = 1 << 14 // CPUs; more than any kernel is built for
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			return nil
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(to); err != nil {
				return nil
			}
		}
		for ; a <= b && a >= 0 && len(out) < most; a++ {
			out = append(out, a)
		}
	}
	return out
}
