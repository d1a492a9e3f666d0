package doctor

import (
	"levee/internal/host/card"
	"levee/internal/host/lost"
)

// Device describes a network interface. Pointers are nil where the driver does not tell.
type Device struct {
	Name, Driver, DriverVersion, Bus string
	Index, MTU                       int
	Up                               bool
	SpeedMbps                        int   // 0: unknown
	NUMANode                         int   // -1: none
	NodeCPUs                         []int // CPUs of that node
	// largest frame that receive offload may build, bytes; 0: unknown
	GROMaxSize int

	Channels *Channels
	Ring     *Ring
	Coalesce *Coalesce
	Pause    *Pause
	Features map[string]bool // offloads that are on, by the kernel's names
	Card     *card.Card      // what it tells of XDP; nil: nothing
	XDP      *XDPFeatures
	Program  *Program // an XDP program that is attached
	Judging  *Judging // nil: it has no policy of levee's, or nobody may look
	Hidden   bool     // nobody may look: what of levee's is in force, others read

	NotEthernet string // what it is, in words, if its packets have no Ethernet header; else ""
	Unjudged    string // why no policy goes there, "" if one does

	Lost   *lost.Counts // what it lost before a policy saw it
	Spread *Spread
	// 1: kernel threads of its own read its queues (NAPI), not the softirq; "" where it is not told
	Threaded string

	IRQs []IRQ    // of its queues; none for virtual devices
	RPS  []string // receive queues that are steered to other CPUs, with their masks
}

// Channels are the numbers of queues (ethtool -l).
type Channels struct{ RX, TX, Combined, MaxRX, MaxTX, MaxCombined int }

// Ring is the number of receive descriptors of a queue (ethtool -g).
type Ring struct{ RX, MaxRX int }

// Coalesce is the time that the device waits before it interrupts (ethtool -c).
type Coalesce struct {
	AdaptiveRX bool
	RXMicros   int
}

// Spread is the card's choice of a queue (ethtool -x, -n rx-flow-hash).
type Spread struct {
	// how many entries of the indirection table each queue has; nil: not told
	Entries []int
	// what of a packet is hashed, by ethtool's letters: s and d are addresses, f and n ports; ""
	// where it is not told
	TCP, UDP string
	Key      KeyKind
}

// KeyKind says whether both directions of a flow have one hash; "" where it is not told.
type KeyKind string

// Kinds of keys.
const (
	Symmetric KeyKind = "symmetric"
	oneWay    KeyKind = "not symmetric"
)

// Pause is flow control (ethtool -a).
type Pause struct{ RX, TX bool }

// XDPFeatures are those that the driver declares (Documentation/netlink/specs/netdev.yaml, Linux
// 6.3).
type XDPFeatures struct {
	Basic     bool // drop, pass and send back
	Fragments bool // frames of more than one buffer
}

// Program is an XDP program on the device.
type Program struct {
	ID      uint32
	Generic bool
	Policy  string // that it is levee's program for, "" if it is another's or not known
}

// Judging says whether the packets of the device come to its policy.
type Judging struct {
	Seen  bool   // packets were judged
	Wrong string // why packets come past it, or are judged otherwise than it says; "" if neither
}

// IRQ is an interrupt of one of the device's queues.
type IRQ struct {
	Number int
	Name   string
	CPUs   []int // that may handle it
}

// Host describes the machine. Strings are empty, and pointers nil, where it does not tell.
type Host struct {
	CPUs        int
	Governors   map[string]int // how many CPUs have each
	Turbo       *bool
	IdleStates  []IdleState
	Steal       *float64          // share of the CPU time that the hypervisor gave to others
	Mitigations map[string]string // nil: it does not tell
	Threads     bool              // more than one hardware thread a core

	Linux     string // its release
	TCIngress string // the mode of policies at tc ingress: tcx, or clsact; "" if nobody has tried
	// kernel.unprivileged_bpf_disabled: "0" lets anybody load programs
	Unprivileged string
	// directories of bpf file systems in which others than root may pin; nil: nobody has looked
	OpenBPF     []string
	JIT, Harden string
	Conntrack   *Conntrack
	Sockets     []PacketSocket
	IRQBalance  bool
	Processes   bool // those of others are seen
	Softnet     *Softnet
	// rules of netfilter in this network namespace; nil: nobody may look
	Netfilter *int
	Audit     *bool  // the kernel logs system calls, and so each program that is loaded
	BusyPoll  string // net.core.busy_read, microseconds
	Page      int    // bytes
}

// IdleState is a C-state of the first CPU.
type IdleState struct {
	Name       string
	ExitMicros int
	Disabled   bool
}

// Conntrack is the connection table of this network namespace.
type Conntrack struct {
	Count, Max int
	Dropped    uint64 // packets that found it full, since boot
}

// PacketSocket is an AF_PACKET socket that sees frames.
type PacketSocket struct {
	Device  int    // index; 0: all
	Process string // name and id of one that has it open; empty if it could not be found
}

// Softnet counts, since boot and over all CPUs, packets that found the backlog full, and receive
// rounds that ended for want of time or budget.
type Softnet struct{ Dropped, Squeezed uint64 }
