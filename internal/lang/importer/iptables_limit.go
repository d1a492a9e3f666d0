package importer

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	limitHint = "`limit` does that in a policy of levee's own"
	countHint = "a policy has no word for that: `limit` is about rates"
)

const recentWhy = "-m recent asks for addresses seen lately"

// ipLimit is what options say of a limit.
type ipLimit struct {
	rate, burst string
	by          []string
	masks       []string // src24
	odd         bool     // a policy does not say the rest
	early       bool     // other conditions stand behind it
}

// finishLimit makes a limit of a policy of what the options said, where there is one.
func (p *ipRule) finishLimit() {
	if p.rate == "" || p.odd || p.r.rate != nil {
		return
	}
	r := newRate(p.rate, p.burst)
	if r == nil {
		return
	}
	r.by = p.by
	if p.early {
		r.standsEarly()
	}
	for _, m := range p.masks {
		if len(p.by) != 1 || !strings.HasPrefix(p.by[0], m[:3]) {
			return
		}
		r.mask = m[3:]
	}
	p.r.rate = r
}

// useLimit notes the condition of a module that counts, before its options say more.
func (p *ipRule) useLimit() {
	switch p.module {
	case "limit":
		p.limited(upTo, "-m limit limits a rate", limitHint)
	case "quota":
		p.limited(upTo, "-m quota counts down bytes", limitHint)
	}
}

// limits reads options about rates and numbers.
func (p *ipRule) limits(o string) (bool, error) {
	l := upTo
	switch o {
	case "--limit", "--limit-burst", "--quota":
		v := p.value()
		switch o {
		case "--limit":
			p.rate = v
		case "--limit-burst":
			p.burst = v
		}
		if p.not { // of what is above
			p.r.limit = above
		}
		return true, nil
	case "--hashlimit-above", "--connlimit-above":
		l = above
		fallthrough
	case "--hashlimit", "--hashlimit-upto", "--connlimit-upto":
		v := p.value()
		if p.not {
			l = upTo + above - l
		}
		what := "-m hashlimit limits a rate by address"
		if p.module == "connlimit" {
			p.limited(l, "-m connlimit counts connections that are open", countHint)
		} else {
			p.rate = v
			p.limited(l, what, limitHint)
		}
		return true, nil
	case "--hashlimit-burst":
		p.burst = p.value()
		return true, nil
	case "--hashlimit-mode":
		p.by = strings.Split(p.value(), ",")
		return true, nil
	case "--hashlimit-srcmask", "--hashlimit-dstmask":
		p.masks = append(p.masks, o[len("--hashlimit-"):][:3]+p.value())
		return true, nil
	case "--hashlimit-rate-interval":
		p.value()
		p.odd = true
		return true, nil
	case "--hashlimit-name": // each family has its own
		p.countsIn(fmt.Sprintf("%s, IPv6 %t", p.value(), p.tab.six))
		return true, nil
	case "--hashlimit-htable-size",
		"--hashlimit-htable-max", "--hashlimit-htable-expire", "--hashlimit-htable-gcinterval",
		"--connlimit-mask":
		p.value()
		return true, nil
	case "--hashlimit-rate-match":
		p.odd = true
		return true, nil
	case "--connlimit-saddr", "--connlimit-daddr":
		return true, nil
	}
	return p.recent(o)
}

// seenLately is what a rule asks of -m recent.
type seenLately struct {
	sets, asks, not bool // puts an address there; asks for one; for one that is not there
	hits, seconds   uint64
	by, mask        string
	odd             bool   // a limit does not say the rest
	name            string // with its family
	rules           map[string][]*chainRule
}

