package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"levee/internal/agent/ledger"
	"levee/internal/agent/part"
	"levee/internal/lang/dnsname"
)

// Status is the agent's report on its sources, its lists and its work.
type Status struct {
	Since    time.Time      `json:"since"`
	Enforced float64        `json:"enforced_percent"` // of the entries, at the last comparison; 0 before
	Compare  CompareStatus  `json:"compare"`
	Sources  []SourceStatus `json:"sources"`
	Lists    []ListStatus   `json:"lists"`
	Sets     []SetStatus    `json:"sets"`
	Refused  uint64         `json:"refused"` // entries about addresses or names that no list may have
	Refusals []Refusal      `json:"refusals"`
	Full     uint64         `json:"full"` // leases not taken, as the ledger was full
	Alarms   []Alarm        `json:"alarms"`
	Parts    []part.Status  `json:"parts"`
	Ledger   LedgerStatus   `json:"ledger"`
}

// CompareStatus is the last comparison of the ledger with the kernel.
type CompareStatus struct {
	At       time.Time `json:"at,omitzero"` // unset while the ledger has never been open
	Seconds  float64   `json:"seconds"`     // that it took
	Leases   int       `json:"leases"`
	Entries  int       `json:"entries"`
	Held     int       `json:"held"`     // by the kernel, once it was repaired
	Repaired uint64    `json:"repaired"` // since the agent began
	Waiting  int       `json:"waiting"`  // entries that the ledger could not take yet
}

// SourceStatus is one source since the agent began.
type SourceStatus struct {
	Name       string  `json:"name"`
	Path       string  `json:"path"`
	Events     uint64  `json:"events"`
	Matched    uint64  `json:"matched"`
	NoAddress  uint64  `json:"no_address"` // matched, without an address
	Counted    uint64  `json:"counted"`    // matched, and not yet as many as the source asks for
	Ambiguous  uint64  `json:"ambiguous"`  // could mean several addresses
	Again      uint64  `json:"again"`      // were judged before
	Uncounted  uint64  `json:"uncounted"`  // found no room to be counted
	Malformed  uint64  `json:"malformed"`
	TooLong    uint64  `json:"too_long"`
	Rotations  uint64  `json:"rotations"`
	LagBytes   int64   `json:"lag_bytes"`
	LagLines   int64   `json:"lag_lines"`
	Peers      int     `json:"peers"`       // connected to a socket
	Flows      uint64  `json:"flows"`       // of a stream, that were read
	Unknown    uint64  `json:"unknown"`     // of these could not be read, or are no such stream
	Lost       uint64  `json:"lost"`        // packets of flows that there was no room for
	LagSeconds float64 `json:"lag_seconds"` // since all was read
	Error      string  `json:"error,omitempty"`

	current time.Time
}

// SetStatus is one set at the last comparison.
type SetStatus struct {
	Name     string `json:"name"`
	Entries  int    `json:"entries"`
	Missing  int    `json:"missing"` // also after the repair
	Repaired int    `json:"repaired"`
	Error    string `json:"error,omitempty"`

	err error // the same
}

// Refusal is an entry about an address or a name that no list may have.
type Refusal struct {
	At     time.Time `json:"at"`
	Entry  string    `json:"entry"`
	Set    string    `json:"set"`
	Origin string    `json:"origin"`
	Why    string    `json:"why"`
	Count  uint64    `json:"count"`
}

// Alarm is a failure that an operator should look at.
type Alarm struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
	Part string    `json:"part,omitempty"` // that does not work; none: it has happened
}

// LedgerStatus is the file of leases.
type LedgerStatus struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	Leases int    `json:"leases"` // with those that have ended and were not swept
}

// Filter chooses leases; an empty field chooses all.
type Filter struct {
	Set     string         `json:"set"`
	Origin  string         `json:"origin"`
	Entries []ledger.Entry `json:"entries"`
}

