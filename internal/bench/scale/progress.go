package scale

import "time"

// Progress is how far a measurement is.
type Progress struct {
	Doing       string
	Case, Cases int           // from 1
	Left        time.Duration // estimated; 0 if there is nothing to go by yet
}

// meter estimates how long the rest of a measurement takes, from what its cases should take and what those before
// took.
type meter struct {
	tell   func(Progress)
	clock  func() time.Time
	cases  []time.Duration // what each should take
	at     int             // case under way
	start  time.Time
	within float64 // of the case under way, 0 to 1
}

// begin starts measuring cases.
func (o *Options) begin(cases []time.Duration) *meter {
	m := &meter{tell: o.Progress, clock: time.Now, cases: cases, start: time.Now()}
	o.tell = m.doing
	return m
}

// next is told that case i, from 0, begins.
func (m *meter) next(i int) { m.at, m.within = i, 0 }

// doing tells what is done now, and that this share of the case is done.
func (m *meter) doing(what string, share float64) {
	m.within = max(m.within, share)
	m.tell(Progress{Doing: what, Case: m.at + 1, Cases: len(m.cases), Left: m.left()})
}

// sure is how much of the estimate must be done before what it took says more about the rest than the estimate.
const sure = 10 * time.Second

func (m *meter) left() time.Duration {
	var done, rest time.Duration
	for i, d := range m.cases {
		switch {
		case i < m.at:
			done += d
		case i > m.at:
			rest += d
		default:
			part := time.Duration(m.within * float64(d))
			done += part
			rest += d - part
		}
	}
	if done < sure {
		return rest
	}
	return time.Duration(float64(rest) * float64(m.clock().Sub(m.start)) / float64(done))
}

// Rough times, for estimates: of a visit besides its windows, of building a structure for an entry, of loading an
// entry or a rule into a tool, and of timing a structure or a policy for a round.
const (
	estimateVisit     = 500 * time.Millisecond
	estimateBuild     = 2 * time.Microsecond
	estimateLoad      = 20 * time.Microsecond
	estimateStructure = 400 * time.Millisecond
	estimatePolicy    = 500 * time.Millisecond
)

// Tools in a case of the lab.
const (
	mostSetTools  = 8 // with single addresses
	ruleToolsMade = 5
)

// estimateLab is how long the lab takes for n tools with so many entries.
func (o *Options) estimateLab(n, size int) time.Duration {
	if o.SkipLab {
		return 0
	}
	window := o.Window
	if window == 0 {
		window = time.Second
	}
	load := min(time.Duration(size)*estimateLoad, loadBudget)
	return time.Duration(n) * (time.Duration(o.Rounds)*(window+estimateVisit) + load)
}
