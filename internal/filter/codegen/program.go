// Package codegen turns the IR of a policy into an eBPF program and its tables.
//
// Compiling is pure: the same policy and Target give the same instructions and tables on any
// machine, without privileges. What depends on the kernel that runs it (which hook, map file
// descriptors, where the counters are) is decided by package dataplane when it loads the result.
package codegen

import (
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/filter/names"
	"levee/internal/filter/plan"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// What the loader chose before compiling.
type (
	Target = plan.Target
	Hook   = plan.Hook
)

const (
	XDP = plan.XDP
	TCX = plan.TCX
)

// ProgramName is the name of the program that judges packets.
const ProgramName = "levee"

// SlotBytes is the size of one counter: packets and bytes, u64 each, native order. Bytes are of
// the whole frame without FCS. Row c of the counters map belongs to CPU c.
const SlotBytes = plan.SlotBytes

// SetPlace says where a program finds the memory of a dynamic set.
type SetPlace = plan.SetPlace

// Program is a compiled policy.
type Program struct {
	Spec     *ebpf.CollectionSpec // programs, and their maps with their contents
	Link     packet.Link          // of the target
	Links    []Link               // all programs of Spec, each once
	Maps     []MapUse             // all maps of Spec, each once
	Slots    []policy.Slot        // meaning of each counter, policy.Slots of the source
	Plain    bool                 // see Target
	RowBytes int                  // bytes of one CPU's row of counters, a multiple of 64
	// all dynamic sets of the policy, also those without a rule
	Dynamic []*policy.Set
	Places  map[string]SetPlace // where they are, by name
	// addresses of protect rules, for sets that roll up; nil if none does
	Spared    []netip.Prefix
	Limits    []plan.Limit
	Logs      []plan.Log
	Cookies   []plan.Cookie
	Greylists []plan.Greylist
	Echoes    []plan.Echo
	Senders   policy.Senders // that rules name
	Names     names.Secret   // of the target, for sets of names
	Tables    []Table        // what the compiler chose, for `check --explain-compile`
}

// HoldsDigests reports whether the program or one of its sets has digests of names, which depend on
// the target's secret.
func (p *Program) HoldsDigests() bool {
	return p.Spec.Maps[names.WorkMap] != nil || slices.ContainsFunc(p.Dynamic,
		func(s *policy.Set) bool { return s.Type == policy.Names })
}

// Table says which structure was chosen for a part of the policy, and why.
type Table struct {
	For   string // "set bogons, IPv4", "rules, IPv4 TCP"
	Kind  string // "compares", "leaf-bitmap trie", ...
	Bytes int
	Why   string
}
