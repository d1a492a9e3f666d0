package bench

import (
	"time"
)

// Window is one measurement of one rung: raw counts, what was concluded from them, and why not.
type Window struct {
	Round   int     `json:"round"`   // from 0
	Attempt int     `json:"attempt"` // from 0; a disturbed round is tried again
	Traffic string  `json:"traffic"` // which flood of the mix
	Seconds float64 `json:"seconds"` // of the window itself
	// Packets that the receiver took from its ring within the window, and that a second.
	Packets uint64  `json:"packets"`
	PPS     float64 `json:"pps"`
	// NsPerPacket is the run time of the receiving thread over Packets.
	NsPerPacket float64 `json:"ns_per_packet"`
	// Counts over the whole run, warm-up and ends included; the balance is exact only there.
	Offered  uint64 `json:"offered"`  // by the generator to the device
	Refused  uint64 `json:"refused"`  // of these, no room in the ring
	Received uint64 `json:"received"` // taken from the ring
	Dropped  uint64 `json:"dropped"`  // by the rung's own counter
	PassedOn uint64 `json:"passed_on"`
	Martians uint64 `json:"martians"` // dropped by the kernel's address checks
	// Shares of the window, 0 to 1.
	CoreBusy   float64 `json:"core_busy"`   // the receiving core did anything
	ThreadBusy float64 `json:"thread_busy"` // it did receive
	Steal      float64 `json:"steal"`       // over all cores
	Saturated  bool    `json:"saturated"`
	// Invalid says why there is no figure; empty if there is one.
	Invalid []string `json:"invalid,omitempty"`

	conditions []string // broken before or after the window
	ticks      float64  // the shortest share of the window that core_busy can tell
}

// Thresholds of the rules in the package comment.
const (
	maxImbalance = 0.001
	minBusy      = 0.99
	maxSteal     = 0.01
	maxOther     = 0.03 // of the receiving core, by something else than receiving
	minPackets   = 1000 // fewer in a run are noise of the lab, not a measurement
	maxAttempts  = 3    // at a round
)

// clockTick is the unit of the times in /proc/stat, USER_HZ.
const clockTick = 10 * time.Millisecond
