package prefix

import (
	"cmp"
	"net/netip"
	"slices"

	"levee/internal/filter/hashtable"
)

// Lengths of the prefixes in place of hosts: what one customer has at least.
const (
	rollUp4 = 24
	rollUp6 = 64
)

// rollUpShare is the part of max, 1 in so many, that one RollUp frees if it can: it has to look at
// every entry, which is too much work to be done for each new one.
const rollUpShare = 64

// group is the hosts of one /24 or /64.
type group struct {
	*family
	cover   hashtable.Key
	hosts   int
	expires uint64 // the longest lease of them; 0 is for ever
}

// RollUp makes room in a full set: the /24 (IPv6: /64) with the most host entries is replaced by
// one entry for all of it, whose lease is the longest of them and of the one that is there already;
// then the next one, until 1 in 64 of max is free. Of two with as many hosts the lower address
// comes first, IPv4 before IPv6. A prefix with one host only stays, and so does one for which spare
// is true. It returns how many entries were freed. Programs see the new entry before the hosts go.
func (d *Dynamic) RollUp(spare func(netip.Prefix) bool) (freed int) {
	d.Change(func(now uint64) { freed = d.rollUp(spare, now) })
	return freed
}

func (d *Dynamic) rollUp(spare func(netip.Prefix) bool, now uint64) int {
	chosen := map[hashtable.Key]bool{} // covers of IPv4 and of IPv6 have different codes
	want := max(1, d.Max()/rollUpShare)
	freed := 0
	for _, g := range d.groups(now) {
		if freed >= want || g.hosts < 2 {
			break
		}
		if spare(g.prefix(g.cover)) {
			continue
		}
		s, there := g.table.Find(g.cover)
		alive := false
		if there {
			var expires uint64
			if expires, alive = g.table.Lease(s, now); alive {
				g.table.Renew(s, longer(g.expires, expires))
			} else { // it comes anew
				g.table.Remove(s, g.cover)
			}
			freed++
		}
		if !alive && !g.table.Insert(g.cover, g.expires, now) {
			continue
		}
		chosen[g.cover] = true
		freed += g.hosts - 1
	}
	for _, f := range d.families() {
		for s, k := range f.table.Entries() {
			if cover, ok := f.coverOf(k); ok && chosen[cover] {
				f.table.Remove(s, k)
			}
		}
	}
	return freed
}

// groups lists the hosts' prefixes, those with most hosts first.
func (d *Dynamic) groups(now uint64) []group {
	at := map[hashtable.Key]int{}
	var out []group
	for _, f := range d.families() {
		for s, k := range f.table.Entries() {
			cover, ok := f.coverOf(k)
			expires, alive := f.table.Lease(s, now)
			if !ok || !alive {
				continue
			}
			i, seen := at[cover]
			if !seen {
				i = len(out)
				at[cover] = i
				out = append(out, group{family: f, cover: cover, expires: expires})
			}
			out[i].hosts++
			out[i].expires = longer(out[i].expires, expires)
		}
	}
	slices.SortFunc(out, func(a, b group) int {
		return cmp.Or(b.hosts-a.hosts, a.prefix(a.cover).Compare(b.prefix(b.cover)))
	})
	return out
}

// Cover returns the prefix in place of a host; not ok for what is no host.
func Cover(host netip.Prefix) (_ netip.Prefix, ok bool) {
	if !host.IsSingleIP() {
		return netip.Prefix{}, false
	}
	length := rollUp6
	if host.Addr().Is4() {
		length = rollUp4
	}
	return netip.PrefixFrom(host.Addr(), length).Masked(), true
}

// coverOf is Cover for keys.
func (f *family) coverOf(k hashtable.Key) (hashtable.Key, bool) {
	if lengthOf(k) != f.width {
		return hashtable.Key{}, false
	}
	if f.Narrow {
		return hashtable.Key{Hi: k.Hi &^ (1<<(32-rollUp4) - 1), Code: rollUp4 + 1}, true
	}
	return hashtable.Key{Hi: k.Hi, Code: rollUp6 + 1}, true
}

// longer returns the later of two ends of leases, of which 0 is never.
func longer(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}
