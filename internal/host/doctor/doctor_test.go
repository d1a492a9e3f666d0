package doctor

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"levee/internal/host/card"
	"levee/internal/host/hosttest"
	"levee/internal/host/lost"
)

func yes() *bool { v := true; return &v }

// find is the finding of a name.
func find(t *testing.T, findings []Finding, name string) Finding {
	t.Helper()
	i := slices.IndexFunc(findings, func(f Finding) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no finding %q", name)
	}
	return findings[i]
}

func TestEachSettingIsJudged(t *testing.T) {
	steal := 0.02
	native := &XDPFeatures{Basic: true}
	cases := []struct {
		name   string
		host   Host
		dev    Device
		check  string
		state  State
		saying string // a part of value, cost and command
	}{
		{"a driver without XDP", Host{}, Device{Driver: "e1000", XDP: &XDPFeatures{}}, "driver",
			Costs, "tc ingress"},
		{"a kernel that does not say", Host{}, Device{Driver: "e1000"}, "driver", Unknown, "6.3"},
		{"a driver with fragments", Host{}, Device{Driver: "veth", XDP: &XDPFeatures{true, true}},
			"driver", OK, "with fragments"},
		{"an Ethernet device", Host{}, Device{Driver: "igb", XDP: native}, "link_layer", OK,
			"Ethernet"},
		{"a tunnel", Host{}, Device{Driver: "wireguard", XDP: &XDPFeatures{},
			NotEthernet: "a WireGuard device (link type none)"}, "link_layer", OK,
			"begin with IP"},
		{"a tunnel has no native XDP", Host{},
			Device{Driver: "wireguard", XDP: &XDPFeatures{},
				NotEthernet: "a WireGuard device (link type none)"}, "driver", OK, "tc ingress"},
		{"a CAN bus", Host{}, Device{Driver: "vcan", XDP: &XDPFeatures{},
			NotEthernet: "a CAN bus (link type can)", Unjudged: "no IP"}, "link_layer", Breaks,
			"refuses the device: no IP"},
		{"a CAN bus has no hook", Host{}, Device{Driver: "vcan", XDP: &XDPFeatures{},
			NotEthernet: "a CAN bus (link type can)", Unjudged: "no IP"}, "driver", OK, "vcan"},
		{"a CAN bus with a policy from before", Host{},
			Device{Name: "can0", NotEthernet: "a CAN bus (link type can)", Unjudged: "no IP",
				Program: &Program{ID: 7, Policy: "/etc/edge.levee"}}, "link_layer", Breaks,
			"levee down --dev can0"},
		{"a link that bounces", Host{}, Device{Driver: "igb", XDP: native}, "attach", Note,
			"link goes down"},
		{"a driver nobody has read", Host{}, Device{Driver: "novel", XDP: native}, "attach",
			Unknown, "not known"},
		{"nothing bounces at tc ingress", Host{}, Device{Driver: "igb", XDP: &XDPFeatures{}},
			"attach",
			OK, "tc ingress"},
		{"tc ingress by links", Host{TCIngress: "tcx"}, Device{}, "tc_ingress", OK, "tcx"},
		{"tc ingress by a filter", Host{TCIngress: "clsact"}, Device{}, "tc_ingress", Note,
			"can delete them"},
		{"tc ingress that nobody has tried", Host{}, Device{}, "tc_ingress", Unknown, "root"},
		{"nothing bounces twice", Host{},
			Device{Driver: "igb", XDP: native, Program: &Program{ID: 7}}, "attach", OK, "already"},
		{"a program is there", Host{}, Device{Program: &Program{ID: 7}}, "program", Note,
			"bpftool prog show id 7"},
		{"levee's own is there", Host{},
			Device{Program: &Program{ID: 7, Policy: "/etc/edge.levee"}}, "program", OK, ""},
		{"levee's own is generic", Host{},
			Device{Name: "eth0", Program: &Program{ID: 7, Policy: "/etc/edge.levee",
				Generic: true}}, "program", Costs, "levee status --dev eth0"},
		{"a generic program is there", Host{}, Device{Program: &Program{ID: 7, Generic: true}},
			"program", Costs, "generic"},
		{"jumbo frames without fragments", Host{Page: 4096},
			Device{Name: "e", Driver: "ena", MTU: 9001, XDP: native}, "mtu", Breaks,
			"ip link set dev e mtu 1500"},
		{"jumbo frames with fragments", Host{Page: 4096},
			Device{Driver: "mlx5_core", MTU: 9000, XDP: &XDPFeatures{true, true}}, "mtu", OK,
			"9000"},
		{"jumbo frames, kernel does not say", Host{Page: 4096}, Device{Driver: "novel", MTU: 9000},
			"mtu", Note, "about 3498"},
		{"the largest MTU", Host{Page: 4096}, Device{Driver: "veth", MTU: 3520, XDP: native}, "mtu",
			OK, "3520"},
		{"LRO", Host{}, Device{Name: "e", Features: map[string]bool{"rx-lro": true}}, "lro", Note,
			"ethtool -K e lro off"},
		{"LRO where it is refused", Host{},
			Device{Driver: "hv_netvsc", Features: map[string]bool{"rx-lro": true}}, "lro", Breaks,
			"lro off"},
		{"GRO in hardware", Host{}, Device{Name: "e", Features: map[string]bool{"rx-gro-hw": true}},
			"gro_hw", Note, "rx-gro-hw off"},
		{"no answer about offloads", Host{}, Device{}, "lro", Unknown, ""},
		{"tags taken off", Host{}, Device{Name: "e", Card: &card.Card{Name: "e",
			Offloads: map[string]card.Offload{card.RxVLAN: {On: true}}}}, "vlan", Note,
			"ethtool -K e rxvlan off"},
		{"tags taken off by a port", Host{}, Device{Name: "b", Card: &card.Card{Name: "b",
			Bond: true, Ports: []*card.Card{{Name: "e", Offloads: map[string]card.Offload{
				card.RxVLAN: {On: true}}}}}}, "vlan", Note, "ethtool -K e rxvlan off"},
		{"a bond whose ports leave tags", Host{}, Device{Name: "b",
			Features: map[string]bool{card.RxVLAN: true}, Card: &card.Card{Name: "b", Bond: true,
				Ports: []*card.Card{{Name: "e"}}}}, "vlan", OK, "stay"},
		{"a host that does not let go of offloads", Host{}, Device{Name: "e", Driver: "virtio_net",
			XDP: native, Card: &card.Card{Virtio: &card.Virtio{Features: 1 << 7}}}, "driver", Costs,
			"ctrl_guest_offloads"},
		{"and nothing is interrupted there", Host{}, Device{Name: "e", Driver: "virtio_net",
			XDP: native, Card: &card.Card{Virtio: &card.Virtio{Features: 1 << 7}}}, "attach", OK,
			"tc ingress"},
		{"a driver that forgets", Host{}, Device{Name: "e", Driver: "vmxnet3", XDP: native,
			Card: &card.Card{Driver: "vmxnet3"}}, "driver", Costs, "once the link was down"},
		{"an offload that cannot be changed", Host{}, Device{Name: "e",
			Features: map[string]bool{card.GROHW: true}, Card: &card.Card{
				Offloads: map[string]card.Offload{card.GROHW: {On: true, Fixed: true}}}},
			"gro_hw", Note, "cannot change it"},
		{"a policy that is judged by nobody", Host{}, Device{Name: "e",
			Judging: &Judging{Wrong: "packets come past the policy"}}, "judging", Breaks,
			"levee up FILE --dev e"},
		{"a policy without packets", Host{}, Device{Judging: &Judging{}}, "judging", Note,
			"not yet seen"},
		{"a policy with packets", Host{}, Device{Judging: &Judging{Seen: true}}, "judging", OK,
			"packets come"},
		{"nobody may look for a policy", Host{}, Device{Hidden: true}, "judging", Unknown, "root"},
		{"nor whose a program is", Host{}, Device{Hidden: true, Program: &Program{ID: 7}},
			"program", Unknown, "XDP program 7: root"},
		{"a program of another's", Host{}, Device{Program: &Program{ID: 7}}, "program", Note,
			"leaves it alone"},
		{"a card without MSI", Host{}, Device{Name: "e", Card: &card.Card{Physical: true}},
			"irq_affinity", Unknown, "grep e /proc/interrupts"},
		{"a device without a card", Host{}, Device{}, "irq_affinity", OK, "no interrupts"},
		{"an MTU that cannot be raised", Host{Page: 4096},
			Device{Name: "e", Driver: "igb", MTU: 1500, XDP: native,
				Program: &Program{ID: 7, Policy: "/etc/edge.levee"},
				Card:    &card.Card{Name: "e", Driver: "igb", MTU: 1500, Physical: true}},
			"mtu", Note, "above 1510 the driver refuses a larger one while the program is " +
				"attached, with no more than \"Invalid argument\""},
		{"queues that a program freezes", Host{CPUs: 8},
			Device{Name: "e", Driver: "virtio_net", Program: &Program{ID: 7},
				Channels: &Channels{Combined: 1, MaxCombined: 8}}, "queues", Costs,
			"levee down --dev e; ethtool -L e combined 8; levee up FILE --dev e"},
		{"answers that take a lock", Host{CPUs: 8},
			Device{Name: "e", Driver: "virtio_net", XDP: native,
				Channels: &Channels{Combined: 8, MaxCombined: 8}}, "xdp_tx", Note, "wants 16"},
		{"answers that take none", Host{CPUs: 4},
			Device{Name: "e", Driver: "virtio_net", XDP: native,
				Channels: &Channels{Combined: 4, MaxCombined: 8}}, "xdp_tx", OK, ""},
		{"BIG TCP", Host{}, Device{Name: "e", GROMaxSize: 185000}, "big_tcp", Note,
			"gro_max_size 65536"},
		{"few queues", Host{CPUs: 8}, Device{Name: "e",
			Channels: &Channels{Combined: 2, MaxCombined: 16}}, "queues", Costs,
			"ethtool -L e combined 8"},
		{"few queues of receiving only", Host{CPUs: 8},
			Device{Name: "e", Channels: &Channels{RX: 1, MaxRX: 4}}, "queues", Costs,
			"ethtool -L e rx 4"},
		{"as many queues as there can be", Host{CPUs: 8},
			Device{Channels: &Channels{Combined: 1, MaxCombined: 1}}, "queues", OK, ""},
		{"queues on one CPU", Host{CPUs: 4},
			Device{IRQs: []IRQ{{Number: 30, CPUs: []int{0}}, {Number: 31, CPUs: []int{0}}}},
			"irq_affinity", Costs, "/proc/irq/30/"},
		{"a CPU for each queue", Host{CPUs: 4},
			Device{IRQs: []IRQ{{CPUs: []int{0}}, {CPUs: []int{1}}}}, "irq_affinity", OK, ""},
		{"the wrong node", Host{CPUs: 4},
			Device{NUMANode: 1, NodeCPUs: []int{2, 3}, IRQs: []IRQ{{CPUs: []int{0}}}}, "numa",
			Costs, "2-3"},
		{"a small ring", Host{}, Device{Name: "e", Ring: &Ring{256, 4096}}, "ring", Costs,
			"ethtool -G e rx 1024"},
		{"the largest ring is small", Host{}, Device{Ring: &Ring{256, 256}}, "ring", OK, ""},
		{"late interrupts", Host{}, Device{Name: "e", Coalesce: &Coalesce{RXMicros: 250}},
			"coalescing", Costs, "250 us"},
		{"flow control", Host{}, Device{Name: "e", Pause: &Pause{RX: true}}, "flow_control", Costs,
			"ethtool -A e"},
		{"packets lost at the ring", Host{}, Device{Name: "e", Lost: &lost.Counts{AtLeast: 7,
			Card: []lost.Counter{{Name: "rx_missed_errors", Packets: 7}}}}, "discards", Costs,
			"rx_missed_errors 7"},
		{"nothing lost", Host{}, Device{Lost: &lost.Counts{}}, "discards", OK, "none"},
		{"UDP by addresses", Host{}, Device{Name: "e", Channels: &Channels{Combined: 4},
			Spread: &Spread{TCP: "sdfn", UDP: "sd"}}, "flow_hash", Note,
			"ethtool -N e rx-flow-hash udp4 sdfn"},
		{"UDP by addresses to one queue", Host{}, Device{Channels: &Channels{Combined: 1},
			Spread: &Spread{TCP: "sdfn", UDP: "sd"}}, "flow_hash", OK, "UDP by addresses"},
		{"UDP by ports", Host{}, Device{Channels: &Channels{Combined: 4},
			Spread: &Spread{TCP: "sdfn", UDP: "sdfn"}}, "flow_hash", OK, "addresses and ports"},
		{"flows in two directions", Host{}, Device{Name: "e", Channels: &Channels{Combined: 4},
			Spread: &Spread{Key: oneWay}}, "rss_key", Note, "ethtool -X e hkey 6d:5a:6d:5a"},
		{"flows at one queue", Host{}, Device{Channels: &Channels{Combined: 1},
			Spread: &Spread{Key: oneWay}}, "rss_key", OK, "not symmetric"},
		{"a symmetric key", Host{}, Device{Channels: &Channels{Combined: 4},
			Spread: &Spread{Key: Symmetric}}, "rss_key", OK, "symmetric"},
		{"queues without packets", Host{}, Device{Name: "e", Channels: &Channels{Combined: 4},
			Spread: &Spread{Entries: []int{64, 64}}}, "indirection", Note,
			"ethtool -X e equal 4"},
		{"one queue has most", Host{}, Device{Channels: &Channels{RX: 2},
			Spread: &Spread{Entries: []int{100, 28}}}, "indirection", Note, "more than its share"},
		{"an even table", Host{}, Device{Channels: &Channels{Combined: 3},
			Spread: &Spread{Entries: []int{43, 43, 42}}}, "indirection", OK, "128 entries"},
		{"threads that read queues", Host{}, Device{Name: "e", Threaded: "1"}, "napi", Note,
			"/sys/class/net/e/threaded"},
		{"softirqs that read queues", Host{}, Device{Threaded: "0"}, "napi", OK, "softirq"},
		{"steering", Host{}, Device{Name: "e", RPS: []string{"rx-0 3"}}, "rps", Note, "rx-0 3"},

		{"powersave", Host{Governors: map[string]int{"powersave": 4}}, Device{}, "governor", Costs,
			"performance"},
		{"one core is slow", Host{Governors: map[string]int{"performance": 3, "powersave": 1}},
			Device{}, "governor", Costs, "performance on 3, powersave on 1"},
		{"performance", Host{Governors: map[string]int{"performance": 4}}, Device{}, "governor", OK,
			""},
		{"turbo", Host{Turbo: yes()}, Device{}, "turbo", Note, "temperature"},
		{"deep sleep", Host{IdleStates: []IdleState{{"C1", 2, false}, {"C6", 133, false}}},
			Device{}, "c_states", Costs, "133 us"},
		{"deep sleep disabled", Host{IdleStates: []IdleState{{"C1", 2, false}, {"C6", 133, true}}},
			Device{}, "c_states", OK, "C1"},
		{"steal", Host{Steal: &steal}, Device{}, "steal", Costs, "2.0 %"},
		{"mitigations", Host{Mitigations: map[string]string{"spectre_v2": "Mitigation: IBRS"}},
			Device{}, "mitigations", Note, "spectre_v2"},
		{"an old kernel", Host{Linux: "5.10.0-46-cloud-amd64"}, Device{}, "linux", Breaks,
			"levee needs 6.1 or newer"},
		{"the oldest kernel", Host{Linux: "6.1.0-56-cloud-amd64"}, Device{}, "linux", OK, "6.1.0"},
		{"no JIT", Host{JIT: "0"}, Device{}, "jit", Costs, "bpf_jit_enable=1"},
		{"programs of anybody", Host{Unprivileged: "0"}, Device{}, "unprivileged_bpf", Note,
			"unprivileged_bpf_disabled=2"},
		{"pins of anybody", Host{OpenBPF: []string{"/sys/fs/bpf"}}, Device{}, "bpf_file_systems",
			Note, "chmod 0700 /sys/fs/bpf"},
		{"pins of root", Host{OpenBPF: []string{}}, Device{}, "bpf_file_systems", OK, "root"},
		{"hardened JIT", Host{Harden: "2"}, Device{}, "jit_harden", Costs, "bpf_jit_harden=1"},
		{"full conntrack", Host{Conntrack: &Conntrack{Count: 95, Max: 100}}, Device{}, "conntrack",
			Costs, "nf_conntrack_max=400"},
		{"conntrack was full", Host{Conntrack: &Conntrack{Count: 5, Max: 100, Dropped: 9}},
			Device{}, "conntrack", Costs, "9 packets"},
		{"a sniffer", Host{Sockets: []PacketSocket{{0, "tcpdump (12)"}}}, Device{Index: 3},
			"packet_sockets", Costs, "tcpdump (12)"},
		{"a sniffer elsewhere", Host{Sockets: []PacketSocket{{4, "tcpdump (12)"}}},
			Device{Index: 3}, "packet_sockets", OK, "none"},
		{"irqbalance", Host{IRQBalance: true}, Device{}, "irqbalance", Note,
			"systemctl stop irqbalance"},
		{"no irqbalance", Host{Processes: true}, Device{}, "irqbalance", OK, "not running"},
		{"hidden processes", Host{}, Device{}, "irqbalance", Unknown, "hidden"},
		{"no mitigations", Host{Mitigations: map[string]string{}}, Device{}, "mitigations", OK,
			"none"},
		{"vulnerabilities that are not told", Host{}, Device{}, "mitigations", Unknown,
			"does not tell"},
		{"busy polling that is not told", Host{}, Device{}, "busy_poll", Unknown, "first network"},
		{"no busy polling", Host{BusyPoll: "0"}, Device{}, "busy_poll", OK, "off"},
		{"rules of netfilter", Host{Netfilter: new(12)}, Device{}, "netfilter", Note, "12 rules"},
		{"no rules of netfilter", Host{Netfilter: new(0)}, Device{}, "netfilter", OK, "no rules"},
		{"audit", Host{Audit: new(true)}, Device{}, "audit", Note, "audit log"},
		{"busy polling", Host{BusyPoll: "50"}, Device{}, "busy_poll", Note, "50 us"},
		{"a full backlog", Host{Softnet: &Softnet{Dropped: 3}}, Device{}, "softnet", Costs,
			"netdev_max_backlog"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := find(t, Examine(&c.host, &c.dev), c.check)
			text := f.Value + "\n" + f.Cost + "\n" + f.Mend
			if f.State != c.state || !strings.Contains(text, c.saying) {
				t.Errorf("%s\n%s\nwant %s, saying %q", f.State, text, c.state, c.saying)
			}
		})
	}
}

