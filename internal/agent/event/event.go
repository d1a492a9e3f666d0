// Package event judges records, JSON objects or lines of text, by the conditions and patterns of
// sources, and counts them by the prefix of their address, or by their name.
//
// In goes a source of a policy and the bytes of one record, out comes the entry to lease, or
// that the record is not meant. A record is hostile: work is linear in its size, nesting is
// bounded, and nothing is kept of it but when an address was seen. It opens no files.
package event

import (
	"errors"
	"net/netip"
	"time"

	"levee/internal/agent/ledger"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/policy"
)

// Bounds of a record.
const (
	maxDepth  = 64
	maxValues = 64 // of one field
)

// ErrMalformed is a record that is no JSON object.
var ErrMalformed = errors.New("no JSON object")

// Result says whether a record is an event of a source.
type Result uint8

const (
	Other     Result = iota // some condition does not hold
	Unmatched               // a line of its program that no pattern matches
	NoAddress               // all conditions hold, and there is no address, or no name
	Ambiguous               // several addresses can be meant
	Counted                 // it is one of several that the source asks for
	Again                   // it was judged before
	Matched
)

// Matcher judges records by one source. It is used by one goroutine.
type Matcher struct {
	judge interface {
		Match(record []byte, now time.Time) (subject, Result, error)
		When() time.Time // of the record that was matched; zero: it does not say
		Times() int      // that it stands for
		// Trouble is the reason that a list that conditions ask could not be read, nil if none
		// could not.
		Trouble() error
	}
	source  *policy.Source
	keeps   func(netip.Prefix) bool
	again   *again
	renewal uint64
	counter *Counter // nil: each record counts
	fit     fit
	feeds   feeds
}

// fit tells whether patterns fit what a program writes.
type fit struct {
	unmatched int  // lines of the program
	matched   bool // one has
	told      bool
}

// misfits is the number of lines of a program that must be read before no match is no accident.
const misfits = 1000

// New prepares the conditions and patterns of a source. old is the matcher of the source before it
// was changed, or nil: what was counted stays. keeps tells of a prefix that holds whom no entry may
// hold: of such an address alone is counted and leased. nil keeps nobody.
func New(s *policy.Source, old *Matcher, keeps func(netip.Prefix) bool) *Matcher {
	m := &Matcher{source: s, keeps: keeps, again: newAgain(), feeds: newFeeds()}
	if old != nil {
		m.feeds.had = old.feeds.now
		m.again, m.renewal = old.again, old.renewal
		if old.source.Text == s.Text {
			m.fit = old.fit
		}
	}
	if s.Format == policy.Lines {
		m.judge = newLines(s, m.feeds)
	} else {
		m.judge = newObjects(s, m.feeds)
	}
	switch {
	case s.After == 0:
	case old != nil && old.counter != nil && old.counter.is(s.After, s.Within):
		m.counter = old.counter
	default:
		m.counter = newCounter(s.After, s.Within)
	}
	m.feeds.had = nil
	return m
}

// Match judges one record that was read now.
func (m *Matcher) Match(record []byte, now time.Time) (ledger.Entry, Result, error) {
	a, r, err := m.judge.Match(record, now)
	switch r {
	case Other:
	case Unmatched:
		m.fit.unmatched++
	default:
		m.fit.matched = true
	}
	if r != Matched {
		return ledger.Entry{}, r, err
	}
	p, at := m.entry(a), m.judge.When()
	if at.IsZero() {
		at = now
	} else if m.again.is(record, p, m.renewal, at, now) {
		return p, Again, err
	}
	if m.counter == nil {
		return p, r, err
	}
	r = Counted
	for range min(m.judge.Times(), m.counter.n) {
		if m.counter.Add(p, at, now) {
			r = Matched
		}
	}
	return p, r, err
}

// Misfit reports, once, that so many lines of its program were read and none has matched.
func (m *Matcher) Misfit() (lines int, misfit bool) {
	if m.fit.matched || m.fit.told || m.fit.unmatched < misfits {
		return 0, false
	}
	m.fit.told = true
	return m.fit.unmatched, true
}

// Begin sets the renewal of the next record's place: 0 at first, and a higher number each time the
// place may repeat records that were judged already.
func (m *Matcher) Begin(renewal uint64) {
	m.renewal = renewal
	m.again.begin(renewal)
}

// Newest returns the time of the newest event that was judged and says when it was.
func (m *Matcher) Newest() time.Time { return m.again.newest }

// Resume goes on behind an event that another process has judged as its newest: a renewal that
// comes has nothing new up to that time.
func (m *Matcher) Resume(newest time.Time) {
	if newest.After(m.again.newest) {
		m.again.newest, m.again.at = newest, nil
	}
}

// subject is the address or name of an event: an address, or a name of the DNS.
type subject struct {
	addr netip.Addr
	name dnsname.Name // where addr is none
}

// entry returns what an event counts for and leases.
func (m *Matcher) entry(of subject) ledger.Entry {
	a := of.addr
	if !a.IsValid() {
		return ledger.Entry{Name: lastLabels(of.name, m.source.Labels).String()}
	}
	if p := m.source.Prefix(a); p.IsSingleIP() || m.keeps == nil || !m.keeps(p) {
		return ledger.Of(p)
	}
	return ledger.Of(netip.PrefixFrom(a, a.BitLen()))
}

// lastLabels are so many labels of a name, of 0 all, or as many more as it takes for what is below
// not to belong to many.
func lastLabels(n dnsname.Name, labels int) dnsname.Name {
	if labels == 0 {
		return n
	}
	last := n.Last(labels)
	for last != n && last.Shared() {
		labels++
		last = n.Last(labels)
	}
	return last
}

// Trouble returns why conditions are not judged as they should: a list could not be read. Its last
// contents hold meanwhile.
func (m *Matcher) Trouble() error { return m.judge.Trouble() }

// Uncounted returns how many events found no place in the memory of the counter.
func (m *Matcher) Uncounted() uint64 {
	if m.counter == nil {
		return 0
	}
	return m.counter.refused
}
