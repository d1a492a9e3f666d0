package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"levee/internal/agent/enforce"
	"levee/internal/agent/ledger"
	"levee/internal/agent/lookup"
	"levee/internal/lang/policy"
	"levee/internal/quantity"
)

// Bounds of the time to live of an address, and how long an answer may take.
const (
	shortestTTL = 30 * time.Second
	longestTTL  = time.Hour
	hostsTTL    = time.Minute // for answers without a TTL, and for names not found
	lookupTime  = 20 * time.Second
	dialTime    = 5 * time.Second
)

// answers are those of one name, by family; nil where nobody knows.
type answers [2]*lookup.Answer

var families = [2]string{"ip4", "ip6"}

// readName looks a name up until ctx ends.
func (a *Agent) readName(ctx context.Context, l *lister) {
	for failures := 0; ; {
		var got answers
		var failed error
		least := longestTTL
		for i, family := range families {
			within, cancel := context.WithTimeout(ctx, lookupTime)
			answer, err := lookup.Lookup(within, net.Dialer{Timeout: dialTime}, family, l.DNS)
			cancel()
			if err != nil {
				failed = both(failed, err)
				continue
			}
			if answer.TTL == 0 {
				answer.TTL = hostsTTL
			}
			answer.TTL = min(max(answer.TTL, shortestTTL), longestTTL)
			got[i], least = &answer, min(least, answer.TTL)
		}
		if err := a.resolved(ctx, l, got, failed); failed == nil {
			failed = err
		}
		if failures++; failed == nil {
			failures = 0
		}
		pause := wait(least, failures, 0)
		a.in(ctx, func() { l.next(pause) })
		if !a.pause(ctx, pause) {
			return
		}
	}
}

// both is one error of up to two, in one line; the two families mostly fail alike.
func both(first, second error) error {
	if first == nil || first.Error() == second.Error() {
		return second
	}
	return fmt.Errorf("%w; %w", first, second)
}

// resolved leases the addresses of a name. Each stays for as long as the policy says when the name
// cannot be looked up any more, and for its time to live when the name has others. A family without
// addresses counts as a failed look-up.
func (a *Agent) resolved(ctx context.Context, l *lister, got answers, failed error) error {
	leases, err := a.leased(ctx, l)
	if err != nil {
		a.in(ctx, func() { l.failed(err) })
		return err
	}
	ends := map[ledger.Entry]time.Time{}
	now := time.Now()
	skipped, example := 0, ""
	for i, answer := range got {
		if answer == nil || len(answer.Addresses) == 0 {
			continue
		}
		for p, until := range leases {
			if p.Prefix.Addr().Is4() == (i == 0) {
				if end := now.Add(answer.TTL); until.IsZero() || until.After(end) {
					until = end
				}
				ends[p] = until
			}
		}
		for _, addr := range answer.Addresses {
			p := ledger.Of(netip.PrefixFrom(addr, addr.BitLen()))
			term := max(l.Lease, answer.TTL)
			ends[p] = now.Add(term)
			// not each answer is worth a write to the disk
			if was := leases[p]; now.Add(term-term/64).Before(was) && was.Before(now.Add(term)) {
				ends[p] = was
			}
		}
		if skipped += answer.Left; answer.Left > 0 {
			example = fmt.Sprintf("%s: %d of them taken", quantity.Plural(answer.Left+
				len(answer.Addresses), "address"), len(answer.Addresses))
		}
	}
	out, err := a.give(ctx, &claim{set: l.Set.Name, origin: l.Name, exempt: true,
		until: endings(ends)})
	if err == nil {
		leases, err = a.leased(ctx, l)
	}
	a.in(ctx, func() {
		l.status.Skipped, l.status.Example, l.status.Refused = skipped, example, out.refused
		l.status.Error = ""
		switch {
		case err != nil:
			l.failed(err)
			return
		case failed != nil:
			l.failed(failed)
		default:
			l.read(now)
		}
		l.status.Entries = len(leases)
		if failed == nil && len(leases) == 0 {
			l.status.Error = "the name has no address"
		}
	})
	if out.added > 0 && err == nil {
		a.opts.Log("name %s: %s, %d of them new", l.DNS,
			quantity.Plural(len(leases), "address"), out.added)
	}
	return err
}

// refuses says why a lease may not be, "" if it may. Sets of names hold whom the policy names, so
// that a protect rule can ask them.
func (a *Agent) refuses(protected *enforce.Protected, l *ledger.Lease) string {
	if !strings.HasPrefix(l.Origin, policy.DNSOrigin) {
		return refuses(protected, l.Entry)
	}
	for _, n := range a.lists {
		if n.DNS != "" && n.Set.Name == l.Set && n.Name == l.Origin {
			return refuses(nobody, l.Entry)
		}
	}
	return refuses(protected, l.Entry)
}

// nobody keeps nobody: it refuses what no host can have.
var nobody = &enforce.Protected{}

// sameList tells whether two lists are one to the ledger.
func sameList(a, b *policy.List) bool {
	return a.Name == b.Name && (a.DNS == "" || a.Set.Name == b.Set.Name)
}
