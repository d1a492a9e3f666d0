package flood

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/lab"
	"levee/internal/lab/contender"
)

// facts holds the conditions by which a window may be compared with others.
type facts struct {
	gro      bool
	threaded bool // NAPI thread exists and is pinned to the receiving core alone
	queues   int
	qdisc    string // of the sender
	// hook mode of the XDP program on the receiver: "none", "native", "generic", "offload"
	xdp           string
	packetSockets int // open in the lab or in this process's namespace
	tracked       int // conntrack entries of the receiver, and
	trackedMax    int // how many there may be
}

// broken lists what is wrong for a rung at a hook, which asks for conntrack or not. after is the
// state after the flood.
func (f facts) broken(hook contender.Hook, tracks, after bool) []string {
	var out []string
	say := func(bad bool, format string, args ...any) {
		if bad {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	say(!f.gro, "GRO of the receiver is off: veth does not receive by NAPI then")
	say(!f.threaded, "the receiver's NAPI is not in a thread pinned to its own core")
	say(f.queues != 1, "the receiver has %d queues, not one", f.queues)
	say(f.qdisc != noQdisc, "the sender has a qdisc (%s)", f.qdisc)
	want := "none"
	switch hook {
	case contender.XDP:
		want = "native"
	case contender.XDPGeneric:
		want = "generic"
	}
	say(f.xdp != want, "wrong hook mode: XDP on the receiver is %s, not %s", f.xdp, want)
	say(f.packetSockets > 0,
		"%d packet sockets are open (tcpdump?): each packet is copied for them", f.packetSockets)
	full := f.trackedMax > 0 && f.tracked >= f.trackedMax
	say(full, "the conntrack table is full (%d entries)", f.tracked)
	say(f.tracked > 0 && !full && !tracks,
		"conntrack follows the flood (%d entries): this rung does not ask for it", f.tracked)
	say(f.tracked == 0 && tracks && after,
		"conntrack does not follow the flood: it is not in the path")
	return out
}

// noQdisc is the name of the qdisc of a device without a queue.
const noQdisc = "noqueue"

// inspect looks at the lab while a defence is in place, whose own packet sockets do not count.
func (l *Lab) inspect(d contender.Defence) (facts, error) {
	f, err := l.look()
	if o, ok := d.(contender.Listener); ok {
		f.packetSockets -= o.PacketSockets()
	}
	return f, err
}

func (l *Lab) look() (facts, error) {
	var f facts
	err := l.Server.Do(func() (err error) {
		if f.gro, err = lab.GRO(l.device); err != nil {
			return err
		}
		link, err := netlink.LinkByName(l.device)
		if err != nil {
			return fmt.Errorf("looking at the receiver: %w", err)
		}
		if f.queues = link.Attrs().NumRxQueues; l.Wire != nil {
			// a card's number is the most that it can have
			f.queues = max(int(l.channels()), 1)
		}
		f.xdp = xdpMode(link.Attrs().Xdp)
		f.tracked, f.trackedMax = number("nf_conntrack_count"), number("nf_conntrack_max")
		f.packetSockets, err = lab.PacketSockets()
		return err
	})
	if err != nil {
		return f, err
	}
	f.threaded = pinnedTo(l.napi, l.ReceiverCPU)
	if l.wire != nil {
		// frames of the peer go past its qdisc
		f.qdisc = noQdisc
		n, err := l.wire.Peer.PacketSockets()
		f.packetSockets += n
		return f, err
	}
	err = l.World.Do(func() error {
		link, err := netlink.LinkByName(l.device)
		if err != nil {
			return fmt.Errorf("looking at the sender: %w", err)
		}
		qdiscs, err := netlink.QdiscList(link)
		if err != nil {
			return fmt.Errorf("listing the sender's qdiscs: %w", err)
		}
		f.qdisc = noQdisc
		for _, q := range qdiscs {
			f.qdisc = q.Type()
		}
		n, err := lab.PacketSockets()
		f.packetSockets += n
		return err
	})
	if err != nil {
		return f, err
	}
	n, err := lab.PacketSockets()
	f.packetSockets += n
	return f, err
}

// xdpMode names IFLA_XDP_ATTACHED (include/uapi/linux/if_link.h).
func xdpMode(x *netlink.LinkXdp) string {
	if x == nil || !x.Attached {
		return "none"
	}
	switch x.AttachMode {
	case 1:
		return "native"
	case 2:
		return "generic"
	case 3:
		return "offload"
	}
	return "mixed"
}

// number reads a sysctl of conntrack, 0 where there is none.
func number(name string) int {
	text, err := os.ReadFile("/proc/sys/net/netfilter/" + name)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// pinnedTo tells whether a thread exists and may run on that core only.
func pinnedTo(pid, cpu int) bool {
	var set unix.CPUSet
	return pid > 0 && unix.SchedGetaffinity(pid, &set) == nil && set.Count() == 1 && set.IsSet(cpu)
}
