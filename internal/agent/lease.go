package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"levee/internal/agent/api"
	"levee/internal/agent/ledger"
	"levee/internal/agent/pubsub"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/names"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/quantity"
)

// leaseSet returns the dynamic set of addresses or names of a name, of the policies that are
// followed.
func (a *Agent) leaseSet(name string) (*policy.Set, error) {
	for _, p := range a.policies {
		for _, s := range p.Sets {
			switch {
			case s.Name != name || s.Kind != policy.Dynamic:
			case s.Type != policy.Addresses && s.Type != policy.Names:
				return nil, api.Refuse(http.StatusConflict, "set %s holds %s, which cannot be "+
					"leased by origin: add them with levee set add", name, s.Type)
			default:
				return s, nil
			}
		}
	}
	return nil, noSet(name)
}

// noRoom says that so many entries find no room in a set, and what to do.
func noRoom(set *policy.Set, n int) string {
	why, do := full(set.Type)
	return fmt.Sprintf("set %s has no room for %s: %s: %s", set.Name, entryCount(n), why, do)
}

// full returns the reason that a set of a type has no room, and what to do.
func full(of policy.SetType) (why, do string) {
	if of != policy.Names {
		return "it is full", "raise max in the policy, and levee up it"
	}
	return "it has max, its names have more than 35 letters on average, or they have " +
			fmt.Sprint(names.MaxCodes) + " different numbers of labels",
		"raise max in the policy for the first two, and levee up it; no max changes the third: " +
			"withdraw those of one number"
}

func noSet(name string) error {
	return api.Refuse(http.StatusNotFound, "no policy in force has a dynamic set %.60q: "+
		"`levee status` and GET /api/v1/sets list them", name)
}

// lease puts entries into a set under an origin, all or none. lasts is 0 for the set's own lease,
// and less for one until it is withdrawn.
func (a *Agent) lease(ctx context.Context, name string, some []ledger.Entry, origin string,
	lasts time.Duration) error {
	set, err := a.leaseSet(name)
	if err != nil {
		return err
	}
	if lasts == 0 {
		lasts = set.Lease
	}
	protected := a.protected(ctx)
	now := a.now()
	var leases []ledger.Lease
	entries := map[string][]sets.Entry{}
	for _, p := range some {
		if wrong := (policy.Element{Prefix: p.Prefix, Name: p.Name}).Check(set.Type); wrong != nil {
			return api.Refuse(http.StatusUnprocessableEntity, "%v; nothing was added", wrong)
		}
		if why := refuses(protected, p); why != "" {
			return api.Refuse(http.StatusUnprocessableEntity, "%s may be no entry: %s; nothing "+
				"was added", p, why)
		}
		l := ledger.Lease{Set: name, Entry: p, Origin: origin, Since: now}
		e := entryOf(p, sets.Forever)
		if lasts > 0 {
			l.Until, e.Lease = now.Add(lasts), lasts
		}
		leases = append(leases, l)
		entries[name] = append(entries[name], e)
	}
	fresh, err := a.fresh(name, origin, some)
	if err != nil {
		return err
	}
	err = a.wrote(a.ledger.Record(append(leases, a.found(ctx, entries, now)...), nil))
	if errors.Is(err, ledger.ErrFull) {
		return api.Refuse(http.StatusInsufficientStorage, "%v: withdraw what is no longer needed",
			err)
	}
	if err != nil {
		return err
	}
	_, left, err := a.opts.Kernel.Raise(ctx, name, entries[name], now)
	if err == nil && left == 0 {
		return nil
	}
	if errors.Is(err, sets.ErrNoSet) {
		err = noSet(name)
	} else if err == nil {
		err = api.Refuse(http.StatusConflict, "%s; nothing was added", noRoom(set, left))
	}
	_, undone := a.withdrawOrOwe(ctx, func(l ledger.Lease) bool {
		return l.Set == name && l.Origin == origin && fresh[l.Entry]
	})
	return errors.Join(err, undone)
}

// fresh returns the entries of a set that an origin does not lease.
func (a *Agent) fresh(set, origin string, some []ledger.Entry) (map[ledger.Entry]bool, error) {
	out := make(map[ledger.Entry]bool, len(some))
	for _, p := range some {
		out[p] = true
	}
	return out, a.ledger.Entries(set, some, func(_ int, l ledger.Lease) {
		if l.Origin == origin {
			delete(out, l.Entry)
		}
	})
}

// AddInput are entries that are leased.
type AddInput struct {
	Body struct {
		Set     string   `json:"set" minLength:"1" maxLength:"255" doc:"A dynamic set of addresses or of names."`
		Entries []string `json:"entries" minItems:"1" maxItems:"10000" doc:"Addresses or prefixes; of a set of names names."`
		Lease   string   `json:"lease,omitempty" maxLength:"32" doc:"10m, 12h, 7d, or forever; without it the set's own."`
		Origin  string   `json:"origin,omitempty" maxLength:"128" doc:"Whose leases they are. Only at the agent's socket."`
	}
}

