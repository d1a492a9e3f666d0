package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"levee/internal/host/card"
	"levee/internal/quantity"
)

// device judges the interface.
func device(d *Device, h *Host) []Finding {
	out := []Finding{identity(d), d.linkLayer()}
	if d.Unjudged == "" { // what follows is about policies on the device
		out = append(out, attaching(d), d.program(), d.judging(), d.mtu(h),
			d.merging("lro", "rx-lro", "lro"), d.merging("gro_hw", "rx-gro-hw", "rx-gro-hw"),
			d.tags(), d.bigTCP())
	}
	out = append(out, d.queues(h), d.answers(h), d.affinity(h), d.node(), d.ring(), d.coalesce(),
		d.pause(), d.steering(), d.discards(), d.flowHash(), d.hashKey(), d.indirection(),
		d.threads())
	for i := range out {
		out[i].About = "device"
	}
	return out
}

func identity(d *Device) Finding {
	v := d.Driver
	if d.DriverVersion != "" {
		v += " " + d.DriverVersion
	}
	switch {
	case d.SpeedMbps >= 1000:
		v += fmt.Sprintf(", %g Gbit/s", float64(d.SpeedMbps)/1000)
	case d.SpeedMbps > 0:
		v += fmt.Sprintf(", %d Mbit/s", d.SpeedMbps)
	}
	f := Finding{Name: "driver", State: OK, Value: v + ", native XDP"}
	switch {
	case d.Unjudged != "":
		f.Value = v
	case d.NotEthernet != "":
		f.Value = v + ", no native XDP: a policy goes to tc ingress"
	case d.notNative() != "":
		f.State, f.Value, f.Sure = Costs, v+", native XDP that a policy does not go to", Documents
		f.Cost = d.notNative() + ": a policy goes to tc ingress instead, where a packet costs " +
			"several times as much"
		f.Where = "docs/reference/devices.md"
	case d.XDP == nil:
		f.State, f.Value = Unknown, v
		f.Cost = "the kernel does not say whether the driver has native XDP (it does from 6.3 " +
			"on); `levee up` tries, and says what it took"
	case !d.XDP.Basic:
		f.State, f.Value = Costs, v+", no native XDP"
		f.Cost,
			f.Sure = "policies run at tc ingress instead, behind the allocation of a socket "+
			"buffer: "+
			"a packet costs several times as much", Documents
		f.Where = "Documentation/netlink/specs/netdev.yaml, xdp-features"
	case d.XDP.Fragments:
		f.Value += " with fragments"
	}
	return f
}

// notNative says why `levee up` takes no native XDP though the driver has it, "" if it does.
func (d *Device) notNative() string {
	if d.Card == nil {
		return ""
	}
	return cmp.Or(d.Card.Refuses(), d.Card.Unasked(), d.Card.Forgets())
}

// toTC reports whether a policy goes to tc ingress in any case.
func (d *Device) toTC() bool {
	return d.XDP != nil && !d.XDP.Basic || d.NotEthernet != "" || d.notNative() != ""
}

func (d *Device) linkLayer() Finding {
	switch {
	case d.NotEthernet == "":
		return Finding{Name: "link_layer", State: OK, Value: "Ethernet"}
	case d.Unjudged == "":
		return Finding{Name: "link_layer", State: OK,
			Value: d.NotEthernet + ": packets begin with IP, and policies are compiled for that"}
	}
	f := Finding{
		Name: "link_layer", State: Breaks, Value: d.NotEthernet, Sure: Documents,
		Cost: "`levee up` refuses the device: " + d.Unjudged,
		Mend: "levee up FILE --dev IF   # IF: the interface that carries the packets; " +
			"here nftables filters",
		Where: "ARPHRD_* in linux/if_arp.h",
	}
	if d.Program != nil && d.Program.Policy != "" {
		f.Cost = fmt.Sprintf("the verdicts of %s are wrong: %s", d.Program.Policy, d.Unjudged)
		f.Mend = "levee down --dev " + d.Name
	}
	return f
}

