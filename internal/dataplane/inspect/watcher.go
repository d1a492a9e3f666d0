package inspect

import (
	"context"
	"errors"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/dataplane/attach"
	"levee/internal/host/card"
)

// Watcher goes on comparing what interfaces receive with what their policies judge, for whoever
// runs in any case: a look costs microseconds. It is used by one goroutine.
type Watcher struct {
	reader Reader
	of     map[int]*watchedDevice // by index
}

type watchedDevice struct {
	Comparison
	told    JudgingState
	amiss   []string
	checked time.Duration // when the interface's settings were last checked
}

// Judged says whether a policy on an interface judges.
type Judged struct {
	Dev     string
	Ifindex int
	Judging
	// Changed: it was found otherwise the last time.
	Changed bool
}

// checkAgain is the interval of looks whether settings of an interface go with its policy: they
// change when an operator changes them, and mostly with a message.
const checkAgain = 10 * time.Second

// Close lets memory go.
func (w *Watcher) Close() { w.reader.Close() }

// Recheck has the next look read what is set on all interfaces: something has changed.
func (w *Watcher) Recheck() {
	for _, o := range w.of {
		o.checked = 0
	}
}

// Look compares all policies of this network namespace.
func (w *Watcher) Look(ctx context.Context) ([]Judged, error) {
	all, err := w.reader.Read(ctx)
	if err != nil {
		return nil, err
	}
	now := Monotonic()
	var out []Judged
	seen := map[int]*watchedDevice{}
	for i := range all {
		d := &all[i]
		l, err := netlink.LinkByIndex(d.index) // another one may have its name
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		dev := l.Attrs().Name
		o := w.of[d.index]
		judged, received := d.Arrived(), ReadReceived(l)
		if o == nil || o.Generation != d.in.Generation {
			o = &watchedDevice{Comparison: Begin(d.in.Generation, d.index, now, received, judged),
				told: NotYet}
		}
		seen[d.index] = o
		can, whole := Comparable(l, d.in, d.program)
		o.Look(now, received, judged, can, whole)
		changed := o.State != o.told
		if o.checked == 0 || now-o.checked > checkAgain {
			before := len(o.amiss)
			o.checked, o.amiss = now, attach.Amiss(l, card.Read(dev), d.in)
			changed = changed || before != len(o.amiss)
		}
		o.told = o.State
		j := Judged{Dev: dev, Ifindex: d.index, Changed: changed,
			Judging: *o.Tell(attach.Driver(dev), d.in.Mode)}
		j.Amiss = o.amiss
		out = append(out, j)
	}
	w.of = seen
	return out, nil
}

// Next returns the reason to take another hook, "" where the same may do, if the settings are what
// is amiss.
func (j *Judged) Next() string {
	if j.State.Failed() {
		return j.Why()
	}
	return ""
}
