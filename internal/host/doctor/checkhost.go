package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"levee/internal/kernel"
)

// cpu judges what the processors do.
func cpu(h *Host, _ *Device) []Finding {
	out := []Finding{h.governor(), h.turbo(), h.idle(), h.threads(), h.steal(), h.mitigations()}
	for i := range out {
		out[i].About = "cpu"
	}
	return out
}

func (h *Host) governor() Finding {
	f := Finding{Name: "governor", State: OK}
	if len(h.Governors) == 0 {
		f.State, f.Value = Unknown, "the machine does not tell (a guest's frequency is its "+
			"host's matter)"
		return f
	}
	var values []string
	for _, name := range slices.Sorted(maps.Keys(h.Governors)) {
		values = append(values, fmt.Sprintf("%s on %d", name, h.Governors[name]))
	}
	f.Value = strings.Join(values, ", ")
	if len(h.Governors) > 1 || h.Governors["performance"] == 0 {
		f.State, f.Sure = Costs, Expected
		f.Cost = "cores begin a flood at a low frequency and take milliseconds to leave it; " +
			"figures vary"
		f.Mend = "cpupower frequency-set -g performance"
	}
	return f
}

func (h *Host) turbo() Finding {
	f := Finding{Name: "turbo", State: OK, Value: "off"}
	switch {
	case h.Turbo == nil:
		f.State, f.Value = Unknown, "the machine does not tell"
	case *h.Turbo:
		f.State, f.Value, f.Sure = Note, "on", Expected
		f.Cost = "good for serving; but figures depend on temperature and on what the other " +
			"cores do"
		f.Mend = "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo   # or 0 > " +
			"cpufreq/boost, while measuring"
	}
	return f
}

func (h *Host) idle() Finding {
	const long = 20 // microseconds
	f := Finding{Name: "c_states", State: OK}
	if len(h.IdleStates) == 0 {
		f.State, f.Value = Unknown, "the machine does not tell"
		return f
	}
	var deepest IdleState
	for _, s := range h.IdleStates {
		if !s.Disabled && s.ExitMicros >= deepest.ExitMicros {
			deepest = s
		}
	}
	f.Value = fmt.Sprintf("deepest %s, %d us to leave", deepest.Name, deepest.ExitMicros)
	if deepest.ExitMicros > long {
		f.State, f.Sure = Costs, Counted
		f.Cost = fmt.Sprintf("the first packet after a pause waits up to %d us, and the ring "+
			"fills meanwhile", deepest.ExitMicros)
		f.Mend = fmt.Sprintf("cpupower idle-set -D %d", long)
		f.Where = "/sys/devices/system/cpu/cpu0/cpuidle"
	}
	return f
}

func (h *Host) threads() Finding {
	return unless(!h.Threads, "one thread a core, or not told", Finding{
		Name: "smt", State: Note, Value: "several threads a core",
		Cost: "two queues on the threads of one core share it: they get far less than twice as far",
		Sure: Expected, Mend: "cat /sys/devices/system/cpu/cpu0/topology/thread_siblings_list   " +
			"# and give queues cores of their own",
	})
}

// muchSteal is the share above which no figure is taken.
const muchSteal = 0.01

func (h *Host) steal() Finding {
	f := Finding{Name: "steal", State: OK}
	if h.Steal == nil {
		f.State, f.Value = Unknown, "not sampled"
		return f
	}
	f.Value = fmt.Sprintf("%.1f %%", 100**h.Steal)
	if *h.Steal > muchSteal {
		f.State, f.Sure = Costs, Counted
		f.Cost = "the hypervisor gives these cores to others: packets wait, and no figure " +
			"measured now is to be trusted"
		f.Mend = "move the machine, or ask for cores of its own"
		f.Where = "/proc/stat"
	}
	return f
}

