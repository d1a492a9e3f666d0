package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"levee/internal/agent/api"
	"levee/internal/agent/ledger"
	"levee/internal/agent/notify"
	"levee/internal/lang/literal"
)

// do runs fn in its turn in the loop, where all that the agent knows may be read and changed. It
// does not where ctx ends before.
func (a *Agent) do(ctx context.Context, fn func() error) error {
	var err error
	done := make(chan struct{})
	select {
	case a.ops <- func() {
		defer close(done)
		if err = ctx.Err(); err == nil {
			err = fn()
		}
		if errors.Is(err, ledger.ErrClosed) {
			err = api.Refuse(http.StatusServiceUnavailable, "%v: levee agent status says why",
				ledger.ErrClosed)
		}
	}:
		<-done
		return err
	case <-a.gone:
		return api.Refuse(http.StatusServiceUnavailable, "the agent ends: ask again when it runs")
	case <-ctx.Done():
		return ctx.Err()
	}
}

type none struct{}

// SourcesReport are the sources.
type SourcesReport struct {
	Sources []SourceStatus `json:"sources"`
}

// LeaseQuery chooses leases of a page.
type LeaseQuery struct {
	Set    string   `query:"set" maxLength:"255" doc:"Only of this set."`
	Origin string   `query:"origin" maxLength:"255" doc:"Only of this origin."`
	Entry  []string `query:"entry,explode" maxItems:"100" doc:"Only these addresses, prefixes or names."`
	After  string   `query:"after" maxLength:"2052" doc:"What the page before gave as next."`
	Limit  int      `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"At most so many."`
}

// LeasePage is a part of a list of leases.
type LeasePage struct {
	Leases []Listed `json:"leases"`
	Next   string   `json:"next,omitempty" doc:"The place of the next page, where there is one; a page may be short."`
}

// WithdrawInput chooses leases that are withdrawn.
type WithdrawInput struct {
	Body struct {
		Set     string   `json:"set,omitempty" maxLength:"255" doc:"Only of this set."`
		Origin  string   `json:"origin,omitempty" maxLength:"255" doc:"Only of this origin."`
		Entries []string `json:"entries,omitempty" maxItems:"10000" doc:"Only these addresses, prefixes or names."`
		All     bool     `json:"all,omitempty" doc:"All leases: needed where nothing else is chosen."`
	}
}

// Withdrawn counts the leases that were withdrawn.
type Withdrawn struct {
	Withdrawn int      `json:"withdrawn"`
	Wider     []string `json:"wider,omitempty" doc:"Leased prefixes that stay and hold an entry that was named; at most 8."`
}

// routes returns the routes of the agent itself.
func (a *Agent) routes() []api.Route {
	return append(a.setRoutes(),
		api.Get("/api/v1/status", api.Viewer,
			"What the agent reads, holds and refuses, and its alarms.",
			func(ctx context.Context, _ *none) (out *Status, err error) {
				err = a.do(ctx, func() error { s := a.current(); out = &s; return nil })
				return out, err
			}),
		api.Get("/api/v1/parts", api.Viewer, "The parts of the agent: which of them work, since "+
			"when, "+
			"what they saw last, and what to do about those that do not.",
			func(context.Context, *none) (*PartsReport, error) {
				return &PartsReport{a.parts.List()}, nil
			}),
		api.Get("/api/v1/sources", api.Viewer, "The sources, how far each is behind, and what is "+
			"wrong.",
			func(ctx context.Context, _ *none) (out *SourcesReport, err error) {
				err = a.do(ctx,
					func() error { out = &SourcesReport{a.current().Sources}; return nil })
				return out, err
			}),
		api.Get("/api/v1/leases", api.Viewer, "Leases that have not ended, page by page.", a.page),
		api.Post("/api/v1/leases/withdraw", api.Operator,
			"Take leases back, of an origin, a set, entries, or what is all of these.",
			a.withdrawChosen),
		api.Post("/api/v1/leases", api.Operator,
			"Lease entries to a dynamic set, all or none, under the name of the token.", a.add),
		api.Get("/api/v1/notifications", api.Viewer,
			"Who is notified of what, and what became of the messages.",
			func(context.Context, *none) (*NotifyReport, error) {
				return &NotifyReport{a.notified()}, nil
			}),
		api.Post("/api/v1/notifications/{name}/test", api.Operator,
			"Send a message to a target of notifications at once, which its limit does not count: "+
				"5 a minute at most.",
			a.testNotification),
		api.Get("/api/v1/lists/held", api.Viewer,
			"Changes of lists that wait until they are accepted.", a.heldQuery),
		api.Post("/api/v1/lists/accept", api.Operator, "Take a change of a list that waits.",
			a.acceptQuery),
		api.Stream("/api/v1/events", api.Viewer, "What happens, as it happens.", a.events.Watch),
	)
}