// Whoever reads "costs" wants to know what, how sure that is, and what to do.
func TestWhatCostsIsExplained(t *testing.T) {
	bad := 0.5
	h := &Host{
		CPUs: 4, Page: 4096, Governors: map[string]int{"powersave": 4}, JIT: "0", Harden: "2",
		Steal:      &bad,
		IdleStates: []IdleState{{"C6", 133, false}}, Conntrack: &Conntrack{100, 100, 3},
		Sockets: []PacketSocket{{}}, Softnet: &Softnet{1, 1},
	}
	d := &Device{
		Driver: "ena", MTU: 9001, XDP: &XDPFeatures{Basic: true}, Program: &Program{Generic: true},
		Channels: &Channels{Combined: 1, MaxCombined: 4},
		Ring:     &Ring{64, 4096}, Coalesce: &Coalesce{RXMicros: 500}, Pause: &Pause{TX: true},
		NodeCPUs: []int{9},
		IRQs:     []IRQ{{CPUs: []int{0}}, {CPUs: []int{0}}},
		Features: map[string]bool{"rx-lro": true},
	}
	n := 0
	for _, f := range Examine(h, d) {
		if f.State == Costs || f.State == Breaks {
			n++
			if f.Cost == "" || f.Sure == "" || f.Mend == "" {
				t.Errorf("%s does not say what it costs, how sure that is, or what mends it: %+v",
					f.Name, f)
			}
		}
	}
	if n < 12 {
		t.Errorf("only %d findings", n)
	}
	if Worst(Examine(h, d)) != Breaks || Worst(nil) != OK {
		t.Error("the worst is not the worst")
	}
}

