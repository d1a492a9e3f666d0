package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"levee/internal/agent/api"
	"levee/internal/agent/ledger"
	"levee/internal/agent/pubsub"
	"levee/internal/dataplane/sets"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// SetsReport are the dynamic sets in force in this network namespace.
type SetsReport struct {
	Sets []SetInForce `json:"sets"`
}

// SetInForce is one of them.
type SetInForce struct {
	Name         string  `json:"name"`
	Dev          string  `json:"dev" doc:"The interface whose policy has it."`
	Type         string  `json:"type" enum:"addresses,services,endpoints,names" doc:"Of the entries."`
	Entries      int     `json:"entries"`
	Max          int     `json:"max" doc:"Entries that it has room for."`
	LeaseSeconds float64 `json:"lease_seconds" doc:"Of entries that are added without one; 0: until deleted."`
	Refused      uint64  `json:"refused" doc:"Entries not taken because the set was full."`
	RollUp       bool    `json:"rollup"`
	Keep         bool    `json:"keep" doc:"Entries outlive a reboot."`
}

// EntryQuery chooses entries of a page.
type EntryQuery struct {
	Set    string `path:"set" maxLength:"255"`
	Dev    string `query:"dev" maxLength:"64" doc:"Of the policy on this interface; without it the first that has the set."`
	Within string `query:"within" maxLength:"64" doc:"Only entries that overlap this address or prefix."`
	After  string `query:"after" maxLength:"1022" doc:"What the page before gave as next."`
	Limit  int    `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"At most so many."`
}

// EntryPage is a part of the entries of a set, in order.
type EntryPage struct {
	Set     string  `json:"set"`
	Dev     string  `json:"dev"`
	Type    string  `json:"type" enum:"addresses,services,endpoints,names"`
	Total   int     `json:"total" doc:"Entries of the set."`
	Entries []Entry `json:"entries"`
	Next    string  `json:"next,omitempty" doc:"The place of the next page, where there is one."`
}

// Entry is one entry of a set.
type Entry struct {
	Entry        string   `json:"entry" doc:"203.0.113.9, 2001:db8::/32, tcp/443, an address with a service, or example.com."`
	LeaseSeconds float64  `json:"lease_seconds" doc:"Left; 0: until deleted."`
	Origins      []string `json:"origins" doc:"Who leases it; none, where a command has put it in."`
}

// EntriesInput are entries that are added to a set.
type EntriesInput struct {
	Set  string `path:"set" maxLength:"255"`
	Body struct {
		Entries []string `json:"entries" minItems:"1" maxItems:"10000" doc:"Addresses or prefixes; of a set of names names."`
		Lease   string   `json:"lease,omitempty" maxLength:"32" doc:"10m, 12h, 7d, or forever; without it the set's own."`
	}
}

// RemoveQuery are entries that are taken out of a set.
type RemoveQuery struct {
	Set   string   `path:"set" maxLength:"255"`
	Entry []string `query:"entry,explode" required:"true" minItems:"1" maxItems:"100" doc:"What to take out."`
}

// Removed is the answer to a request that takes entries out of a set.
type Removed struct {
	Deleted   int `json:"deleted" doc:"Entries that the kernel held, without those that a withdrawal ended."`
	Withdrawn int `json:"withdrawn" doc:"Leases, of all origins."`
}

func (a *Agent) setRoutes() []api.Route {
	return []api.Route{
		api.Get("/api/v1/sets", api.Viewer, "The dynamic sets in force, and how full they are.",
			a.sets),
		api.Get("/api/v1/sets/{set}/entries", api.Viewer,
			"Entries of a set in order, page by page, with who leases them.", a.entries),
		api.Post("/api/v1/sets/{set}/entries", api.Operator,
			"Lease entries to a set, as POST /api/v1/leases does.",
			func(ctx context.Context, in *EntriesInput) (*Added, error) {
				return a.addTo(ctx, in.Set, in.Body.Entries, in.Body.Lease)
			}),
		api.Delete("/api/v1/sets/{set}/entries", api.Operator,
			"Take entries out of a set: all leases on them, and what is then left in the kernel.",
			a.remove),
	}
}

func (a *Agent) sets(ctx context.Context, _ *none) (*SetsReport, error) {
	out := &SetsReport{Sets: []SetInForce{}}
	all, err := a.opts.Counted(ctx)
	for _, at := range all {
		for _, s := range at.Sets {
			out.Sets = append(out.Sets, SetInForce{s.Name, at.Dev, s.EntryType().String(),
				s.Entries,
				s.Max, s.Lease.Seconds(), s.Refused, s.RollUp, s.Keep})
		}
	}
	return out, err
}