func attaching(d *Device) Finding {
	f := Finding{Name: "attach", State: OK, Value: "nothing is interrupted"}
	known, ok := card.Known(d.Driver)
	f.Where = known.Source
	switch {
	case d.Program == nil && d.toTC(), d.XDP != nil && !d.XDP.Basic, d.NotEthernet != "":
		f.Value = "nothing is interrupted: a policy goes to tc ingress"
		f.Where = ""
	case d.Program != nil && !d.Program.Generic:
		f.Value = "nothing is interrupted: the device has a program already"
	case !ok || known.Source == "":
		f.State, f.Value = Unknown, "not known for this driver"
		f.Cost, f.Sure = "some drivers restart the device when the first program comes: attach "+
			"it for the first time when a pause does no harm", Expected
	case known.Bounces:
		f.State, f.Value = Note, "the link goes down and comes back"
		f.Cost, f.Sure = known.Attach+"; replacing a policy by another does not", Documents
		f.Mend = fmt.Sprintf("levee up FILE --dev %s --confirm 60s   # from a console, or when a "+
			"pause does no harm", d.Name)
	case known.Attach != "":
		f.State, f.Value = Note, "a short pause"
		f.Cost, f.Sure = known.Attach+"; replacing a policy by another does nothing of this",
			Documents
	}
	return f
}

func (d *Device) program() Finding {
	if d.Program == nil {
		return Finding{Name: "program", State: OK, Value: "no XDP program"}
	}
	f := Finding{Name: "program", State: Note, Value: fmt.Sprintf("XDP program %d", d.Program.ID),
		Sure: Documents}
	if d.Program.Policy == "" && d.Hidden {
		f.State, f.Value, f.Sure = Unknown, f.Value+
			": root and the group levee may look whether it is levee's", ""
	} else if d.Program.Policy != "" {
		f.State, f.Value, f.Sure = OK, fmt.Sprintf("levee's, for %s (program %d)", d.Program.Policy,
			d.Program.ID), ""
	} else {
		f.Cost = "it is not one that levee knows of: `levee up` leaves it alone and stops"
		f.Mend = "bpftool prog show id " + fmt.Sprint(d.Program.ID)
	}
	if d.Program.Generic {
		f.State, f.Value, f.Sure = Costs, f.Value+", generic", Documents
		f.Cost = strings.TrimSuffix("generic XDP runs behind the allocation of a socket buffer: "+
			"a packet costs several times as much; "+f.Cost, "; ")
		if d.Program.Policy != "" {
			f.Mend = "levee status --dev " + d.Name + "   # says why it is at this hook"
		}
	}
	return f
}

// judging judges whether packets come to the policy: that its program is attached does not say so.
func (d *Device) judging() Finding {
	f := Finding{Name: "judging", State: OK, Value: "no policy"}
	j := d.Judging
	if j == nil && d.Hidden {
		f.State, f.Value = Unknown, "root and the group levee may look"
	}
	if j == nil {
		return f
	}
	f.Mend = "levee up FILE --dev " + d.Name
	switch {
	case j.Wrong != "":
		f.State, f.Value, f.Sure = Breaks, "packets are not judged as the policy says", Counted
		f.Cost = j.Wrong
	case j.Seen:
		f.Value, f.Mend = "packets come to the policy", ""
	default:
		f.State, f.Value, f.Mend = Note, "not yet seen", ""
		f.Cost = "no packet has come since the policy is there"
	}
	return f
}

// singleBuffer is about the largest MTU whose frames fit one page beside XDP's headroom of 256
// bytes and the kernel's own data of 320.
func singleBuffer(page int) int { return page - 256 - 320 - 22 }

