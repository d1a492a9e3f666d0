package flood

import "time"

// Window is one measurement of one rung: raw counts, what was concluded from them, and why not.
type Window struct {
	Round   int     `json:"round"`            // from 0
	Attempt int     `json:"attempt"`          // from 0; a disturbed round is tried again
	Family  string  `json:"family,omitempty"` // ipv4 or ipv6
	Traffic string  `json:"traffic"`          // which flood of the mix
	Seconds float64 `json:"seconds"`          // of the window itself
	// Packets that the receiver took from its ring within the window.
	Packets uint64 `json:"packets"`
	// PPS is the packets a second that were dropped where the rung drops: Packets a second, or for
	// the rungs of the application what it took.
	PPS float64 `json:"pps"`
	// NsPerPacket is the run time of the receiving thread, and of the application, over those
	// packets.
	NsPerPacket float64 `json:"ns_per_packet"`
	// Cycles and Instructions of the receiving core for each of them; null without hardware
	// counters.
	CyclesPerPacket       *float64 `json:"cycles_per_packet"`
	InstructionsPerPacket *float64 `json:"instructions_per_packet"`
	// Reached counts the packets that the application took within the window.
	Reached uint64 `json:"reached_application"`
	// Counts over the whole run, warm-up and ends included; the balance is exact only there.
	Offered  uint64 `json:"offered"`  // by the generator to the device
	Refused  uint64 `json:"refused"`  // of these, no room in the ring
	Received uint64 `json:"received"` // taken from the ring
	Dropped  uint64 `json:"dropped"`  // by the rung's own counter
	PassedOn uint64 `json:"passed_on"`
	Overflow uint64 `json:"overflow"` // no room in the application's queue
	Martians uint64 `json:"martians"` // dropped by the kernel's address checks
	Tracked  int    `json:"tracked"`  // flows in the conntrack table at the end
	// Shares of the window, 0 to 1.
	CoreBusy   float64 `json:"core_busy"`   // the receiving core did anything
	ThreadBusy float64 `json:"thread_busy"` // it did receive: driver, stack and rung
	// there was something to receive, and it did something else
	ThreadWaited    float64 `json:"thread_waited"`
	ThreadRunnable  float64 `json:"thread_runnable"`  // there was something to receive
	ApplicationBusy float64 `json:"application_busy"` // it ran the application
	Steal           float64 `json:"steal"`            // over all cores
	// Distance is the time of a cache line from one core to the other and back, in ns, before
	// and behind the run; 0 where that was not to be found out.
	Distance [2]float64 `json:"core_distance_ns"`
	// Work is the ns that an operation takes on these cores among many that do not wait for each
	// other, before and behind the run: about a third more while a neighbour works on the cores'
	// other threads.
	Work      [2]float64 `json:"core_work_ns"`
	Saturated bool       `json:"saturated"`
	// Limit says why the window is not saturated.
	Limit string `json:"limit,omitempty"`
	// Invalid says why there is no figure; empty if there is one.
	Invalid []string `json:"invalid,omitempty"`

	application  bool     // the rung is the application
	passes       float64  // share of the packets that the rung is to let pass
	conditions   []string // broken before or after the window
	ticks        float64  // the shortest share of the window that core_busy can tell
	trackerDrops uint64   // by conntrack, whose table is full
	hardware     []float64
}

// Thresholds of the rules in the package comment.
const (
	maxImbalance = 0.001
	maxUneven    = 0.02 // of a share that is to pass: the ring refuses packets in batches
	minBusy      = 0.99
	MaxSteal     = 0.01
	// Of the receiving core, by something else than receiving: what is left of a figure then is a
	// lower bound, and finally none.
	maxOther        = 0.03
	farTooMuchOther = 0.25
	// unaccounted is the share of a core that interrupts and the scheduler itself take where
	// threads want all of it.
	unaccounted = 0.02
	minPackets  = 1000 // fewer in a run are noise of the lab, not a measurement
	maxAttempts = 3    // at a round
	// enough is the part beyond what was received that the generator offered if it was not the
	// limit: what then leaves the core idle is a pause of the generator.
	enough = 1.25
)

// clockTick is the unit of the times in /proc/stat, USER_HZ.
const clockTick = 10 * time.Millisecond

// paused tells whether a generator that is fast enough did not run all the time.
func (w *Window) paused() bool {
	return !w.Saturated && float64(w.Offered) > enough*float64(w.Received)
}
