package sets

import (
	"context"
	"net/netip"
	"slices"

	"levee/internal/lang/policy"
)

// SetPage is a part of the entries of a set.
type SetPage struct {
	Dev     string
	Type    policy.SetType
	Total   int     // entries of the set
	Entries []Entry // in the order of SetList
	More    bool    // there are others behind them
}

// PageQuery chooses entries of a set.
type PageQuery struct {
	Dev    string         // "": the first interface that has the set
	After  policy.Element // entries behind it; zero: from the first on
	Within netip.Prefix   // only entries that overlap it; zero: all
	Most   int
}

// ReadPage reads a part of a set, and keeps no more than twice as much of it in memory.
func ReadPage(ctx context.Context, name string, q PageQuery) (*SetPage, error) {
	sets, err := openSets(ctx, q.Dev, name)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, s := range sets {
			s.Close()
		}
	}()
	s := sets[0]
	if err := s.Hold(ctx); err != nil {
		return nil, err
	}
	defer s.Release()
	m := s.Maps[0]
	m.Expire(m.Now())
	out := &SetPage{Dev: s.dev, Type: s.typ, Total: m.Len()}
	after := EntryOf(q.After, 0)
	begins := q.After == policy.Element{}
	for e, expires := range m.All() {
		entry := EntryOf(e, m.left(expires))
		if !begins && compareEntries(entry, after) <= 0 ||
			q.Within.IsValid() && !(e.Prefix.IsValid() && e.Prefix.Overlaps(q.Within)) {
			continue
		}
		if out.Entries = append(out.Entries, entry); len(out.Entries) >= 2*q.Most+2 {
			out.cut(q.Most)
		}
	}
	out.cut(q.Most)
	return out, nil
}

// cut leaves the first entries.
func (p *SetPage) cut(most int) {
	sortedEntries(p.Entries)
	if len(p.Entries) > most {
		p.Entries, p.More = slices.Delete(p.Entries, most, len(p.Entries)), true
	}
}