func (d *Device) mtu(h *Host) Finding {
	f := Finding{Name: "mtu", State: OK, Value: fmt.Sprint(d.MTU)}
	limit, about := singleBuffer(h.Page), "about "
	known, _ := card.Known(d.Driver)
	if known.MTU > 0 && h.Page == 4096 {
		limit, about = known.MTU, ""
		f.Where = card.MTUSource
	}
	if p := d.Program; p != nil && !p.Generic && d.Card != nil && d.Card.Physical {
		raised, _ := d.Card.RaisedMTU(limit)
		f.State, f.Sure = Note, Documents
		f.Cost = fmt.Sprintf("above %s%d the driver refuses a larger one while the program is "+
			"attached, with no more than \"Invalid argument\", or packets are lost, unless the "+
			"program takes fragments", about, raised)
		f.Mend = fmt.Sprintf("levee down --dev %s; ip link set dev %[1]s mtu MTU; "+
			"levee up FILE --dev %[1]s", d.Name)
		return f
	}
	if d.MTU <= limit || d.toTC() || d.XDP != nil && d.XDP.Fragments {
		return f
	}
	f.State, f.Sure = Breaks, Documents
	f.Value += fmt.Sprintf(", native XDP takes %s%d", about, limit)
	f.Cost = "the driver takes no program at this MTU: a policy runs at tc ingress instead, " +
		"and a " +
		"packet costs several times as much"
	f.Mend = fmt.Sprintf("ip link set dev %s mtu %d", d.Name, min(limit, 1500))
	if d.XDP == nil {
		f.State, f.Sure = Note, Expected
		f.Cost = "if the driver takes no frames of more than one buffer, " + f.Cost
	}
	return f
}

// merging judges an offload of the card that makes one frame of several; feature is the kernel's
// name of it, flag that of ethtool -K.
func (d *Device) merging(name, feature, flag string) Finding {
	switch {
	case d.Features == nil:
		return Finding{Name: name, State: Unknown, Value: "the driver does not tell"}
	case !d.Features[feature]:
		return Finding{Name: name, State: OK, Value: "off"}
	case d.Card != nil && d.Card.Offloads[feature].Fixed:
		return Finding{Name: name, State: Note, Value: "on, and this machine cannot change it",
			Sure: Documents, Cost: "`levee up` takes no generic XDP, which would see merged " +
				"packets; " +
				"native XDP only where the driver hands it frames", Where: "net/core/dev.c, " +
				"generic_xdp_install"}
	}
	f := Finding{
		Name: name, State: Note, Value: "on", Sure: Documents,
		Cost: "merged frames do not go through native XDP: some drivers refuse a program while " +
			"it is on, others turn it off when one comes",
		Mend:  fmt.Sprintf("ethtool -K %s %s off", d.Name, flag),
		Where: "the drivers' ndo_bpf; net/core/dev.c, generic_xdp_install",
	}
	if d.Driver == "hv_netvsc" && name == "lro" {
		f.State, f.Cost = Breaks, "the driver takes no native program while it is on"
		f.Where = "Documentation/networking/device_drivers/ethernet/microsoft/netvsc.rst"
	}
	return f
}

func (d *Device) tags() Finding {
	var devs, mend []string
	if d.Card != nil {
		devs, mend = d.Card.TakesTagsOff()
	}
	return unless(len(devs) == 0, "tags stay in the frame", Finding{
		Name: "vlan", State: Note, Value: "tags are taken off by " + strings.Join(devs, ", "),
		Cost: "the outer VLAN tag is not in the frame when XDP sees it: `levee up` takes tc " +
			"ingress for a policy that asks for `vlan`, `inner-vlan` or `untagged`",
		Sure: Documents, Mend: strings.Join(mend, "; "),
		Where: "https://docs.ebpf.io/linux/program-type/BPF_PROG_TYPE_XDP/ (VLAN offload)",
	})
}

func (d *Device) bigTCP() Finding {
	const most = 1 << 16
	return unless(d.GROMaxSize <= most, "off", Finding{
		Name: "big_tcp", State: Note, Value: fmt.Sprintf("frames of up to %d bytes", d.GROMaxSize),
		Cost: "IPv4 frames of more than 64 KiB have no length in their header; a policy at TCX " +
			"drops them as malformed (XDP runs before frames are merged)",
		Sure: Documents, Mend: fmt.Sprintf("ip link set dev %s gro_max_size %d", d.Name, most),
		Where: "net/core/gro.c, skb_gro_receive",
	})
}

