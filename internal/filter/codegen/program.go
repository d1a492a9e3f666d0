// Package codegen turns the IR of a policy into an eBPF program and its tables.
//
// Compiling is pure: the same policy and Target give the same instructions and tables on any
// machine, without privileges. What depends on the kernel that runs it (which hook, map file
// descriptors, where the counters are) is decided by package dataplane when it loads the result.
package codegen

import (
	"net/netip"

	"github.com/cilium/ebpf"

	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Hook is the kind of program to make.
type Hook uint8

const (
	XDP Hook = iota // native and generic XDP
	TCX             // tc ingress, sched_cls
)

// Target is what the loader chose before compiling. The zero value is plain XDP for one CPU.
type Target struct {
	Hook  Hook
	Link  packet.Link // what packets of the device begin with
	Frags bool        // multi-buffer XDP: a packet may not lie in its first buffer as a whole
	CPUs  int         // possible CPUs of the machine; 0 counts as 1
	Trace bool        // write the deciding slot to the map LastSlot, for eval and tests
	// Records has all rules become records, which otherwise those do of which there are too many for
	// instructions of their own. It is for tests: verdicts and counters are the same.
	Records bool
	Trial   bool // judge by the policy only until the deadline in the map Deadline
	// Plain leaves the careful decoder out: packets that the fast path does not know have the
	// default's verdict. It is for what `on error` asks for, where the kernel refuses that decoder.
	Plain bool
}

// ProgramName is the name of the program that judges packets.
const ProgramName = "levee"

// Names of maps. What a map is says Program.Maps.
const (
	countersMap  = "counters"
	traceMap     = "trace"
	trialMap     = "trial"
	previousMap  = "previous"
	setPrefix    = "set_"  // of the map of one dynamic set
	sharedPrefix = "sets_" // of a map of many; no set's own map is called so
)

// SlotBytes is the size of one counter: packets and bytes, u64 each, native order. Bytes are of
// the whole frame without FCS. Row c of the counters map belongs to CPU c.
const SlotBytes = 16

// Program is a compiled policy.
type Program struct {
	Spec     *ebpf.CollectionSpec // programs, and their maps with their contents
	Link     packet.Link          // of the target
	Links    []Link               // all programs of Spec, each once
	Maps     []MapUse             // all maps of Spec, each once
	Slots    []policy.Slot        // meaning of each counter, policy.Slots of the source
	Plain    bool                 // see Target
	RowBytes int                  // bytes of one CPU's row of counters, a multiple of 64
	Dynamic  []*policy.Set        // all dynamic sets of the policy, also those that no rule asks for
	Places   map[string]SetPlace  // where they are, by name
	Spared   []netip.Prefix       // addresses of protect rules, for sets that roll up; nil if none does
	Tables   []Table              // what the compiler chose, for `check --explain-compile`
}

// Table says which structure was chosen for a part of the policy, and why.
type Table struct {
	For   string // "set bogons, IPv4", "rules, IPv4 TCP"
	Kind  string // "compares", "leaf-bitmap trie", ...
	Bytes int
	Why   string
}