// Added is the answer to a request that leases entries.
type Added struct {
	Leased int    `json:"leased" doc:"Entries, those that were leased before among them."`
	Origin string `json:"origin" doc:"Whose leases they are: of the token, or command."`
}

func (a *Agent) add(ctx context.Context, in *AddInput) (*Added, error) {
	origin := api.CallerOf(ctx).Origin(policy.CommandOrigin)
	if named := in.Body.Origin; named != "" {
		if origin != policy.CommandOrigin {
			return nil, api.Refuse(http.StatusUnprocessableEntity,
				"body.origin: a token's leases are its own")
		}
		if err := checkOrigin(named); err != nil {
			return nil, err
		}
		origin = named
	}
	return a.addAs(ctx, in.Body.Set, in.Body.Entries, in.Body.Lease, origin)
}

// maxOrigin is the largest number of bytes that the origin of another program may have: a jail of
// fail2ban, say.
const maxOrigin = 128

// checkOrigin refuses what no program may be called: names with a colon are levee's own.
func checkOrigin(name string) error {
	if name == "" || len(name) > maxOrigin || !utf8.ValidString(name) ||
		strings.TrimSpace(name) != name || strings.ContainsFunc(name, func(c rune) bool {
		return c == ':' || !unicode.IsPrint(c)
	}) {
		return api.Refuse(http.StatusUnprocessableEntity, "%.40q is no name of an origin: it has "+
			"1 to %d bytes that can be printed, no colon, and no blank at an end", name, maxOrigin)
	}
	return nil
}

// LeaseOnce leases entries where no agent runs, as a running one does. It returns how many.
func LeaseOnce(ctx context.Context, l *ledger.Ledger, o Options, in *AddInput) (int, error) {
	a := &Agent{opts: o, ledger: l, told: map[string]time.Time{}, events: &pubsub.Hub{}}
	origin := policy.CommandOrigin
	if in.Body.Origin != "" {
		origin = in.Body.Origin
	}
	if err := checkOrigin(origin); err != nil {
		return 0, err
	}
	f, err := newFilter("", "", in.Body.Entries)
	if err != nil {
		return 0, err
	}
	lasts, err := parseLease(in.Body.Lease)
	if err != nil {
		return 0, err
	}
	if _, err := o.InForce(ctx); err != nil {
		return 0, err
	}
	if a.policies, err = o.Policies(ctx); err != nil {
		return 0, err
	}
	return len(f.Entries), a.lease(ctx, in.Body.Set, f.Entries, origin, lasts)
}

func (a *Agent) addTo(ctx context.Context, set string, words []string, lease string) (*Added,
	error) {
	return a.addAs(ctx, set, words, lease, api.CallerOf(ctx).Origin(policy.CommandOrigin))
}

func (a *Agent) addAs(ctx context.Context, set string, words []string, lease, origin string) (
	*Added, error) {
	f, err := newFilter("", "", words)
	if err != nil {
		return nil, err
	}
	lasts, err := parseLease(lease)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(f.Entries, ledger.Entry.Compare)
	f.Entries = slices.Compact(f.Entries)
	out := &Added{Leased: len(f.Entries), Origin: origin}
	err = a.do(ctx, func() error {
		if err := a.lease(ctx, set, f.Entries, out.Origin, lasts); err != nil {
			return err
		}
		e := pubsub.Event{Kind: pubsub.Leased, Set: set, Origin: out.Origin, Count: out.Leased,
			Text: fmt.Sprintf("%s leased to %s by %s", entryCount(out.Leased), set, out.Origin)}
		if out.Leased == 1 {
			e.Entry = f.Entries[0].String()
		}
		a.events.Publish(e)
		a.opts.Log("%s", e.Text)
		return nil
	})
	return out, err
}

// parseLease reads a lease as the API has it; less than 0 is until withdrawn.
func parseLease(s string) (time.Duration, error) {
	switch s {
	case "":
		return 0, nil
	case "forever":
		return -1, nil
	}
	d, err := literal.ParseLease(s)
	if err != nil {
		return 0, api.Refuse(http.StatusUnprocessableEntity, "body.lease: %v", err)
	}
	return d, nil
}

func entryCount(n int) string { return quantity.Plural(n, "entry") }

// tellRepaired tells of entries that the kernel had lost.
func (a *Agent) tellRepaired(st *SetStatus) {
	a.events.Publish(pubsub.Event{Kind: pubsub.Repaired, Set: st.Name, Count: st.Repaired,
		Text: entryCount(st.Repaired) + " that the kernel lacked: there again"})
}
