package importer

const (
	limitHint = "`limit` does that in a policy of levee's own"
	countHint = "a policy has no word for that: `limit` is about rates"
)

// useLimit notes the condition of a module that counts, before its options say more.
func (p *ipRule) useLimit() {
	switch p.module {
	case "limit":
		p.limited(upTo, "-m limit limits a rate", limitHint)
	case "quota":
		p.limited(upTo, "-m quota counts down bytes", countHint)
	}
}

// limits reads options about rates and numbers.
func (p *ipRule) limits(o string) (bool, error) {
	l := upTo
	switch o {
	case "--limit", "--limit-burst", "--quota":
		p.value()
		if p.not { // of what is above
			p.r.limit = above
		}
		return true, nil
	case "--hashlimit-above", "--connlimit-above":
		l = above
		fallthrough
	case "--hashlimit", "--hashlimit-upto", "--connlimit-upto":
		p.value()
		if p.not {
			l = upTo + above - l
		}
		what, hint := "-m hashlimit limits a rate by address", limitHint
		if p.module == "connlimit" {
			what, hint = "-m connlimit counts connections", countHint
		}
		p.limited(l, what, hint)
		return true, nil
	case "--hashlimit-burst", "--hashlimit-mode", "--hashlimit-name", "--hashlimit-htable-size",
		"--hashlimit-htable-max", "--hashlimit-htable-expire", "--hashlimit-htable-gcinterval",
		"--hashlimit-srcmask", "--hashlimit-dstmask", "--hashlimit-rate-interval",
		"--connlimit-mask":
		p.value()
		return true, nil
	case "--hashlimit-rate-match", "--connlimit-saddr", "--connlimit-daddr":
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