func (h *Host) mitigations() Finding {
	if h.Mitigations == nil {
		return Finding{Name: "mitigations", State: Unknown, Value: "the machine does not tell"}
	}
	return unless(len(h.Mitigations) == 0, "none that apply", Finding{
		Name: "mitigations", State: Note,
		Value: strings.Join(slices.Sorted(maps.Keys(h.Mitigations)), ", "),
		Cost: "they slow indirect calls and the way into the kernel: the network stack pays more " +
			"than an XDP program; compare figures only with the same ones",
		Sure: Expected, Where: "/sys/devices/system/cpu/vulnerabilities",
	})
}

// system judges the kernel's settings and what else watches the packets.
func system(h *Host, d *Device) []Finding {
	out := []Finding{h.linux(), h.tcIngress(), h.jit(), h.harden(), h.unprivileged(),
		h.openBPF(), h.conntrack(), h.sockets(d), h.irqbalance(), h.softnet(),
		h.netfilter(), h.audit(), h.busyPoll()}
	for i := range out {
		out[i].About = "kernel"
	}
	return out
}

func (h *Host) linux() Finding {
	old := kernel.TooOld(h.Linux)
	if old == "" {
		return Finding{Name: "linux", State: OK, Value: h.Linux}
	}
	return Finding{
		Name: "linux", State: Breaks, Value: h.Linux,
		Cost: old + ": the verifier refuses its programs, and nothing is filtered", Sure: Expected,
		Mend: "apt install linux-image-amd64   # or whatever brings a newer kernel here; " +
			"then reboot",
	}
}

func (h *Host) tcIngress() Finding {
	f := Finding{Name: "tc_ingress", State: OK, Value: h.TCIngress}
	switch h.TCIngress {
	case "":
		f.State, f.Value = Unknown, "needs root: a program is loaded to see"
	case "clsact":
		f.State, f.Sure = Note, Documents
		f.Cost = "policies that do not run in XDP, and what notes connections, are kept by " +
			"filters of tc (TCX needs Linux 6.6): whoever may change the network can delete " +
			"them, and they end when their interface goes to another network namespace"
		f.Where = "net/sched/cls_bpf.c; net/core/dev.c, dev_shutdown"
	}
	return f
}

// otherNamespace is the reason that some settings of the kernel have no file.
const otherNamespace = "told in the machine's first network namespace only"

func (h *Host) jit() Finding {
	switch h.JIT {
	case "":
		return Finding{Name: "jit", State: Unknown, Value: otherNamespace}
	case "0":
		return Finding{
			Name: "jit", State: Costs, Value: "off",
			Cost:  "programs are interpreted: each instruction costs several times as much",
			Sure:  Expected,
			Mend:  "sysctl -w net.core.bpf_jit_enable=1",
			Where: "Documentation/admin-guide/sysctl/net.rst",
		}
	}
	return Finding{Name: "jit", State: OK, Value: "on"}
}

func (h *Host) harden() Finding {
	f := Finding{Name: "jit_harden", State: OK, Value: h.Harden}
	switch h.Harden {
	case "":
		f.State, f.Value = Unknown, otherNamespace
	case "2":
		f.State, f.Sure = Costs, Documents
		f.Cost = "constants in the programs of all users are blinded: two instructions more " +
			"for each"
		f.Mend, f.Where = "sysctl -w net.core.bpf_jit_harden=1",
			"Documentation/admin-guide/sysctl/net.rst"
	}
	return f
}

// unprivileged is about programs of anybody, which write maps that he may only read.
func (h *Host) unprivileged() Finding {
	f := Finding{Name: "unprivileged_bpf", State: OK, Value: h.Unprivileged}
	switch h.Unprivileged {
	case "":
		f.State = Unknown
	case "0":
		f.State, f.Sure = Note, Documents
		f.Cost = "anybody may load BPF programs, which may write maps that he has opened to " +
			"read: policies that come into force now are not for the group levee"
		f.Mend, f.Where = "sysctl -w kernel.unprivileged_bpf_disabled=2",
			"Documentation/admin-guide/sysctl/kernel.rst"
	}
	return f
}

