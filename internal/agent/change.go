package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"levee/internal/agent/enforce"
	"levee/internal/agent/feed"
	"levee/internal/agent/ledger"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/literal"
)

// held is a change of a list that waits until somebody has looked at it.
type held struct {
	since          time.Time
	list           *feed.List
	state          feed.State
	added, removed []ledger.Entry
	why            string // it waits; "" if it does not
}

// HeldSize is the size of a change that waits.
type HeldSize struct {
	Since   time.Time `json:"since"`
	Added   int       `json:"added"`
	Removed int       `json:"removed"`
	Why     string    `json:"why"`
}

// Held is a change that waits, as it is shown.
type Held struct {
	Source  string    `json:"source"`
	Set     string    `json:"set"`
	Since   time.Time `json:"since"`
	Entries int       `json:"entries"` // that the list would have
	Added   []string  `json:"added"`
	Removed []string  `json:"removed"`
}

// difference returns what a list would change, without entries that are refused in any case, and
// whether that waits, as it is more than a part of what there was.
func difference(protected *enforce.Protected, r *feed.Result, leases map[ledger.Entry]time.Time,
	part float64) *held {
	h := &held{since: time.Now(), list: r.List, state: r.State}
	had := 0
	h.added = make([]ledger.Entry, 0, max(0, r.List.Len()-len(leases)))
	for p := range r.List.Entries() {
		if _, there := leases[p]; there {
			had++
		} else if refuses(protected, p) == "" {
			h.added = append(h.added, p)
		}
	}
	for p := range leases {
		if had == len(leases) {
			break
		}
		if !r.List.Has(p) {
			h.removed = append(h.removed, p)
		}
	}
	slices.SortFunc(h.removed, ledger.Entry.Compare)
	h.why = h.waitsFor(part, leases)
	return h
}

// What may always come or go, but not all of a list, and what waits in any case.
const (
	smallChange = 10       // entries
	smallSpace  = 10 << 8  // IPv4 addresses: ten /24
	smallSpace6 = 10 << 16 // networks of 64 bits: ten /48
	mostShare   = 0.125    // of the public addresses of a family
)

// widest are the lengths of prefixes, by family, of which a wider one waits: more of IPv4 than most
// providers have, and of IPv6 what 16 of them get (RFC 6177 leaves a /32 for one).
var widest = [2]int{12, 28}

// waitsFor says why a change waits, "" if it does not. Where there was nothing, only its share of
// the Internet counts, and how wide its prefixes are.
func (h *held) waitsFor(part float64, leases map[ledger.Entry]time.Time) string {
	stays := maps.Clone(leases)
	for _, p := range h.removed {
		delete(stays, p)
	}
	kept := slices.Collect(maps.Keys(stays))
	before := spaceOf(prefixesOf(slices.Collect(maps.Keys(leases))))
	left := spaceOf(prefixesOf(kept))
	all := spaceOf(prefixesOf(kept, h.added))
	for family, public := range public {
		share := float64(all.public[family]) / float64(public)
		if share > mostShare && all.public[family] > before.public[family] {
			return fmt.Sprintf("the list would hold %.0f %% of all public IPv%d addresses",
				100*share, []int{4, 6}[family])
		}
	}
	if i := slices.IndexFunc(h.added, ofRegistry); i >= 0 {
		return fmt.Sprintf("the list would hold %v, and so all names below it", h.added[i])
	}
	if p, ok := h.wide(leases); ok {
		return fmt.Sprintf("the list would hold %v, which is wider than a /%d", p,
			widest[familyOf(p)])
	}
	had := len(leases)
	if had == 0 {
		return ""
	}
	if len(h.added)+len(stays) == 0 {
		return "the list has no entries"
	}
	if most := max(smallChange, int(part*float64(had))); len(h.added) > most ||
		len(h.removed) > most {
		return fmt.Sprintf("the list changes by more than %.0f %% of its entries", 100*part)
	}
	for family, small := range [2]uint64{smallSpace, smallSpace6} {
		most := max(small, uint64(part*float64(before.all[family])))
		if all.all[family]-left.all[family] > most || before.all[family]-left.all[family] > most {
			return fmt.Sprintf("the list changes by more than %.0f %% of its addresses", 100*part)
		}
	}
	return ""
}

// ofRegistry says whether an entry is a name that a registry has: such a one in a list is a
// mistake, or an attack.
func ofRegistry(e ledger.Entry) bool {
	if e.Name == "" {
		return false
	}
	p, err := dnsname.Parse(e.Name)
	return err == nil && p.Name.Registry()
}

// prefixesOf returns the prefixes among entries.
func prefixesOf(of ...[]ledger.Entry) []netip.Prefix {
	n := 0
	for _, some := range of {
		n += len(some)
	}
	out := make([]netip.Prefix, 0, n)
	for _, some := range of {
		for _, e := range some {
			if e.Name == "" {
				out = append(out, e.Prefix)
			}
		}
	}
	return out
}

// wide returns a new prefix of public addresses, wider than any that the list had and too wide to
// be taken unseen.
func (h *held) wide(leases map[ledger.Entry]time.Time) (netip.Prefix, bool) {
	most := widest
	for _, p := range prefixesOf(slices.Collect(maps.Keys(leases))) {
		most[familyOf(p)] = min(most[familyOf(p)], p.Bits())
	}
	added := prefixesOf(h.added)
	i := slices.IndexFunc(added, func(p netip.Prefix) bool {
		return p.Bits() < most[familyOf(p)] && spaceOf([]netip.Prefix{p}).public[familyOf(p)] > 0
	})
	if i < 0 {
		return netip.Prefix{}, false
	}
	return added[i], true
}

// familyOf returns 0 for IPv4, 1 for IPv6.
func familyOf(p netip.Prefix) int {
	if p.Addr().Is6() {
		return 1
	}
	return 0
}

// space is the size of what prefixes cover, IPv4 in addresses, IPv6 in networks of 64 bits.
type space struct{ all, public [2]uint64 }

// special are the blocks of IPv4 that are not public (IANA, Special-Purpose Address Registry), with
// those above 224.0.0.0; of IPv6 all but 2000::/3.
var special = func() (out []netip.Prefix) {
	for _, p := range []string{"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8",
		"169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3"} {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}()

var unicast6 = netip.MustParsePrefix("2000::/3")

var public = spaceOf([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), unicast6}).public

// spaceOf measures prefixes, which it may put into another order.
func spaceOf(prefixes []netip.Prefix) (s space) {
	for _, p := range literal.MergePrefixes(prefixes) {
		if p.Addr().Is6() {
			n := size(64, min(64, p.Bits()))
			s.all[1] += n
			if p.Overlaps(unicast6) {
				s.public[1] += min(n, size(64, unicast6.Bits()))
			}
			continue
		}
		n := size(32, p.Bits())
		s.all[0] += n
		for _, not := range special {
			if p.Overlaps(not) {
				n -= min(n, size(32, max(p.Bits(), not.Bits())))
			}
		}
		s.public[0] += n
	}
	return s
}

func size(of, bits int) uint64 { return 1 << min(63, of-bits) }