// Match tells whether a lease is chosen.
func (f *Filter) Match(l ledger.Lease) bool {
	return (f.Set == "" || f.Set == l.Set) && (f.Origin == "" || f.Origin == l.Origin) &&
		(len(f.Entries) == 0 || slices.Contains(f.Entries, l.Entry))
}

// maxWider is the number of wider leases that are named.
const maxWider = 8

// Noting is Match, which notes in w the leases that are not chosen and hold an entry that is:
// whoever names an address may mean the network that was leased for it.
func (f *Filter) Noting(w *Withdrawn) func(ledger.Lease) bool {
	return func(l ledger.Lease) bool {
		if f.Match(l) {
			return true
		}
		if (f.Set == "" || f.Set == l.Set) && (f.Origin == "" || f.Origin == l.Origin) &&
			len(w.Wider) < maxWider && !slices.Contains(w.Wider, l.Entry.Text()) &&
			slices.ContainsFunc(f.Entries, func(e ledger.Entry) bool {
				return wider(l.Entry, e)
			}) {
			w.Wider = append(w.Wider, l.Entry.Text())
		}
		return false
	}
}

// wider tells whether an entry holds another one, and more.
func wider(e, of ledger.Entry) bool {
	if e.Name == "" || of.Name == "" {
		return e.Name == of.Name && e.Prefix.Bits() < of.Prefix.Bits() &&
			e.Prefix.Contains(of.Prefix.Addr())
	}
	above, _ := dnsname.Parse(e.Name)
	below, _ := dnsname.Parse(of.Name)
	return e != of && below.Name.Last(above.Name.Labels()) == above.Name &&
		(above.Name != below.Name || !above.Below)
}

// Listed is one lease as it is listed.
type Listed struct {
	Set    string    `json:"set"`
	Entry  string    `json:"entry"`
	Origin string    `json:"origin"`
	Since  time.Time `json:"since"`
	// left; 0: until withdrawn
	LeaseSeconds float64 `json:"lease_seconds"`
}

// newListed returns a lease as it is listed.
func newListed(of *ledger.Lease, now time.Time) Listed {
	e := Listed{Set: of.Set, Entry: of.Entry.String(), Origin: of.Origin, Since: of.Since}
	if !of.Until.IsZero() {
		e.LeaseSeconds = of.Until.Sub(now).Seconds()
	}
	return e
}

// List returns the chosen leases that have not ended.
func List(l *ledger.Ledger, f *Filter) ([]Listed, error) {
	out := []Listed{}
	now := time.Now()
	err := l.Each(func(of ledger.Lease) bool {
		if !of.Ended(now) && f.Match(of) {
			out = append(out, newListed(&of, now))
		}
		return true
	})
	return out, err
}

// current returns the status now.
func (a *Agent) current() Status {
	s := a.status
	switch {
	case s.Compare.At.IsZero():
		s.Enforced = 0 // nobody knows
	case s.Compare.Entries+s.Compare.Waiting > 0:
		s.Enforced = 100 * float64(s.Compare.Held) / float64(s.Compare.Entries+s.Compare.Waiting)
	default:
		s.Enforced = 100
	}
	s.Sources, s.Sets = []SourceStatus{}, append([]SetStatus{}, a.status.Sets...)
	for _, src := range a.sources {
		st := src.status
		st.LagSeconds = time.Since(st.current).Seconds()
		s.Sources = append(s.Sources, st)
	}
	s.Lists = []ListStatus{}
	for _, l := range a.lists {
		s.Lists = append(s.Lists, l.status)
	}
	slices.SortFunc(s.Sets, func(x, y SetStatus) int { return strings.Compare(x.Name, y.Name) })
	s.Refusals = append([]Refusal{}, a.status.Refusals...)
	s.Parts = a.parts.List()
	s.Alarms = a.alarms(s.Parts)
	s.Ledger.Bytes, s.Ledger.Leases = a.ledger.Bytes(), a.ledger.Leases()
	return s
}

func count(n int) string {
	if n == 1 {
		return "1 lease"
	}
	return fmt.Sprintf("%d leases", n)
}
