package importer

import (
	"fmt"
	"strings"
)

const (
	limitHint = "`limit` does that in a policy of levee's own"
	countHint = "a policy has no word for that: `limit` is about rates"
)

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
	r.by, r.early = p.by, p.early
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
	used          bool
	asks, not, of bool // asks for an address; for one that is not there; of: how often
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
		s.used = true
		if p.not {
			p.r.alts = nil
		}
	case "--rcheck", "--update", "--remove":
		s.used, s.asks, s.not = true, true, p.not
	case "--seconds", "--hitcount", "--name", "--mask":
		if p.module != "recent" {
			return false, nil
		}
		p.value()
		s.of = s.of || o == "--hitcount"
	case "--reap", "--rttl", "--rsource", "--rdest":
		if p.module != "recent" {
			return false, nil
		}
	default:
		return false, nil
	}
	return true, nil
}

// finishRecent says what is asked of -m recent.
func (p *ipRule) finishRecent() {
	const hint = "fill a dynamic set with `levee set add`, which has leases"
	switch s := p.seen; {
	case s.asks && s.of && s.not:
		p.limited(upTo, "-m recent counts packets by address", hint)
	case s.asks && s.of:
		p.limited(above, "-m recent counts packets by address", hint)
	case s.asks:
		p.unknown("-m recent asks for addresses seen lately", hint)
	}
}
