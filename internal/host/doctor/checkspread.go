package doctor

import (
	"fmt"
	"strings"

	"levee/internal/quantity"
)

// discards is about what the card lost before anything of this machine saw it.
func (d *Device) discards() Finding {
	if d.Lost == nil || d.Lost.AtLeast == 0 {
		return Finding{Name: "discards", State: OK, Value: "none counted"}
	}
	return Finding{
		Name: "discards", State: Costs, Value: d.Lost.Words(), Sure: Counted,
		Cost: "no policy has seen these: the CPU did not take them from the ring in time, or the " +
			"network in front gives no more; levee status --watch shows whether they go on",
		Mend: fmt.Sprintf("ethtool -S %s | grep -E 'miss|drop|discard'   # then: rings, queues, "+
			"affinity above", d.Name),
		Where: "Documentation/networking/statistics.rst",
	}
}

// flowHash is about floods of which all packets come to one queue.
func (d *Device) flowHash() Finding {
	f := Finding{Name: "flow_hash", State: OK}
	s := d.Spread
	if s == nil || s.UDP == "" && s.TCP == "" {
		f.State, f.Value = Unknown, "the driver does not tell"
		return f
	}
	f.Value = "TCP by " + hashed(s.TCP) + ", UDP by " + hashed(s.UDP)
	if strings.ContainsAny(s.UDP, "fn") || s.UDP == "" || !d.several() {
		return f
	}
	f.State, f.Sure = Note, Documents
	f.Cost = "UDP between two addresses comes to one queue whatever its ports: of a flood from " +
		"few reflectors, or through a tunnel, a few CPUs do all of the work; by ports, fragments " +
		"come to another queue than the rest"
	f.Mend = fmt.Sprintf("ethtool -N %s rx-flow-hash udp4 sdfn", d.Name)
	f.Where = "Documentation/networking/scaling.rst"
	return f
}

// symmetricKey repeats every 16 bits (Woo and Park, Scalable TCP Session Monitoring with Symmetric
// Receive-side Scaling, 2012).
var symmetricKey = strings.Repeat("6d:5a:", 19) + "6d:5a"

// hashKey is about flows whose two directions come to two CPUs.
func (d *Device) hashKey() Finding {
	f := Finding{Name: "rss_key", State: OK}
	if d.Spread == nil || d.Spread.Key == "" {
		f.State, f.Value = Unknown, "the driver does not tell"
		return f
	}
	f.Value = string(d.Spread.Key)
	if d.Spread.Key == Symmetric || !d.several() {
		return f
	}
	f.State, f.Sure = Note, Documents
	f.Cost = "where both directions of a flow arrive (a router, a mirror port), they come to two " +
		"CPUs: a reader of flows behind it sees them out of order, and what a policy remembers " +
		"of a connection goes from cache to cache"
	f.Mend = fmt.Sprintf("ethtool -X %s hkey %s   # of 40 bytes, as most cards have", d.Name,
		symmetricKey)
	f.Where = "Documentation/networking/scaling.rst"
	return f
}

func hashed(letters string) string {
	switch letters {
	case "":
		return "what is not told"
	case "sd":
		return "addresses"
	case "sdfn":
		return "addresses and ports"
	}
	return letters
}

// several says whether the card has a choice of queues.
func (d *Device) several() bool {
	return d.Channels != nil && max(d.Channels.RX, d.Channels.Combined) > 1
}

// indirection is about queues to which the card's table sends no packets, or most of them.
func (d *Device) indirection() Finding {
	f := Finding{Name: "indirection", State: OK}
	if d.Spread == nil || d.Spread.Entries == nil {
		f.State, f.Value = Unknown, "the driver does not tell"
		return f
	}
	used, most, all := 0, 0, 0
	for _, n := range d.Spread.Entries {
		if n > 0 {
			used++
		}
		most, all = max(most, n), all+n
	}
	f.Value = quantity.Plural(all, "entry") + " to " + quantity.Plural(used, "queue")
	queues := used
	if d.Channels != nil {
		queues = max(d.Channels.RX, d.Channels.Combined)
	}
	even := (all + max(1, used) - 1) / max(1, used)
	if used >= queues && most <= even+1 {
		return f
	}
	f.State, f.Sure = Note, Counted
	f.Cost = fmt.Sprintf("of %d queues %d get no packets that are hashed, or one gets more than "+
		"its share: floods come to fewer CPUs than there are", queues, queues-used)
	f.Mend = fmt.Sprintf("ethtool -X %s equal %d   # unless somebody wants it so", d.Name, queues)
	f.Where = "ethtool -x " + d.Name
	return f
}

// threads is about who reads the queues.
func (d *Device) threads() Finding {
	if d.Threaded == "" {
		return Finding{Name: "napi", State: Unknown, Value: "the machine does not tell"}
	}
	return unless(d.Threaded != "1", "softirq", Finding{
		Name: "napi", State: Note, Value: "threads of their own",
		Cost: "the scheduler shares out CPUs between packets and programs: under a flood " +
			"programs go on, and packets are lost at the ring sooner",
		Sure: Documents, Mend: fmt.Sprintf("echo 0 > /sys/class/net/%s/threaded", d.Name),
		Where: "Documentation/networking/napi.rst",
	})
}

// netfilter checks the rules through which each packet goes that the policy passes.
func (h *Host) netfilter() Finding {
	f := Finding{Name: "netfilter", State: OK, Value: "no rules"}
	switch n := h.Netfilter; {
	case n == nil:
		f.State, f.Value = Unknown, "needs root"
	case *n > 0:
		f.State, f.Value, f.Sure = Note, quantity.Plural(*n, "rule"), Expected
		f.Cost = "packets that a policy passes go through them, too: their verdicts hold beside " +
			"levee's, and each costs its time; what levee drops never comes there"
		f.Mend = "levee import nft   # what of them a policy can say"
	}
	return f
}

// audit is about what is logged of levee itself.
func (h *Host) audit() Finding {
	f := Finding{Name: "audit", State: OK, Value: "off"}
	switch {
	case h.Audit == nil: // nor does a kernel that was built without it
		f.State, f.Value = Unknown, "needs root, in the machine's first namespaces"
	case *h.Audit:
		f.State, f.Value, f.Sure = Note, "on", Documents
		f.Cost = "each program that is loaded or unloaded is a line in the audit log: at each " +
			"`levee up`, and whenever the agent changes what it does about a flood"
		f.Where = "kernel/bpf/syscall.c, bpf_audit_prog"
	}
	return f
}

// busyPoll is about programs that look for packets themselves.
func (h *Host) busyPoll() Finding {
	if h.BusyPoll == "" {
		return Finding{Name: "busy_poll", State: Unknown, Value: otherNamespace}
	}
	return unless(h.BusyPoll == "0", "off", Finding{
		Name: "busy_poll", State: Note, Value: h.BusyPoll + " us",
		Cost: "programs that wait for packets run the receive path, and the policy, on their own " +
			"time: it is not in the time of softirqs",
		Sure: Documents, Mend: "sysctl -w net.core.busy_read=0",
		Where: "Documentation/admin-guide/sysctl/net.rst",
	})
}
