package pf

import (
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// pfRule reads one pass or block rule.
type pfRule struct {
	importer.RuleReader
	p     *pf
	t     []pfToken // not read yet
	in    bool      // of packets that arrive only
	out   bool      // of packets that leave only
	quick bool
	logs  bool
	label string
	// what decides which packets of TCP a rule that keeps state is about
	flagged, stateless bool
}

// newRule begins a rule about packets of under.
func (p *pf) newRule(at importer.Origin, s pfStatement, under []match.Match) *pfRule {
	return &pfRule{p: p, t: s.tokens[1:], RuleReader: importer.RuleReader{Out: p.out,
		Rule: &importer.ChainRule{Origin: at, Alts: slices.Clone(under)}}}
}

func (p *pf) rule(at importer.Origin, s pfStatement, under []match.Match) {
	r := p.newRule(at, s, under)
	r.Rule.Verb = importer.DoDrop
	if s.tokens[0].is("pass") {
		r.Rule.Verb = importer.DoAccept
	}
	r.read()
	if p.leaves {
		r.Rule.CheckFragment()
		p.add(r)
		return
	}
	if !r.in {
		p.outs = append(p.outs, pfLeaving{at, s, under, r.out})
	}
	pass := r.Rule.Verb == importer.DoAccept
	if pass && !r.stateless {
		p.states = true
	}
	if r.out {
		p.seen = true
		return
	}
	if pass && !r.stateless && !r.flagged { // flags S/SA, which pf puts in by itself
		syn := match.TcpOnly.WithFlags(match.Flags{Mask: 0x12, Value: 0x02})
		notTCP := match.Match{}.With(match.Proto, match.Just(6).Not(255))
		r.Both(syn.Settle(), notTCP.Settle())
	}
	r.Rule.CheckFragment()
	p.add(r)
}

func (r *pfRule) next() (t pfToken) {
	if len(r.t) > 0 {
		t, r.t = r.t[0], r.t[1:]
	}
	return t
}

func (r *pfRule) peek(text string) bool { return len(r.t) > 0 && r.t[0].is(text) }

// took takes the next token if it is this one.
func (r *pfRule) took(text string) bool {
	if r.peek(text) {
		r.next()
		return true
	}
	return false
}

// each calls f at one item, or at all between braces, until it is not content, which passes over
// the rest; braces may stand within braces, by macros.
func (r *pfRule) each(f func() bool) bool {
	for depth := 0; len(r.t) > 0; {
		switch {
		case r.took("{"):
			depth++
			continue
		case depth > 0 && r.took(","):
			continue
		case depth > 0 && r.took("}"):
			depth--
		default:
			if !f() {
				r.leave(depth)
				return false
			}
		}
		if depth == 0 {
			return true
		}
	}
	return true
}

// leave passes over what is left within so many braces.
func (r *pfRule) leave(depth int) {
	for depth > 0 && len(r.t) > 0 {
		switch t := r.next(); {
		case t.is("{"):
			depth++
		case t.is("}"):
			depth--
		}
	}
}

// list takes one item, or all between braces.
func (r *pfRule) list() (items [][]pfToken) {
	r.each(func() bool {
		items = append(items, r.item())
		return true
	})
	return items
}

// item takes the tokens of one host, port or name.
func (r *pfRule) item() (out []pfToken) {
	for r.peek("!") {
		out = append(out, r.next())
	}
	for _, pair := range [...][2]string{{"(", ")"}, {"<", ">"}} {
		if r.peek(pair[0]) && (pair[0] == "(" || len(r.t) > 2 && r.t[2].is(">")) {
			for len(r.t) > 0 {
				t := r.next()
				out = append(out, t)
				if t.is(pair[1]) {
					return out
				}
			}
		}
	}
	out = append(out, r.next())
	if r.peek("-") && len(r.t) > 1 { // the end of a range
		out = append(out, r.next(), r.next())
	}
	return out
}

// parens passes over what stands between parentheses.
func (r *pfRule) parens() {
	if !r.peek("(") {
		return
	}
	for depth := 0; len(r.t) > 0; {
		switch t := r.next(); {
		case t.is("("):
			depth++
		case t.is(")"):
			if depth--; depth == 0 {
				return
			}
		}
	}
}

// read takes all that the rule says.
func (r *pfRule) read() {
	for len(r.t) > 0 {
		switch t := r.next(); t.text {
		case "in":
			r.in = true
		case "out":
			r.out = true
		case "drop", "return", "return-rst", "return-icmp", "return-icmp6":
			r.parens()
			if t.text != "drop" {
				r.Remark(importer.Changed, "return becomes a drop: levee sends no answer",
					"clients wait for a timeout; let the packets pass to the kernel where they "+
						"should be refused")
			}
		case "log", "log-all":
			r.parens()
			r.logs = true
		case "quick":
			r.quick = true
		case "on":
			r.on()
		case "inet":
			r.Both(match.Match{}.With(match.Ether, match.Only4))
		case "inet6":
			r.Both(match.Match{}.With(match.Ether, match.Only6))
		case "proto":
			r.proto()
		case "all":
		case "from":
			r.side("src")
		case "to":
			r.side("dst")
		case "port":
			r.port("dst")
		default:
			r.option(t)
		}
	}
}

// option reads what stands behind the hosts.
func (r *pfRule) option(t pfToken) {
	switch t.text {
	case "flags":
		r.flags(r.next().text)
	case "icmp-type", "icmp6-type":
		r.icmpType(t.text == "icmp6-type")
	case "keep", "modulate", "synproxy", "no":
		if r.took("state"); t.text == "no" {
			r.stateless = true
		}
		r.Rule.Cookie = r.Rule.Cookie || t.text == "synproxy"
		r.stateOptions()
	case "state", "source":
		if r.took("limiter") { // OpenBSD 7.9; above it the rule does not match
			r.next()
			r.parens()
			r.Limited(importer.UpTo, "counts connections or states ("+t.text+" limiter)",
				importer.CountHint)
		} else if t.text == "state" {
			r.stateOptions()
		} else {
			r.Unknown("says "+match.Quote(t.text)+", which levee does not know", "")
		}
	case "label", "ridentifier":
		if v := r.next(); t.text == "label" {
			r.label = v.text
		}
	case "tos":
		r.tos(r.next().text)
	case "fragment":
		r.Both(match.Match{}.With(match.Ether, match.BothIP).With(match.Fragment,
			match.Just(match.Later)).Settle())
	case "queue", "rtable", "tag", "prio", "dup-to", "route-to", "reply-to", "dnpipe", "dnqueue":
		r.list()
		if r.peek("@") {
			r.next()
			r.next()
		}
	case "set", "scrub":
		r.parens()
	case "allow-opts", "once", "fastroute", "sticky-address", "random", "source-hash",
		"round-robin", "bitmask", "static-port", "least-states":
	case "rdr-to", "nat-to", "binat-to", "af-to", "divert-to", "divert-reply", "divert-packet":
		r.rewritten(t.text)
	case "max-pkt-rate":
		r.Limited(importer.UpTo,
			"max-pkt-rate limits a rate", importer.LimitHint)
		r.next()
	case "os":
		r.list()
		r.Unknown("guesses the operating system (os)", "")
	case "user", "group", "probability", "tagged", "received-on":
		r.list()
		r.Unknown("asks for "+t.text+", for which a policy has no word", "")
	case "!":
		r.next()
		r.list()
		r.Unknown("asks for what a tag or an interface is not", "")
	case "{", "}", ",": // of a list that was given up
	default:
		if t.quoted || len(r.Rule.Unknown) == 0 && r.Rule.Verb == importer.DoJump {
			return // the name of an anchor
		}
		r.Unknown("says "+match.Quote(t.text)+", which levee does not know", "")
	}
}

// rewritten is an action that sends the packet elsewhere. The rule is about it as it arrives.
func (r *pfRule) rewritten(word string) {
	for len(r.t) > 0 && !r.peek("label") && !r.peek("keep") && !r.peek("no") {
		r.next()
	}
	r.Remark(importer.Changed,
		word+" is not carried over: the packets pass, and something else has to "+
			"rewrite them", "keep the rewriting in nft")
}

// stateOptions reads (max-src-conn 10, max-src-conn-rate 5/60, overload <bad>): how many
// connections there are no policy counts, how many come in a time is a limit.
func (r *pfRule) stateOptions() {
	if !r.peek("(") {
		return
	}
	var counts []string
	tcp := slices.ContainsFunc(r.Rule.Alts, func(m match.Match) bool {
		return m.Fields[match.Proto] == nil || len(m.Fields[match.Proto].And(match.Just(6))) > 0
	})
	for i, t := range r.t {
		if t.is(")") {
			break
		}
		if !tcp && (strings.HasPrefix(t.text, "max-src-conn") || t.is("overload")) {
			r.Remark(importer.Noticed,
				t.text+" is about connections of TCP whose handshake is complete: "+
					"it decides nothing here", "")
			continue
		}
		if t.is("max-src-conn-rate") && i+1 < len(r.t) {
			n, in, _ := strings.Cut(r.t[i+1].text, "/")
			conns, _ := strconv.ParseUint(n, 10, 32)
			secs, _ := strconv.ParseUint(in, 10, 32)
			if conns > 0 {
				r.Rule.Rate = importer.WindowRate(conns, secs)
			}
		} else if strings.HasPrefix(t.text, "max") || t.is("overload") {
			counts = append(counts, t.text)
		}
	}
	r.parens()
	rest := strings.Join(counts, ", ")
	if l := r.Rule.Rate; l != nil {
		l.By, l.Syns, l.Ends = []string{"srcip"}, true, true
		if rest != "" {
			l.More = append(l.More,
				importer.Reason{What: "counts connections or states (" + rest + ")",
					Instead: importer.CountHint})
		}
		r.Limited(importer.UpTo,
			"max-src-conn-rate limits a rate by address",
			importer.LimitHint)
	} else if rest != "" {
		r.Limited(importer.UpTo,
			"counts connections or states ("+rest+")",
			importer.CountHint)
	}
}