func (d *Device) queues(h *Host) Finding {
	f := Finding{Name: "queues", State: OK}
	if d.Channels == nil {
		f.State, f.Value = Unknown, "the driver does not tell"
		return f
	}
	c := d.Channels
	have, most, word := c.Combined, c.MaxCombined, "combined"
	if most == 0 {
		have, most, word = c.RX, c.MaxRX, "rx"
	}
	f.Value = fmt.Sprintf("%d of %d, %s", have, most, quantity.Plural(h.CPUs, "CPU"))
	want := min(most, h.CPUs)
	if have >= want {
		return f
	}
	f.State, f.Sure = Costs, Expected
	f.Cost = fmt.Sprintf("a flood is received by %d of %d CPUs", have, h.CPUs)
	f.Mend = fmt.Sprintf("ethtool -L %s %s %d", d.Name, word, want)
	if known, _ := card.Known(d.Driver); d.Program != nil && !d.Program.Generic &&
		known.Freezes != "" {
		f.Cost += fmt.Sprintf("; the driver refuses `%s` while a native program is attached",
			known.Freezes)
		f.Mend = fmt.Sprintf("levee down --dev %s; %s; levee up FILE --dev %[1]s", d.Name, f.Mend)
	}
	return f
}

// answers judges whether each CPU has a queue of its own for packets that XDP sends back, which
// virtio_net wants beside those of the stack (drivers/net/virtio_net.c, virtnet_xdp_set).
func (d *Device) answers(h *Host) Finding {
	f := Finding{Name: "xdp_tx", State: OK, Value: "answers do not wait for one another"}
	if d.Driver != "virtio_net" || d.Channels == nil || d.toTC() ||
		d.Channels.Combined+h.CPUs <= d.Channels.MaxCombined {
		return f
	}
	f.State, f.Sure = Note, Documents
	f.Value = fmt.Sprintf("%s and %s, of at most %d queues",
		quantity.Plural(d.Channels.Combined, "queue"), quantity.Plural(h.CPUs, "CPU"),
		d.Channels.MaxCombined)
	f.Cost = fmt.Sprintf("answers of a `cookie` take a lock of a queue that CPUs share: the "+
		"kernel tells of a \"slower locked tx mode\"; it wants %d queues, which the host of "+
		"this machine gives (qemu: queues=, vectors=)", d.Channels.Combined+h.CPUs)
	f.Where = "drivers/net/virtio_net.c, virtnet_xdp_set"
	return f
}

func (d *Device) affinity(h *Host) Finding {
	f := Finding{Name: "irq_affinity", State: OK, Value: "no interrupts of its own"}
	if len(d.IRQs) == 0 {
		if d.Card != nil && d.Card.Physical { // they may be of another kind than MSI
			f.State, f.Value = Unknown, "the card does not tell: grep "+d.Name+" /proc/interrupts"
		}
		return f
	}
	cpus := map[int]bool{}
	for _, irq := range d.IRQs {
		for _, c := range irq.CPUs {
			cpus[c] = true
		}
	}
	f.Value = quantity.Plural(len(d.IRQs), "interrupt") + " on " +
		quantity.Plural(len(cpus), "CPU")
	if len(cpus) >= min(len(d.IRQs), h.CPUs) {
		return f
	}
	f.State, f.Sure = Costs, Expected
	f.Cost = "several queues share a CPU while others have none"
	f.Mend = fmt.Sprintf("echo CPU > /proc/irq/%d/smp_affinity_list   # one CPU for each of the %d",
		d.IRQs[0].Number, len(d.IRQs))
	return f
}

