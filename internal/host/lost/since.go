package lost

import "time"

// Figures of what is an overload: a share of what arrives, for a time, above what single bursts
// bring.
const (
	// Share of the packets that arrive which are lost.
	Share = 0.01
	// PerSecond packets at least.
	PerSecond = 100
	// For is the time that it has to go on, and that of the quiet after it.
	For = 5 * time.Second
)

// Loss counts the packets that an interface lost between two looks.
type Loss struct {
	Share     float64 // of the packets that came to the card, 0 to 1
	PerSecond float64 // packets
	Counter   string  // the one that grew most
}

// Watch knows what an interface had lost at the look before, and since when it loses much.
type Watch struct {
	last       *Counts
	at         time.Time
	bad, good  time.Time // since when; zero: not
	overloaded bool
	much       Loss // the last that was
}

// Look takes the next counts, and says what was lost since the look before. It returns true while
// an alarm lasts: from when the interface has lost more than Share for For, until it has been quiet
// for as long. The Loss is then the last one of that time.
func (w *Watch) Look(now time.Time, c *Counts) (Loss, bool) {
	last, took := w.last, now.Sub(w.at)
	w.last, w.at = c, now
	if last == nil || took <= 0 || c.AtLeast < last.AtLeast || c.Received < last.Received {
		return w.told(Loss{}) // the first look, or the driver began anew
	}
	gone := float64(c.AtLeast - last.AtLeast)
	all := gone + float64(c.Received-last.Received)
	l := Loss{PerSecond: gone / took.Seconds(), Counter: grown(last, c)}
	if all > 0 {
		l.Share = gone / all
	}
	if l.Share >= Share && l.PerSecond >= PerSecond {
		w.good = time.Time{}
		if w.bad.IsZero() {
			w.bad = now.Add(-took)
		}
		w.overloaded = w.overloaded || now.Sub(w.bad) >= For
		w.much = l
		return w.told(l)
	}
	w.bad = time.Time{}
	if w.good.IsZero() {
		w.good = now
	}
	if now.Sub(w.good) >= For {
		w.overloaded = false
	}
	return w.told(l)
}

func (w *Watch) told(l Loss) (Loss, bool) {
	if w.overloaded {
		return w.much, true
	}
	return l, false
}

// grown returns the name of the counter that grew most.
func grown(from, to *Counts) (name string) {
	before := map[string]uint64{}
	for _, c := range from.Card {
		before[c.Name] += c.Packets
	}
	grew := map[string]uint64{}
	for _, c := range to.Card {
		grew[c.Name] += c.Packets
	}
	var most uint64
	for _, c := range to.Card {
		if n := grew[c.Name]; n >= before[c.Name] && n-before[c.Name] > most {
			name, most = c.Name, n-before[c.Name]
		}
	}
	return name
}
