package state

import "github.com/cilium/ebpf"

// HoldsCapture is a program array of CaptureEntries: the programs that packets go to once they have
// been judged, while somebody captures or takes samples.
const HoldsCapture Contents = "capture"

// CaptureMap is the name of that array.
const CaptureMap = "capture"

// Places in the array of programs behind a policy's. They are sums of bits, one for each role: a
// program stands at all places whose highest bit is its own, and hands on to those of the others.
const (
	Looks          = 1 // captures, watches decisions, or is a shadow
	Samples        = 2
	Flows          = 4 // reads the first bytes of flows
	CaptureEntries = 8
)

// samples look at packets that were judged. Main calls them, so that there is no function.
var samples = Row{
	Name: "samples",
	What: HoldsCapture,
	Used: func(u *Use) bool { return !u.Plain && !u.Leaves && !u.Service },
	Maps: func(*Use) []Map {
		return []Map{{CaptureMap, 4 * CaptureEntries, "the programs that capture",
			Identity{What: HoldsCapture}, Pinned, &ebpf.MapSpec{Name: CaptureMap,
				Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: CaptureEntries}}}
	},
	Tell: func(r *Reading, to *Memories) {
		to.Samples = &Samplers{}
		for _, at := range r.Taken(Identity{What: HoldsCapture}) {
			to.Samples.Looks = to.Samples.Looks || at == Looks
			to.Samples.Samples = to.Samples.Samples || at == Samples
			to.Samples.Flows = to.Samples.Flows || at == Flows
		}
	},
	Values: []Value{
		gauge("levee_looking_programs", "programs", "Programs of a capture, of `levee watch "+
			"--verdict` or of a shadow that get each packet that was judged.", ofSamples,
			func(s *Samplers) int { return oneIf(s.Looks) }),
		gauge("levee_sampling_programs", "programs",
			"Programs that take samples of what was judged.", ofSamples,
			func(s *Samplers) int { return oneIf(s.Samples) }),
		gauge("levee_reading_programs", "programs",
			"Programs that hand the first bytes of flows to the agent.", ofSamples,
			func(s *Samplers) int { return oneIf(s.Flows) }),
	},
	Elsewhere: "levee status --json",
}

// Samplers look at packets that were judged.
type Samplers struct {
	Looks   bool `json:"looks"`   // a capture, `levee watch --verdict`, or a shadow
	Samples bool `json:"samples"` // for the agent, or who else takes samples
	Flows   bool `json:"flows"`   // for the agent, which reads what flows begin with
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

func ofSamples(m *Memories) *Samplers { return m.Samples }
