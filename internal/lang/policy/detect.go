package policy

import (
	"net/netip"
	"time"
)

// Detect is one `detect` statement: what the agent looks for in the traffic, and what it may do. It
// is no part of the compiled policy.
type Detect struct {
	Name string
	To   []netip.Prefix // what is watched; nil: everything
	// Packets and Bits are what one host may get a second; both 0: it is learned.
	Packets, Bits uint64
	Mode          DetectMode
	// Collateral is the share of good packets that rules may drop, 0 to 1.
	Collateral float64
	Keep       []netip.Prefix // sources that its rules leave alone
	KeepText   string         // as it is written; "" for none
	Lease      time.Duration  // of its rules, which the agent renews
	Quiet      time.Duration  // how long a flood is over before its rules go
	Text       string         // canonical
	Pos        Pos
}

// DetectMode says how far a detector goes against a flood.
type DetectMode uint8

const (
	Observe DetectMode = iota
	Propose
	Enforce
)

func (m DetectMode) String() string { return [...]string{"observe", "propose", "enforce"}[m] }
