package bench

import "time"

// Progress tells how far a measurement is.
type Progress struct {
	Doing       string
	Step, Steps int           // Step is what is done now, from 1
	Left        time.Duration // estimated; 0 if there is nothing to go by yet
}

// Tell says what is measured now, and how many of equal steps are done.
func (o *Options) Tell(doing string, done, total int) {
	if o.Progress == nil {
		return
	}
	p := Progress{Doing: doing, Step: min(done+1, total), Steps: total}
	if done > 0 {
		p.Left = time.Since(o.begun) * time.Duration(total-done) / time.Duration(done)
	}
	o.Progress(p)
}

// Meter estimates how long the rest of a measurement takes, from what its cases should take and
// what those before took.
type Meter struct {
	tell   func(Progress)
	clock  func() time.Time
	cases  []time.Duration // what each should take
	at     int             // case under way
	start  time.Time
	within float64 // of the case under way, 0 to 1
}

// Meter begins to measure cases of which it is known what each should take.
func (o *Options) Meter(cases []time.Duration) *Meter {
	tell := o.Progress
	if tell == nil {
		tell = func(Progress) {}
	}
	return &Meter{tell: tell, clock: time.Now, cases: cases, start: time.Now()}
}

// Next is told that case i, from 0, begins.
func (m *Meter) Next(i int) { m.at, m.within = i, 0 }

// Tell says what is done now, and that this share of the case is done.
func (m *Meter) Tell(doing string, share float64) {
	m.within = max(m.within, share)
	m.tell(Progress{Doing: doing, Step: m.at + 1, Steps: len(m.cases), Left: m.left()})
}

// sure is the part of the estimate that must be done before what it took says more about the rest
// than the estimate.
const sure = 10 * time.Second

func (m *Meter) left() time.Duration {
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
