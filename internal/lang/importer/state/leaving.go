package state

import "levee/internal/lang/importer/match"

// MayLeave returns the packets that leave and may have one of the states.
func (s Set) MayLeave(stateless bool) (out []match.Match) {
	if s.Fresh {
		out = append(out, match.TcpSyn, match.Match{}.With(match.ICMP, match.Requests),
			match.Match{}.With(match.ICMP6, Requests6))
	}
	if s.Is {
		out = append(out, match.Match{}.With(match.ICMP, match.Requests.Not(0xffff)),
			match.Match{}.With(match.ICMP6, Requests6.Not(0xffff)))
		if stateless {
			out = append(append(out, tcpGoesOn()...), match.UdpOnly)
		} else {
			out = append(out, match.Match{}.With(match.Known, match.Just(1)),
				match.UdpOnly.With(match.Fragment, match.Just(match.Later)))
		}
	} else if s.Related {
		out = append(out, match.Match{}.With(match.ICMP, match.IcmpErrors),
			match.Match{}.With(match.ICMP6, errors6))
	}
	if s.Fresh {
		out = append(out, match.UdpOnly)
	}
	if s.Fresh && !s.Is && !stateless {
		out = append(out, TCPBare.With(match.Known, match.Just(0)))
	}
	if s.Fresh || s.Is {
		out = append(out, match.Match{}.With(match.Proto, match.NoTracked.Not(255)))
	}
	if s.Invalid {
		out = append(out, tcpNever()...)
	}
	if s.Untracked {
		out = append(out, match.Match{}.With(match.ICMP6, untracked))
	}
	return out
}

// MustLeave returns the packets that leave and cannot have another state than these; nil for none.
func (s Set) MustLeave() (out []match.Match) {
	if s.Fresh {
		out = append(out, match.TcpSyn, match.Match{}.With(match.ICMP, match.Requests),
			match.Match{}.With(match.ICMP6, Requests6))
	}
	if s.Invalid {
		out = append(out, tcpNever()...)
	}
	return out
}