func (a *Agent) entries(ctx context.Context, q *EntryQuery) (*EntryPage, error) {
	ask := sets.PageQuery{Dev: q.Dev, Most: q.Limit}
	var err error
	if q.Within != "" {
		if ask.Within, err = ParseEntry(q.Within); err != nil {
			return nil, unprocessable("query.within", err)
		}
	}
	if q.After != "" {
		typ, _ := sets.TypeOf(ctx, q.Dev, q.Set) // the page says why not
		if ask.After, err = parseElement(typ, q.After); err != nil {
			return nil, unprocessable("query.after", err)
		}
	}
	p, err := sets.ReadPage(ctx, q.Set, ask)
	if errors.Is(err, sets.ErrNoSet) {
		return nil, noSet(q.Set)
	}
	if err != nil && q.Dev != "" {
		return nil, api.Refuse(http.StatusNotFound, "query.dev: %v", err)
	}
	if err != nil {
		return nil, err
	}
	out := &EntryPage{Set: q.Set, Dev: p.Dev, Type: p.Type.String(), Total: p.Total,
		Entries: []Entry{}}
	for _, e := range p.Entries {
		one := Entry{Entry: e.Element().String(), Origins: []string{}}
		if e.Lease != sets.Forever {
			one.LeaseSeconds = e.Lease.Seconds()
		}
		out.Entries = append(out.Entries, one)
	}
	if p.More {
		out.Next = out.Entries[len(out.Entries)-1].Entry
	}
	if p.Type != policy.Addresses && p.Type != policy.Names {
		return out, nil
	}
	return out, a.do(ctx, func() error {
		held := make([]ledger.Entry, len(p.Entries))
		for i, e := range p.Entries {
			held[i] = ledger.Entry{Prefix: e.Prefix, Name: e.Name}
		}
		return a.ledger.Entries(q.Set, held, func(i int, l ledger.Lease) {
			out.Entries[i].Origins = append(out.Entries[i].Origins, l.Origin)
		})
	})
}

func unprocessable(where string, err error) error {
	return api.Refuse(http.StatusUnprocessableEntity, "%s: %v", where, err)
}

// parseElement reads one entry of a set of a type.
func parseElement(t policy.SetType, word string) (policy.Element, error) {
	all, err := literal.ParseElementsOf(t, word)
	if err == nil && len(all) != 1 {
		err = errors.New("this is a range: name its prefixes one by one")
	}
	if err != nil {
		return policy.Element{}, err
	}
	return all[0], nil
}

func (a *Agent) remove(ctx context.Context, q *RemoveQuery) (*Removed, error) {
	var elements []policy.Element
	var leased []ledger.Entry
	typ, _ := sets.TypeOf(ctx, "", q.Set) // who takes them out says why not
	for _, word := range q.Entry {
		all, err := literal.ParseElementsOf(typ, word)
		if err != nil {
			return nil, unprocessable("query.entry", err)
		}
		elements = append(elements, all...)
		for _, e := range all {
			if e.Service == (policy.Service{}) {
				leased = append(leased, ledger.Entry{Prefix: e.Prefix, Name: e.Name})
			}
		}
	}
	out := &Removed{}
	err := a.do(ctx, func() (err error) {
		if err = fitting(ctx, q.Set, elements); err != nil {
			return err
		}
		out.Withdrawn, err = a.withdrawOrOwe(ctx, func(l ledger.Lease) bool {
			return l.Set == q.Set && slices.Contains(leased, l.Entry)
		})
		if err != nil {
			return err
		}
		out.Deleted, _, err = sets.Delete(ctx, "", q.Set, elements)
		a.tellWithdrawn(ctx, out.Withdrawn+out.Deleted, "", q.Set)
		return err
	})
	if errors.Is(err, sets.ErrNoSet) {
		err = noSet(q.Set)
	}
	return out, err
}

// fitting tells whether elements are of the type of a set.
func fitting(ctx context.Context, name string, elements []policy.Element) error {
	sets, err := sets.OpenAll(ctx, name)
	if err != nil {
		return err
	}
	for _, s := range sets {
		for _, e := range elements {
			if wrong := e.Check(s.Type()); wrong != nil && err == nil {
				err = unprocessable("query.entry", wrong)
			}
		}
		s.Close()
	}
	return err
}

// tellWithdrawn tells that leases or entries were taken back.
func (a *Agent) tellWithdrawn(ctx context.Context, n int, origin, set string) {
	if n == 0 {
		return
	}
	who := api.CallerOf(ctx).Name
	text := who + " withdrew " + count(n)
	if origin != "" {
		text += fmt.Sprintf(" of origin %q", origin)
	}
	if set != "" {
		text += fmt.Sprintf(" in set %q", set)
	}
	a.opts.Log("%s", text)
	a.events.Publish(pubsub.Event{Kind: pubsub.Withdrawn, Set: set, Origin: origin, Count: n,
		Text: who + " withdrew " + count(n)})
}