func (d *Device) node() Finding {
	if d.NUMANode < 0 || len(d.NodeCPUs) == 0 {
		return Finding{Name: "numa", State: OK, Value: "one node, or not told"}
	}
	f := Finding{Name: "numa", State: OK, Value: fmt.Sprintf("node %d", d.NUMANode)}
	far := 0
	for _, irq := range d.IRQs {
		if len(irq.CPUs) > 0 && !slices.ContainsFunc(irq.CPUs,
			func(c int) bool { return slices.Contains(d.NodeCPUs, c) }) {
			far++
		}
	}
	if far > 0 {
		f.State, f.Sure = Costs, Expected
		f.Value += fmt.Sprintf(", %d interrupts on other nodes", far)
		f.Cost = "each packet's first read goes to another node's memory"
		f.Mend = "echo CPU > /proc/irq/N/smp_affinity_list   # a CPU of " + list(d.NodeCPUs)
	}
	return f
}

func list(cpus []int) string {
	var b strings.Builder
	for i := 0; i < len(cpus); i++ {
		from := i
		for i+1 < len(cpus) && cpus[i+1] == cpus[i]+1 {
			i++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, cpus[from])
		if i > from {
			fmt.Fprintf(&b, "-%d", cpus[i])
		}
	}
	return b.String()
}

// smallRing is a ring that 10 Gbit/s of the shortest frames fill in 34 microseconds.
const smallRing = 512

func (d *Device) ring() Finding {
	f := Finding{Name: "ring", State: OK}
	if d.Ring == nil {
		f.State, f.Value = Unknown, "the driver does not tell"
		return f
	}
	f.Value = fmt.Sprintf("%d of %d", d.Ring.RX, d.Ring.MaxRX)
	if d.Ring.RX >= smallRing || d.Ring.RX >= d.Ring.MaxRX {
		return f
	}
	f.State, f.Sure = Costs, Expected
	f.Cost = fmt.Sprintf("a burst of more than %d packets is lost while the CPU is late; very "+
		"large rings cost cache instead", d.Ring.RX)
	f.Mend = fmt.Sprintf("ethtool -G %s rx %d", d.Name, min(d.Ring.MaxRX, 2*smallRing))
	return f
}

func (d *Device) coalesce() Finding {
	const long = 100 // microseconds
	f := Finding{Name: "coalescing", State: OK}
	c := d.Coalesce
	switch {
	case c == nil:
		f.State, f.Value = Unknown, "the driver does not tell"
	case c.AdaptiveRX:
		f.Value = "adaptive"
	case c.RXMicros > long:
		f.State, f.Value, f.Sure = Costs, fmt.Sprintf("%d us", c.RXMicros), Documents
		f.Cost = fmt.Sprintf("a packet may wait %d us for its interrupt", c.RXMicros)
		f.Mend = fmt.Sprintf("ethtool -C %s adaptive-rx on", d.Name)
	default:
		f.Value = fmt.Sprintf("%d us", c.RXMicros)
	}
	return f
}

func (d *Device) pause() Finding {
	f := Finding{Name: "flow_control", State: OK, Value: "off"}
	switch p := d.Pause; {
	case p == nil:
		f.State, f.Value = Unknown, "the driver does not tell"
	case p.RX || p.TX:
		f.State, f.Value, f.Sure = Costs, "on", Documents
		f.Cost = "under a flood the card asks the switch to wait, and the switch holds back, or " +
			"drops, everybody's packets; none of it is counted here"
		f.Mend = fmt.Sprintf("ethtool -A %s autoneg off rx off tx off", d.Name)
		f.Where = "IEEE 802.3 annex 31B"
	}
	return f
}

func (d *Device) steering() Finding {
	return unless(len(d.RPS) == 0, "off", Finding{
		Name: "rps", State: Note, Value: strings.Join(d.RPS, "; "),
		Cost: "packets that pass are handed to other CPUs, with an interrupt between them",
		Sure: Documents, Mend: fmt.Sprintf("echo 0 > /sys/class/net/%s/queues/rx-0/rps_cpus",
			d.Name),
		Where: "Documentation/networking/scaling.rst",
	})
}
