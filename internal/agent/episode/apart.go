package episode

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
)

// Telling floods apart.
const (
	mostFloods = 16 // of a detector, that are not over
	// What its rules leave of a flood comes in so long. Once they drop as much as settled of its
	// peak after that, what is too much is another vector, or another flood in its place.
	settling = 3 * time.Second
	settled  = 0.5
)

// past is a flood that has ended.
type past struct {
	kind, to string
	at       time.Time
	came     int // times that one like it had come before
}

// Floods that come again within pastLasts are pulses. Each time the rules stay twice as long as the
// time before, up to longest times quiet.
const (
	pastLasts = time.Hour
	mostPast  = 64
	longest   = 16
)

// ended notes a flood that was stopped.
func (u *unit) ended(f *flood, now time.Time) {
	if f.Acted == nil || f.State == incident.Undone {
		return
	}
	u.pasts = slices.DeleteFunc(u.pasts, func(p past) bool {
		return now.Sub(p.at) > pastLasts || p.is(f)
	})
	u.pasts = append(u.pasts, past{f.Seen.Kind, f.Seen.Destination, now, f.came})
	u.pasts = u.pasts[max(0, len(u.pasts)-mostPast):]
}

// comes notes how often a flood like one that begins has come.
func (u *unit) comes(f *flood, now time.Time) {
	for _, p := range u.pasts {
		if p.is(f) && now.Sub(p.at) <= pastLasts {
			f.came = max(f.came, p.came+1)
		}
	}
}

// is says whether a flood is of the kind of one before, to the same place.
func (p *past) is(f *flood) bool { return p.kind == f.Seen.Kind && p.to == f.Seen.Destination }

// quietFor returns how long nothing has to come of a flood until its rules go.
func (u *unit) quietFor(f *flood) time.Duration {
	times := 1
	for i := 0; i < f.came && times < longest; i++ {
		times *= 2
	}
	return time.Duration(times) * u.Quiet
}

// of returns the flood that an alarm is of, the last to begin of several; nil for one that begins.
func (u *unit) of(a *detect.Alarm) (out *flood) {
	for _, f := range u.floods {
		if f.is(a) && !(f.settled(a) && len(u.floods) < mostFloods) &&
			(out == nil || f.Seen.Kind == a.Kind.String()) {
			out = f
		}
	}
	if out == nil && len(u.floods) >= mostFloods {
		out = u.floods[len(u.floods)-1]
	}
	return out
}

// is says whether an alarm may be of a flood: its kind, or one that is part of that, goes where it
// goes.
func (f *flood) is(a *detect.Alarm) bool {
	own := kind.Of(f.Seen.Kind)
	if own != a.Kind && (f.Ended != nil || !own.Joins(a.Kind)) {
		return false
	}
	to, err := netip.ParsePrefix(f.Seen.Destination)
	return err != nil || !a.To.IsValid() || to.Overlaps(a.To)
}

// settled says whether the rules of a flood have held it, so that what is too much by itself is
// another one, also where it comes in the place of the first.
func (f *flood) settled(a *detect.Alarm) bool {
	return f.State == incident.Open && f.held && f.isLarge(a)
}

// isLarge says whether an alarm would be a flood by itself, without this one beside it.
func (f *flood) isLarge(a *detect.Alarm) bool {
	return a.Rate > max(f.Seen.Threshold, a.Kind.Row().Floor)
}

// hold notes whether the rules of a flood drop most of it, once they have been in force for a time:
// as much as before, and what they leave is none by itself.
func (f *flood) hold(now time.Time) {
	if !f.put.IsZero() && now.Sub(f.put) > settling &&
		f.drops > max(f.harmless(), settled*f.most) && !(f.on && f.isLarge(&f.alarm)) {
		f.held = true
	}
}

// What passes of a flood shortly after its rules came is left by them. As much as evaded of what
// came before is more: it has changed.
const (
	shortly = 10 * time.Second
	evaded  = 0.5
)

// changes returns how many times, one behind the other, a flood has changed since its rules came:
// as one does whose sender reads them.
func (f *flood) changes(now time.Time) int {
	if f.put.IsZero() || now.Sub(f.put) > shortly || f.was == 0 || f.alarm.All < evaded*f.was {
		return 0
	}
	return f.moved + 1
}

// named gives a flood of fragments the kind of what comes in them, once that is known.
func (f *flood) named(a *Alarm) {
	if f.Seen.Kind != kind.Fragments.String() || a.Kind == kind.Fragments || len(f.rules) > 0 ||
		f.State == incident.Undone { // it stays undone by the name that it had
		return
	}
	f.Seen.Kind, f.Seen.Rate, f.Seen.Usual = a.Kind.String(), a.Rate, a.Usual
	f.Seen.Threshold, f.dirty = a.Threshold, true
}

// sees says whether a search for one flood looks at the packets of another that passes, so that a
// rule may be of that.
func (f *flood) sees(o *flood) bool {
	return o.on && o.State == f.State && o.acts == f.acts && f.alarm.To == o.alarm.To &&
		f.alarm.From == o.alarm.From && !kind.Of(f.Seen.Kind).Joins(kind.Of(o.Seen.Kind))
}

// join hands rules that have come into force to floods that began while these were on their way: a
// search for another one has found them.
func (u *unit) join(p *pending) {
	for _, r := range p.rules {
		at := slices.IndexFunc(u.floods, func(o *flood) bool {
			return o.Seen.Kind == p.found.Kinds[r.Label] && o.rounds == 0 &&
				p.flood.sees(o)
		})
		if r.of == p.flood && at >= 0 {
			r.of = u.floods[at]
		}
	}
}

// share hands the rules that a search for one flood has found to the floods that they stop.
func (u *unit) share(f *flood, rules []*rule, kinds map[string]string) {
	given := map[*flood]int{}
	for _, r := range rules {
		at := slices.IndexFunc(u.floods, func(o *flood) bool {
			return o.Seen.Kind == kinds[r.Label] && f.sees(o)
		})
		if r.of = f; at < 0 {
			continue
		}
		r.of = u.floods[at]
		if given[r.of] == 0 {
			r.of.rounds++
		}
		label := Label(r.of.ID, r.of.rounds, given[r.of])
		given[r.of]++
		r.Rule.Rule = strings.TrimSuffix(r.Rule.Rule, `"`+r.Label+`"`) + `"` + label + `"`
		r.Label = label
	}
}
