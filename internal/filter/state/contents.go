package state

// Identity says what a map holds. Maps of two programs with the same identity hold the same thing.
type Identity struct {
	What Contents `json:"what"`
	Name string   `json:"name,omitempty"` // which one, where a program may have several
	Kind string   `json:"kind,omitempty"` // of one name: what is of another kind is another thing
}

// Contents is a kind of thing that maps hold.
type Contents string

const (
	// HoldsTables are tables that programs read and never write.
	HoldsTables Contents = "tables"
	// HoldsCounters are an array of 1 entry, BPF_F_MMAPABLE: [CPUs rounded up to a power of
	// two][RowBytes].
	HoldsCounters Contents = "counters"
	// HoldsLastSlot is an array of 1 entry, BPF_F_MMAPABLE: u32 slot of the last decision
	// (Trace of plan.Target).
	HoldsLastSlot Contents = "last slot"
	// HoldsDeadline is an array of 1 entry, BPF_F_MMAPABLE: u64 in jiffies (Trial of plan.Target).
	HoldsDeadline Contents = "deadline"
	// HoldsPrevious is a program array of 1 entry: the program that judges after the deadline;
	// packets pass if it is empty (Trial of plan.Target).
	HoldsPrevious Contents = "previous program"
	// HoldsClock is an array of 1 entry, BPF_F_MMAPABLE: u64, the time in jiffies (Clock of
	// plan.Target).
	HoldsClock Contents = "clock"
	// HoldsNameWork is an array of 1 entry for each CPU: what package names works on.
	HoldsNameWork Contents = "name work"
	// HoldsTurn is an array of 1 entry, BPF_F_MMAPABLE: three u64, see TurnNow. It is of a policy
	// for what leaves.
	HoldsTurn Contents = "turn"
	// HoldsWays is an array of 1 entry, BPF_F_MMAPABLE: the interfaces that packets come up to,
	// package route.
	HoldsWays Contents = "ways"
	// HoldsSenders is an array of 1 entry, BPF_F_MMAPABLE: the senders that the policy names, and
	// the layout of the kernel's sockets and cgroups (package sender).
	HoldsSenders Contents = "senders"
	// HoldsSenderWork is an array of 1 entry for each CPU: scratch memory of package sender.
	HoldsSenderWork Contents = "sender work"
	// HoldsGeneration is an array of 1 entry, BPF_F_MMAPABLE: u64, the number of the generation. It
	// is of a policy for what leaves.
	HoldsGeneration Contents = "generation"
	// HoldsBehind is a program array of 1 entry: the program of a shadow that what leaves goes to
	// once it has been judged.
	HoldsBehind Contents = "behind"
	// HoldsDynamicSet is an array of maps of 1 entry: the memory of one dynamic set.
	HoldsDynamicSet Contents = "dynamic set"
	// HoldsDynamicSets are an array of maps: the memories of many dynamic sets, see Places of
	// plan.Plan.
	HoldsDynamicSets Contents = "dynamic sets"
)

// OfBothSides reports whether the programs for what arrives and for what leaves have one map of it.
func (c Contents) OfBothSides() bool {
	switch c {
	case HoldsCounters, HoldsLastSlot, HoldsClock, HoldsDynamicSet, HoldsDynamicSets, HoldsEvents,
		HoldsLosses, HoldsFlows, HoldsPairs, HoldsJudged:
		return true
	}
	return false
}

// LeavingProgram is the name of the program that judges what leaves.
const LeavingProgram = "levee_out"

// Offsets of what a map holds that says whose turn it is to judge what leaves.
const (
	TurnNow   = 0  // the generation that does
	TurnUntil = 8  // until then, in jiffies; 0: for good
	TurnThen  = 16 // the one that does after that; 0: none
	TurnBytes = 24
)

// Lifetime says how long a map lives.
type Lifetime string

const (
	// Private maps are gone with their program, and nobody else opens them.
	Private Lifetime = ""
	// Pinned maps are kept with their program: later commands open them for as long as it may judge
	// packets. The next program has its own.
	Pinned Lifetime = "pinned"
	// Carried maps are pinned, and the map of the same identity in the next program continues what
	// is in them. What the next program does not have is gone with the last that had it.
	Carried Lifetime = "carried"
	// Attached maps belong to the interface: one of an identity serves every program from the first
	// that has it on, until the interface is taken down.
	Attached Lifetime = "attached"
)

// IsPinned reports whether commands find the map when the one that made it has ended.
func (l Lifetime) IsPinned() bool { return l == Pinned || l.Continues() }

// Continues reports whether the map of the same identity in the next program continues this one.
func (l Lifetime) Continues() bool { return l == Carried || l == Attached }