// TestInput names a target of notifications.
type TestInput struct {
	Name string `path:"name" maxLength:"32" doc:"The target."`
}

// testNotification sends a message to a target.
func (a *Agent) testNotification(ctx context.Context, in *TestInput) (*NotifyReport, error) {
	err := notify.ErrNoTarget
	if a.opts.Notifier != nil {
		err = a.opts.Notifier.Test(ctx, in.Name)
	}
	switch {
	case errors.Is(err, notify.ErrNoTarget):
		return nil, api.Refuse(http.StatusNotFound, "%v", err)
	case errors.Is(err, notify.ErrTested):
		return nil, api.Refuse(http.StatusTooManyRequests, "%v", err)
	case err != nil:
		return nil, api.Refuse(http.StatusBadGateway, "%s was not told: %v", in.Name, err)
	}
	return &NotifyReport{a.notified()}, nil
}

// NotifyReport are the targets of notifications.
type NotifyReport struct {
	Targets []notify.Status `json:"targets"`
}

func (a *Agent) notified() []notify.Status {
	if a.opts.Notifier == nil {
		return []notify.Status{}
	}
	return a.opts.Notifier.Status()
}

func (a *Agent) page(ctx context.Context, q *LeaseQuery) (*LeasePage, error) {
	f, err := newFilter(q.Set, q.Origin, q.Entry)
	if err != nil {
		return nil, err
	}
	out := &LeasePage{Leases: []Listed{}}
	err = a.do(ctx, func() (err error) {
		now := time.Now()
		out.Next, err = a.ledger.Page(q.After, func(l ledger.Lease) bool {
			if !l.Ended(now) && f.Match(l) {
				out.Leases = append(out.Leases, newListed(&l, now))
			}
			return len(out.Leases) < q.Limit
		})
		return err
	})
	if errors.Is(err, ledger.ErrPlace) {
		err = api.Refuse(http.StatusUnprocessableEntity, "query.after: %v", err)
	}
	return out, err
}

func (a *Agent) withdrawChosen(ctx context.Context, in *WithdrawInput) (*Withdrawn, error) {
	b := &in.Body
	f, err := newFilter(b.Set, b.Origin, b.Entries)
	if err != nil {
		return nil, err
	}
	if none := f.Set == "" && f.Origin == "" && len(f.Entries) == 0; none != b.All {
		return nil, api.Refuse(http.StatusUnprocessableEntity,
			"say which: set, origin, entries, or all alone")
	}
	out := &Withdrawn{}
	err = a.do(ctx, func() (err error) {
		if out.Withdrawn, err = a.withdrawOrOwe(ctx, f.Noting(out)); err == nil {
			a.tellWithdrawn(ctx, out.Withdrawn, f.Origin, f.Set)
		}
		return err
	})
	return out, err
}

// newFilter reads what chooses leases.
func newFilter(set, origin string, entries []string) (*Filter, error) {
	f := &Filter{Set: set, Origin: origin}
	for _, word := range entries {
		p, err := ParseLeased(word)
		if err != nil {
			return nil, api.Refuse(http.StatusUnprocessableEntity, "%v", err)
		}
		f.Entries = append(f.Entries, p)
	}
	return f, nil
}

// ParseLeased reads an entry as it is leased: an address, a prefix, or a name that ends in no
// number, as an address does that is mistyped.
func ParseLeased(word string) (ledger.Entry, error) {
	p, err := ParseEntry(word)
	if err == nil {
		return ledger.Of(p), nil
	}
	n, wrong := literal.Name(word)
	if wrong.Found() || literal.AllDigits(n.Name.Last(1).String()) {
		return ledger.Entry{}, fmt.Errorf("%.60q is no address, prefix or name", word)
	}
	return ledger.Entry{Name: n.String()}, nil
}

// ParseEntry reads an address or a prefix.
func ParseEntry(word string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(word)
	if err != nil {
		a, aerr := netip.ParseAddr(word)
		if aerr != nil || a.Zone() != "" {
			return p, fmt.Errorf("%.60q is no address or prefix", word)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	return p.Masked(), nil
}
