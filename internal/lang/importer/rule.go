package importer

import (
	"fmt"
	"strings"

	"levee/internal/lang/importer/match"
)

// Begins says that a set becomes a dynamic one, which begins empty.
func Begins(set, name string, held int) Filled {
	text := "set " + set + " is empty: it becomes the dynamic set " + name
	if held > 0 {
		text = fmt.Sprintf("set %s, with entries that leave by themselves, becomes the dynamic "+
			"set %s, which begins empty", set, name)
	}
	return Filled{Text: text, Instead: fillHint, Begins: true, empty: held == 0, set: set}
}

// Stays says that what was in a set stays in the policy.
func Stays(what string) Filled {
	return Filled{Text: what + " have timeouts, which are not carried over: what is in it now " +
		"stays", Instead: "change the policy when they end"}
}

// Side returns the address that a direction of a set means.
func Side(m *match.Match, dir string) *match.Address {
	if dir == "dst" {
		return &m.To
	}
	return &m.From
}

// PortField returns the field of the ports on one side, src or dst.
func PortField(dir string) match.Field {
	if dir == "dst" {
		return match.Port
	}
	return match.FromPort
}

// FrameText is about what the Linux kernel adds to a packet behind its hook output.
const FrameText = "asks for a frame, which no packet has yet at the hook output"

// Ordered returns what is below or above a value.
func Ordered(op string, s match.Spans, top uint64) match.Spans {
	lo, hi := s[0].Lo, s[len(s)-1].Hi
	switch op {
	case "<":
		return match.Between(0, lo).And(match.Just(lo).Not(top))
	case "<=":
		return match.Between(0, hi)
	case ">":
		return match.Between(hi, top).And(match.Just(hi).Not(top))
	}
	return match.Between(lo, top)
}

// AddressIn asks for addresses of a set on one side, src or dst, or for others.
func AddressIn(dir string, s *match.Set, not bool) match.Match {
	var m match.Match
	if not {
		Side(&m, dir).Not = []*match.Set{s}
	} else {
		Side(&m, dir).In = s
	}
	return m.Settle()
}

// RuleReader reads one rule, whichever tool has printed it.
type RuleReader struct {
	Out  *Output
	Rule *ChainRule
}

// Unknown remembers what a policy has no words for, once.
func (p *RuleReader) Unknown(what, instead string) {
	for _, u := range p.Rule.Unknown {
		if u.What == what {
			return
		}
	}
	p.Rule.Unknown = append(p.Rule.Unknown, Reason{what, instead})
}

// MappedText says why a rule about IPv4-mapped addresses alone is left out.
const MappedText = "has an IPv4-mapped IPv6 address, which no policy has"

// LacksMapped notes that a rule is about a set, or about what is not in it, of which IPv4-mapped
// addresses were taken out. It fails, and the rule is unknown, where the set had no others.
func (p *RuleReader) LacksMapped(s *match.Set, not bool) bool {
	switch {
	case !s.Mapped:
	case len(s.Addresses) == 0 && !s.Dynamic:
		p.Unknown(MappedText, "write it as IPv4")
		return false
	default:
		p.Rule.Filled = append(p.Rule.Filled, Filled{Text: "has IPv4-mapped IPv6 addresses, " +
			"which no policy has: it stands without these", Begins: !not})
	}
	return true
}

// Remark adds a remark about the rule.
func (p *RuleReader) Remark(k Kind, text, instead string) {
	p.Rule.Remarks = append(p.Rule.Remarks, p.Rule.Origin.Remark(k, text, instead))
}

// AboutLoopback says that the rule is about what never comes here.
func (r *ChainRule) AboutLoopback() {
	r.Absent, r.loopback = true, true
	r.Remarks = append(r.Remarks, r.Remark(Noticed, "is about the loopback interface: packets of "+
		"the machine to itself never reach levee, so nothing is lost", ""))
}

// CountsIn remembers in what the limit of the rule is counted.
func (p *RuleReader) CountsIn(budget string) {
	p.Rule.budget = budget
	p.Out.budgets[budget]++
}

// QueueText says what comes near to a rule that has a program decide.
const QueueText = "no program gives a verdict back to levee; a ring hands packets to one for " +
	"good: levee help rings"

// TproxyText says what becomes of a rule that hands packets to a proxy.
const TproxyText = "TPROXY hands connections to a program on its own: these packets go on to " +
	"it; where no program listens, the source drops them"

// AnswersSYNs makes a cookie of a rule that answers SYNs. Its state is that of what conntrack was
// told to leave alone: the SYNs.
func (p *RuleReader) AnswersSYNs(what string) {
	p.Rule.Verb, p.Rule.Cookie, p.Rule.States = DoAccept, true, nil
	p.Both(match.TcpSyn)
	p.Remark(Noticed, what+" becomes `cookie`, and the SYNs of clients that are there pass", "")
}

// IsLog makes a log of a rule that does nothing else, as its source says it.
func (p *RuleReader) IsLog(what string) {
	r := p.Rule
	if r.Verb = doLog; len(r.Unknown) > 0 {
		r.Verb, r.Unknown = DoNothing, nil
		r.Remarks = []Remark{r.Remark(LeftOut, what+" decides nothing, and asks for what a policy "+
			"has no word for", "")}
		return
	}
	p.Logged(what)
}

// Logged has a log stand in front of the rule.
func (p *RuleReader) Logged(what string) {
	if p.Rule.Logs = strings.TrimSpace(p.Rule.Logs); p.Rule.Logs == "" {
		p.Rule.Logs = "log " + p.Rule.Label
	}
	p.Remark(Noticed, what+" becomes `log`, which shows packets to who runs `levee watch`: at "+
		"most 10,000 a second on each CPU, whatever limit the source has", "")
}

// Both narrows the rule by alternatives of which one must hold.
func (p *RuleReader) Both(alts ...match.Match) {
	out, err := Narrow(p.Rule.Alts, alts, &p.Out.Written)
	if err != nil {
		p.Unknown(err.Error(), "split the rule")
		return
	}
	p.Rule.Alts = out
}

// Narrow returns what holds for one of a and one of b. written counts the ranges of addresses in
// lists of all rules.
func Narrow(a, b []match.Match, written *int) (out []match.Match, err error) {
	if len(a)*len(b) > MaxAlternatives {
		return nil, fmt.Errorf("it would become more than %d rules", MaxAlternatives)
	}
	for i := range a {
		for j := range b {
			if !a[i].Compatible(&b[j]) {
				return nil, fmt.Errorf("it asks for two sets about one address of which one is " +
					"filled at run time")
			}
			if m := a[i].And(&b[j]); !m.Never {
				if n := m.Weight(); n > 64 {
					*written += n // short lists are bounded by the input
				}
				if *written > match.MaxWritten {
					return nil, fmt.Errorf("it asks for large sets and other addresses at once, " +
						"more than a rule can list")
				}
				out = append(out, m)
			}
		}
	}
	return out, nil
}