// openBPF is about bpf file systems of anybody. Whoever pins a map there that he may only read can
// open his pin to write.
func (h *Host) openBPF() Finding {
	f := Finding{Name: "bpf_file_systems", State: OK, Value: "root alone pins"}
	switch {
	case h.OpenBPF == nil:
		f.State, f.Value = Unknown, ""
	case len(h.OpenBPF) > 0:
		at := h.OpenBPF[0]
		f.State, f.Sure, f.Value = Note, Documents, strings.Join(h.OpenBPF, " ")
		f.Cost = "others than root may pin there, and so write maps that they have opened to " +
			"read: what is in force is not for the group levee"
		f.Mend, f.Where = "chmod 0700 "+at, "docs/explanation/decisions/0095-readers.md"
	}
	return f
}

func (h *Host) conntrack() Finding {
	c := h.Conntrack
	if c == nil {
		return Finding{Name: "conntrack", State: OK, Value: "not in use here"}
	}
	f := Finding{Name: "conntrack", State: OK,
		Value: fmt.Sprintf("%d of %d entries", c.Count, c.Max)}
	switch {
	case c.Max > 0 && c.Count >= c.Max-c.Max/10:
		f.State, f.Sure = Costs, Counted
		f.Cost = "once the table is full, packets of new connections are dropped, wanted ones too"
	case c.Dropped > 0:
		f.State, f.Sure = Costs, Counted
		f.Cost = fmt.Sprintf("the table was full: %d packets were dropped, or connections pushed "+
			"out, since boot", c.Dropped)
	default:
		return f
	}
	f.Mend = fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d   # or drop the flood "+
		"before it, with levee", 4*max(c.Max, 1))
	f.Where = "/proc/net/stat/nf_conntrack"
	return f
}

func (h *Host) sockets(d *Device) Finding {
	var who []string
	n := 0
	for _, s := range h.Sockets {
		if d != nil && s.Device != 0 && s.Device != d.Index {
			continue
		}
		n++
		if s.Process != "" && !slices.Contains(who, s.Process) {
			who = append(who, s.Process)
		}
	}
	if n == 0 {
		return Finding{Name: "packet_sockets", State: OK, Value: "none"}
	}
	f := Finding{
		Name: "packet_sockets", State: Costs, Value: fmt.Sprint(n),
		Cost: "every frame that passes is handed to each of them, through a filter if it has one " +
			"(tcpdump, DHCP clients, LLDP); nothing that XDP drops is",
		Sure: Documents, Mend: "ss -0 -p", Where: "net/core/dev.c, deliver_skb",
	}
	if len(who) > 0 {
		f.Value += ": " + strings.Join(who, ", ")
	}
	return f
}

func (h *Host) irqbalance() Finding {
	if !h.IRQBalance && !h.Processes {
		return Finding{Name: "irqbalance", State: Unknown,
			Value: "processes of others are hidden (hidepid=)"}
	}
	return unless(!h.IRQBalance, "not running", Finding{
		Name: "irqbalance", State: Note, Value: "running",
		Cost: "it moves the queues' interrupts between CPUs while a flood runs; what was pinned " +
			"by hand does not stay",
		Sure: Documents, Mend: "systemctl stop irqbalance   # or ban the queues: --banirq",
		Where: "irqbalance(1)",
	})
}

func (h *Host) softnet() Finding {
	s := h.Softnet
	switch {
	case s == nil:
		return Finding{Name: "softnet", State: Unknown, Value: "the machine does not tell"}
	case s.Dropped > 0:
		return Finding{
			Name: "softnet", State: Costs,
			Value: fmt.Sprintf("%d dropped, %d rounds cut short", s.Dropped, s.Squeezed),
			Cost:  "packets found the backlog of a CPU full (RPS, virtual devices) since boot",
			Sure:  Counted,
			Mend:  "sysctl -w net.core.netdev_max_backlog=10000", Where: "/proc/net/softnet_stat",
		}
	}
	return Finding{Name: "softnet", State: OK,
		Value: fmt.Sprintf("0 dropped, %d rounds cut short", s.Squeezed)}
}