// write makes a file of a made-up machine.
func (t tree) write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(t.path(path)), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(t.path(path), []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
}

func TestAMachineIsRead(t *testing.T) {
	m := tree(t.TempDir())
	for path, text := range map[string]string{
		"/proc/sys/kernel/osrelease":                 "6.12.1\n",
		"/proc/sys/net/core/bpf_jit_enable":          "1\n",
		"/proc/sys/net/core/bpf_jit_harden":          "2\n",
		"/proc/sys/net/netfilter/nf_conntrack_count": "17\n",
		"/proc/sys/net/netfilter/nf_conntrack_max":   "100\n",
		"/proc/net/stat/nf_conntrack": "entries found drop " +
			"early_drop\n11 0 000a 1\n11 0 00000001 0\n",
		"/proc/net/softnet_stat": "00000001 00000010 " +
			"00000002\n00000001 00000001 00000000\n",
		"/proc/net/packet": "sk RefCnt Type Proto Iface R " +
			"Rmem User Inode\n0 3 3 0003 2 1 0 0 77\n0 3 3 0000 2 1 0 0 78\n",
		"/proc/12/comm": "irqbalance\n",
		"/proc/stat":    "cpu 1 2 3 4 5 6 7 8 9 10\n",
		"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
		"/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance\n",
		"/sys/devices/system/cpu/cpu0/cpuidle/state1/name":      "C6\n",
		"/sys/devices/system/cpu/cpu0/cpuidle/state1/latency":   "133\n",
		"/sys/devices/system/cpu/cpu0/cpuidle/state1/disable":   "1\n",
		"/sys/devices/system/cpu/intel_pstate/no_turbo":         "0\n",
		"/sys/devices/system/cpu/smt/active":                    "1\n",
		"/sys/devices/system/cpu/vulnerabilities/spectre_v2":    "Mitigation: IBRS\n",
		"/sys/devices/system/cpu/vulnerabilities/meltdown":      "Not affected\n",
		"/sys/class/net/e0/queues/rx-0/rps_cpus":                "00000000,00000003\n",
		"/sys/class/net/e0/queues/rx-1/rps_cpus":                "00000000,00000000\n",
		"/sys/class/net/e0/device/numa_node":                    "1\n",
		"/sys/devices/system/node/node1/cpulist":                "4-5,9\n",
		"/sys/class/net/e0/device/msi_irqs/44":                  "msix\n",
		"/proc/irq/44/smp_affinity_list":                        "4-5\n",
		"/proc/irq/44/e0-TxRx-0/x":                              "",
	} {
		m.write(t, path, text)
	}
	if err := os.MkdirAll(m.path("/proc/12/fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("socket:[77]", m.path("/proc/12/fd/5")); err != nil {
		t.Fatal(err)
	}
	h := m.host(context.Background(), 0)
	if h.Linux != "6.12.1" || h.JIT != "1" || h.Harden != "2" ||
		*h.Conntrack != (Conntrack{17, 100, 12}) || *h.Softnet != (Softnet{0x11, 2}) {
		t.Errorf("kernel: %+v %+v %+v", h, h.Conntrack, h.Softnet)
	}
	if len(h.Sockets) != 1 || h.Sockets[0] != (PacketSocket{2, "irqbalance (12)"}) ||
		!h.IRQBalance {
		t.Errorf("sockets: %+v, irqbalance %v", h.Sockets, h.IRQBalance)
	}
	if h.Governors["powersave"] != 1 || h.Governors["performance"] != 1 || !*h.Turbo ||
		!h.Threads || len(h.Mitigations) != 1 ||
		len(h.IdleStates) != 1 || h.IdleStates[0] != (IdleState{"C6", 133, true}) {
		t.Errorf("cpu: %+v", h)
	}
	d := &Device{Name: "e0", NUMANode: -1}
	m.sysfs(d)
	if d.NUMANode != 1 || !slices.Equal(d.NodeCPUs, []int{4, 5, 9}) || len(d.RPS) != 1 ||
		len(d.IRQs) != 1 ||
		d.IRQs[0].Name != "e0-TxRx-0" || !slices.Equal(d.IRQs[0].CPUs, []int{4, 5}) {
		t.Errorf("device: %+v", d)
	}
}

// A container, or a kernel without this or that, has none of these files.
func TestAnEmptyMachineIsUnknownNotBroken(t *testing.T) {
	findings := Examine(tree(t.TempDir()).host(context.Background(), 0), &Device{NUMANode: -1})
	for _, f := range findings {
		if f.State == Costs || f.State == Breaks {
			t.Errorf("%+v", f)
		}
	}
}

func TestCPULists(t *testing.T) {
	for text, want := range map[string][]int{
		"0": {0}, "0-2,5": {0, 1, 2, 5}, "": nil, "x": nil, "3-1": nil, "1-": nil, "-1": nil,
	} {
		if got := cpuList(text); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if n := len(cpuList("0-999999999999")); n != 1<<14 {
		t.Errorf("a list without end has %d CPUs", n)
	}
	if got := list([]int{0, 1, 2, 5}); got != "0-2,5" {
		t.Error(got)
	}
}

func TestARealInterfaceIsRead(t *testing.T) {
	hosttest.Enter(t)
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "d0", MTU: 9000},
		PeerName: "d1"}); err != nil {
		t.Fatal(err)
	}
	d, err := ReadDevice("d0")
	if err != nil {
		t.Fatal(err)
	}
	if d.Driver != "veth" || d.MTU != 9000 || d.Features == nil || d.Channels == nil ||
		d.Program != nil {
		t.Errorf("%+v", d)
	}
	if d.XDP != nil && !d.XDP.Basic { // nil before Linux 6.3
		t.Error("veth has native XDP")
	}
	if _, err := ReadDevice("d9"); !errors.Is(err, ErrNoDevice) {
		t.Errorf("no device: %v", err)
	}
	if h := ReadHost(context.Background(), 0); h.CPUs < 1 || h.Softnet == nil {
		t.Errorf("%+v", h)
	}
}