// rate is what comes nearest to rule n of a chain, which drops from some packets in a time on: the
// one other rule that knows the name puts all of its packets there.
func (s *seenLately) rate(c *chain, n int) *rate {
	of := slices.DeleteFunc(slices.Clone(s.rules[s.name]),
		func(r *chainRule) bool { return !r.seen.sets && r.idle() })
	if s.odd || s.hits < 2 || len(of) != 2 {
		return nil
	}
	set := of[0]
	if set == c.rules[n] {
		set = of[1]
	}
	same := func(a, b []match) bool {
		return slices.EqualFunc(a, b, func(a, b match) bool { return a.equal(&b) })
	}
	at := slices.Index(c.rules, set)
	if at < 0 || !set.seen.sets || set.seen.odd || set.seen.mask != s.mask ||
		set.seen.by != s.by || set.limit != noLimit || len(set.unknown) > 0 ||
		!same(set.alts, c.rules[n].alts) && !same(set.alts, c.rules[n].opens) ||
		slices.ContainsFunc(c.rules[min(at, n)+1:max(at, n)], func(r *chainRule) bool {
			return !r.idle()
		}) {
		return nil
	}
	pass := s.hits
	if at < n { // the packet itself is among those that came
		pass--
	}
	l := windowRate(pass, s.seconds)
	if l == nil {
		return nil
	}
	l.by, l.mask = []string{s.by}, s.mask
	return l
}

// settleRecent decides the conditions on lists into which no rule puts anything.
func (t *ipTables) settleRecent() {
	for _, rules := range t.recent {
		if slices.ContainsFunc(rules, func(r *chainRule) bool { return r.seen.sets }) {
			continue
		}
		for _, r := range rules {
			if r.seen.not {
				continue
			}
			r.alts, r.limit, r.limits = nil, noLimit, nil
			r.unknown = slices.DeleteFunc(r.unknown,
				func(u reason) bool { return u.what == recentWhy })
			r.remarks = append(r.remarks, r.remark(Noticed, "no rule puts addresses into the list "+
				"that -m recent asks for: no packet is from one", ""))
		}
	}
}

// recent reads options of -m recent. To put an address there holds for every packet; what is there
// no policy knows, but how often is a limit.
func (p *ipRule) recent(o string) (bool, error) {
	s := &p.seen
	switch o {
	case "--set":
		if p.module != "recent" {
			return false, nil
		}
		s.sets = true
		if p.not {
			p.r.alts = nil
		}
	case "--rcheck", "--update", "--remove":
		s.asks, s.not, s.odd = true, p.not, s.odd || o == "--remove"
	case "--seconds", "--hitcount", "--name", "--mask":
		if p.module != "recent" {
			return false, nil
		}
		v := p.value()
		n, _ := strconv.ParseUint(v, 10, 32)
		switch o {
		case "--seconds":
			s.seconds = n
		case "--hitcount":
			s.hits = n
		case "--name":
			s.name = v
		case "--mask":
			s.mask = v
		}
	case "--reap", "--rttl", "--rsource", "--rdest":
		if p.module != "recent" {
			return false, nil
		}
		switch o {
		case "--rttl":
			p.remark(Changed, "packets count whatever their TTL: a policy does not tell those of "+
				"one source apart by it", "")
		case "--rdest":
			s.by = "dstip"
		}
	default:
		return false, nil
	}
	return true, nil
}

// finishRecent says what is asked of -m recent.
func (p *ipRule) finishRecent() {
	const hint = "fill a dynamic set with `levee set add`, which has leases"
	s := &p.seen
	if s.asks || s.sets {
		s.name = fmt.Sprintf("%s, IPv6 %t", s.name, p.tab.six)
		s.mask = prefixOf(s.mask)
		s.odd = s.odd || s.mask == "odd"
		s.by = cmp.Or(s.by, "srcip")
		s.rules = p.t.recent
		s.rules[s.name] = append(s.rules[s.name], p.r)
		p.r.seen = s
	}
	switch {
	case s.asks && s.hits > 0 && s.not:
		p.limited(upTo, "-m recent counts packets by address", hint)
	case s.asks && s.hits > 0:
		p.limited(above, "-m recent counts packets by address", hint)
	case s.asks:
		p.unknown(recentWhy, hint)
	}
}

// prefixOf is the length of a mask, "" if it is of whole addresses, "odd" if it is no prefix.
func prefixOf(mask string) string {
	if mask == "" {
		return ""
	}
	a, err := netip.ParseAddr(mask)
	if err != nil {
		return "odd"
	}
	switch ones, all := net.IPMask(a.AsSlice()).Size(); {
	case all == 0:
		return "odd"
	case ones < all:
		return strconv.Itoa(ones)
	}
	return ""
}
