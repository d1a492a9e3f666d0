package difftest

import (
	"math/rand/v2"
	"time"

	"levee/internal/lang/policy"
)

// Changer is an engine whose dynamic sets can change between frames. Compare then takes entries out
// and puts them back.
type Changer interface {
	Put(set string, e policy.Element) error // without a lease
	Take(set string, e policy.Element)
}

// changeFrames is the number of frames that are judged between two changes.
const changeFrames = 64

// setEntry is an entry of a dynamic set, there or not.
type setEntry struct {
	set string
	policy.Element
	gone bool
}

// prepareChanges lists what can change: nothing if an engine cannot.
func (r *comparison) prepareChanges() {
	for _, e := range r.engines {
		if _, ok := e.(Changer); !ok {
			return
		}
	}
	r.rand = rand.New(rand.NewPCG(r.c.Seed, streamChanges))
	for _, set := range r.c.Policy.Sets {
		for _, e := range r.c.Entries(set) {
			r.entries = append(r.entries, setEntry{set: set.Name, Element: e.Element})
		}
	}
}

// change takes some entries out of the dynamic sets, and puts some back that were taken out.
func (r *comparison) change() error {
	if len(r.entries) == 0 {
		return nil
	}
	for range 1 + r.rand.IntN(8) {
		e := &r.entries[r.rand.IntN(len(r.entries))]
		if err := r.changeOne(e); err != nil {
			return err
		}
		e.gone = !e.gone
	}
	return nil
}

func (r *comparison) changeOne(e *setEntry) error {
	if !e.gone {
		for _, engine := range r.engines {
			engine.(Changer).Take(e.set, e.Element)
		}
		return r.oracle.DelEntry(e.set, e.Element)
	}
	for _, engine := range r.engines {
		if err := engine.(Changer).Put(e.set, e.Element); err != nil {
			return err
		}
	}
	return r.oracle.AddEntry(e.set, e.Element, time.Time{})
}