// TestLettersOfTheFlowHash are those that ethtool prints.
func TestLettersOfTheFlowHash(t *testing.T) {
	for bits, want := range map[uint64]string{0: "", 0x30: "sd", 0xf0: "sdfn", 0x10: "s"} {
		if got := letters(bits); got != want {
			t.Errorf("%#x: %q, want %q", bits, got, want)
		}
	}
	if got := flowHash("no-such-device0", flowUDP4); got != "" {
		t.Errorf("%q of no device", got)
	}
}

// TestRulesOfNetfilterAreCounted in a network namespace of its own.
func TestRulesOfNetfilterAreCounted(t *testing.T) {
	hosttest.Enter(t)
	if n := netfilter(""); n == nil || *n != 0 {
		t.Fatalf("%v rules where there are none", n)
	}
	const rules = "table ip t { chain c { type filter hook input priority 0; " +
		"tcp dport 22 accept; drop; }; }"
	if out, err := exec.Command("nft", rules).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if n := netfilter(""); n == nil || *n != 2 {
		t.Errorf("%v rules of two", n)
	}
}

// toeplitz is the hash of Microsoft's "RSS hashing functions", bit by bit.
func toeplitz(key, data []byte) uint32 {
	var h uint32
	for i := range 8 * len(data) {
		if data[i/8]>>(7-i%8)&1 == 0 {
			continue
		}
		for b := range 32 {
			at := i + b
			h ^= uint32(key[at/8]>>(7-at%8)&1) << (31 - b)
		}
	}
	return h
}

func TestSymmetricKeysGiveBothDirectionsOneHash(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func() []byte { return binary.BigEndian.AppendUint16(nil, uint16(r.Uint32())) }
	var random, repeated []byte
	for range 20 {
		random, repeated = append(random, word()...), append(repeated, 0x6d, 0x5a)
	}
	for _, c := range []struct {
		key  []byte
		want KeyKind
	}{{repeated, Symmetric}, {random, oneWay}} {
		if got := keyKind(hashToeplitz, 0, c.key); got != c.want {
			t.Errorf("% x: %q, not %q", c.key, got, c.want)
		}
		same := true
		for range 100 {
			there := slices.Concat(word(), word(), word(), word(), word(), word())
			back := slices.Concat(there[4:8], there[:4], there[10:12], there[8:10])
			same = same && toeplitz(c.key, there) == toeplitz(c.key, back)
		}
		if same != (c.want == Symmetric) {
			t.Errorf("% x: one hash for both directions: %v", c.key, same)
		}
	}
	if got := keyKind(hashToeplitz, 1, random); got != Symmetric {
		t.Errorf("input made symmetric: %q", got)
	}
	if got := keyKind(2, 0, repeated); got != "" {
		t.Errorf("a function whose symmetry is not known: %q", got)
	}
}
