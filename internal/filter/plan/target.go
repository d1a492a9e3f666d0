package plan

import (
	"levee/internal/filter/flow"
	"levee/internal/filter/ir"
	"levee/internal/filter/names"
	"levee/internal/packet"
)

// Hook is the kind of program to make.
type Hook uint8

const (
	XDP    Hook = iota // native and generic XDP
	TCX                // tc ingress, sched_cls
	CGroup             // the cgroup (v2) of a service, ingress and egress, cgroup_skb
	Socket             // the sockets of a service, socket_filter
)

// OfSKB reports whether the context of a program is an skb.
func (h Hook) OfSKB() bool { return h != XDP }

// OfService reports whether a program sees packets where the socket of a service does: behind the
// interface, without an Ethernet header, put together from fragments, and well-formed.
func (h Hook) OfService() bool { return h == CGroup || h == Socket }

// Target holds the loader's choices before compiling. The zero value is plain XDP for one CPU.
type Target struct {
	Hook  Hook
	Link  packet.Link // link layer of the device
	Frags bool        // multi-buffer XDP: a packet may not lie in its first buffer as a whole
	// Called: the program replaces a function of libxdp's dispatcher. Such a program has no attach
	// type, so the kernel lets it tail call only programs without one.
	Called bool
	CPUs   int    // possible CPUs of the machine; 0 counts as 1
	HZ     uint64 // jiffies a second; 0 counts as 250
	// Memory is that of the machine, in bytes, of which connections have a share; 0 is enough for
	// as many as there can be.
	Memory uint64
	// Names is the secret of digests of DNS names. Who does not know it can make no name that is
	// taken for another.
	Names names.Secret
	// Trace writes the deciding slot to map "trace", for eval and tests, and reads from there, at
	// TraceAt, what the kernel tells of a packet: nobody sent it.
	Trace bool
	// Bytecode turns all rules into bytecode. Without it only rules do that are too many for
	// instructions. It is for tests: verdicts and counters are the same.
	Bytecode bool
	// Clock takes the time from the map "clock" and not from the kernel. It is for tests.
	Clock bool
	Trial bool // judge by the policy only until the deadline in map "trial"
	// Plain leaves the careful decoder out: packets that the fast path does not know have the
	// default's verdict. It is for what `on error` asks for, where the kernel refuses that decoder.
	Plain bool
	// Leaves: the program judges what leaves, at egress, behind so many logs of what arrives, and
	// with the memory of connections of the program for that, which has this room.
	Leaves      bool
	LogsBefore  int
	Connections flow.Room
	// Shadow is the row of counters of the policy in force, where this one judges for nobody but
	// itself: its program runs behind the other, notes what both decided, and returns what the
	// other did. It answers no SYNs and tells of no packets.
	Shadow Judged
}

// Judged says where the program of a policy leaves what it decided.
type Judged struct {
	RowBytes int // of its counters; 0: there is no such policy
	Slots    int
	Leaves   bool // it says something of what leaves, too
}

// Note returns where in a row the program leaves its slot and its code.
func (j Judged) Note() int { return j.Slots * SlotBytes }

// leaving returns the target for what leaves beside one for what arrives.
func (t Target) leaving() Target {
	hook := TCX
	if t.Hook == CGroup {
		hook = CGroup
	}
	return Target{Hook: hook, Link: t.Link, CPUs: t.CPUs, HZ: t.HZ, Memory: t.Memory,
		Names: t.Names, Trace: t.Trace, Bytecode: t.Bytecode, Clock: t.Clock, Leaves: true,
		Shadow: t.Shadow}
}

// judgesLeaving reports whether a program for what leaves goes with the target's.
func (t Target) judgesLeaving() bool { return !t.Leaves && !t.Plain }

// Handed reports whether the program at egress of the policy in force hands what leaves to this
// one, of a shadow. Where the policy in force says nothing of what leaves, that of the shadow is at
// egress itself.
func (t Target) Handed() bool { return t.Leaves && t.Shadow.Leaves }

// HandsOn reports whether the program at egress hands what it has judged to that of a shadow.
func (t Target) HandsOn() bool { return t.Leaves && !t.Hook.OfService() && !t.IsShadow() }

// TakesTurns reports whether the program is attached to egress of an interface, where programs of
// several generations may be.
func (t Target) TakesTurns() bool { return t.Leaves && !t.Hook.OfService() && !t.Handed() }

// IsShadow reports whether the policy is one beside that in force.
func (t Target) IsShadow() bool { return t.Shadow.RowBytes > 0 }

// Rate returns the jiffies a second.
func (t Target) Rate() uint64 {
	if t.HZ == 0 {
		return 250
	}
	return t.HZ
}

// meets reports whether packets of a class may come to its rules.
func (t Target) meets(class ir.Class) bool {
	switch {
	case !t.Plain:
		return true
	case class.Family == ir.NonIP:
		return t.Link == packet.Ethernet
	}
	return !class.Fragment && class.Transport != ir.UDPLite && class.Transport != ir.SCTP &&
		class.Transport != ir.DCCP
}

// String names the hook for people.
func (t Target) String() string {
	switch {
	case t.Leaves:
		return "what leaves"
	case t.Hook == TCX:
		return "tcx"
	case t.Hook == CGroup:
		return "cgroup"
	case t.Hook == Socket:
		return "socket"
	case t.Frags:
		return "xdp, several buffers"
	}
	return "xdp"
}
