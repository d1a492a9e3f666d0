package iptables

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

const recentWhy = "-m recent asks for addresses seen lately"

// ipLimit holds the options of -m limit and -m hashlimit.
type ipLimit struct {
	rate, burst string
	by          []string
	masks       []string      // src24
	odd         bool          // a policy does not say the rest
	early       bool          // other conditions stand behind it
	counts      []match.Match // that come to it
}

// finishLimit makes a limit of a policy of what the options said, where there is one.
func (p *ipRule) finishLimit() {
	if p.rate == "" || p.odd || p.Rule.Rate != nil {
		return
	}
	r := importer.NewRate(p.rate, p.burst)
	if r == nil {
		return
	}
	r.By = p.by
	if slices.Contains(p.by, "srcip") && slices.Contains(p.by, "dstip") && p.atInput() {
		r.By = slices.DeleteFunc(slices.Clone(p.by), func(k string) bool { return k == "dstip" })
		r.Joins = true
	}
	if r.Counts = p.counts; p.early {
		r.StandsEarly()
	}
	for _, m := range p.masks {
		if len(p.by) != 1 || !strings.HasPrefix(p.by[0], m[:3]) {
			return
		}
		r.Mask = m[3:]
	}
	p.Rule.Rate = r
}

// useLimit notes the condition of a module that counts, before its options say more.
func (p *ipRule) useLimit() {
	switch p.module {
	case "limit":
		p.Limited(importer.UpTo, "-m limit limits a rate", importer.LimitHint)
	case "quota":
		p.Limited(importer.UpTo, "-m quota counts down bytes", importer.LimitHint)
	}
}

// countedBy are the packets that come to a limit here, nil if conditions before it are read later.
func (p *ipRule) countedBy() []match.Match {
	if len(p.texts)+len(p.words) > 0 || p.path.used {
		return nil
	}
	return p.Rule.Alts
}

// limits reads options about rates and numbers.
func (p *ipRule) limits(o string) (bool, error) {
	l := importer.UpTo
	switch o {
	case "--limit", "--limit-burst", "--quota":
		v := p.value()
		switch o {
		case "--limit":
			p.rate, p.counts = v, p.countedBy()
		case "--limit-burst":
			p.burst = v
		}
		if p.not { // of what is above
			p.Rule.Limit = importer.Above
		}
		return true, nil
	case "--hashlimit-above", "--connlimit-above":
		l = importer.Above
		fallthrough
	case "--hashlimit", "--hashlimit-upto", "--connlimit-upto":
		v := p.value()
		if p.not {
			l = importer.UpTo + importer.Above - l
		}
		what := "-m hashlimit limits a rate by address"
		if p.module == "connlimit" {
			p.Limited(l, "-m connlimit counts connections that are open", importer.CountHint)
		} else {
			p.rate, p.counts = v, p.countedBy()
			p.Limited(l, what, importer.LimitHint)
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
		p.CountsIn(fmt.Sprintf("%s, IPv6 %t", p.value(), p.tab.six))
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

// settleRecent decides the conditions on lists into which no rule puts anything.
func (t *ipTables) settleRecent() {
	for _, rules := range t.recent {
		if slices.ContainsFunc(rules, func(r *importer.ChainRule) bool { return r.Seen.Sets }) {
			continue
		}
		for _, r := range rules {
			if r.Seen.Not {
				continue
			}
			r.Alts, r.Limit, r.Limits = nil, importer.NoLimit, nil
			r.Unknown = slices.DeleteFunc(r.Unknown,
				func(u importer.Reason) bool { return u.What == recentWhy })
			r.Remarks = append(r.Remarks, r.Remark(importer.Noticed,
				"no rule puts addresses into the list "+
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
		s.Sets = true
		if p.not {
			p.Rule.Alts = nil
		}
	case "--rcheck", "--update", "--remove":
		s.Asks, s.Not, s.Odd = true, p.not, s.Odd || o == "--remove"
	case "--seconds", "--hitcount", "--name", "--mask":
		if p.module != "recent" {
			return false, nil
		}
		v := p.value()
		n, _ := strconv.ParseUint(v, 10, 32)
		switch o {
		case "--seconds":
			s.Seconds = n
		case "--hitcount":
			s.Hits = n
		case "--name":
			s.Name = v
		case "--mask":
			s.Mask = v
		}
	case "--reap", "--rttl", "--rsource", "--rdest":
		if p.module != "recent" {
			return false, nil
		}
		switch o {
		case "--rttl":
			p.Remark(importer.Changed,
				"packets count whatever their TTL: a policy does not tell those of "+
					"one source apart by it", "")
		case "--rdest":
			s.By = "dstip"
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
	if s.Asks || s.Sets {
		s.Name = fmt.Sprintf("%s, IPv6 %t", s.Name, p.tab.six)
		s.Mask = prefixOf(s.Mask)
		s.Odd = s.Odd || s.Mask == "odd"
		s.By = cmp.Or(s.By, "srcip")
		s.Rules = p.t.recent
		s.Rules[s.Name] = append(s.Rules[s.Name], p.Rule)
		p.Rule.Seen = s
	}
	switch {
	case s.Asks && s.Hits > 0 && s.Not:
		p.Limited(importer.UpTo, "-m recent counts packets by address", hint)
	case s.Asks && s.Hits > 0:
		p.Limited(importer.Above, "-m recent counts packets by address", hint)
	case s.Asks:
		p.Unknown(recentWhy, hint)
	}
}

// prefixOf returns the length of a mask, "" if it is of whole addresses, "odd" if it is no prefix.
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
