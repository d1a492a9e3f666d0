package importer

import (
	"fmt"
	"strings"
)

// ruleReader is what reading a rule takes, whichever tool has printed it.
type ruleReader struct {
	out *output
	r   *chainRule
}

// unknown remembers what a policy has no words for, once.
func (p *ruleReader) unknown(what, instead string) {
	for _, u := range p.r.unknown {
		if u.what == what {
			return
		}
	}
	p.r.unknown = append(p.r.unknown, reason{what, instead})
}

func (p *ruleReader) remark(k Kind, text, instead string) {
	p.r.remarks = append(p.r.remarks, p.r.origin.remark(k, text, instead))
}

// aboutLoopback says that the rule is about what never comes here.
func (r *chainRule) aboutLoopback() {
	r.absent, r.loopback = true, true
	r.remarks = append(r.remarks, r.remark(Noticed, "is about the loopback interface: packets of "+
		"the machine to itself never reach levee, so nothing is lost", ""))
}

// countsIn remembers in what the limit of the rule is counted.
func (p *ruleReader) countsIn(budget string) {
	p.r.budget = budget
	p.out.budgets[budget]++
}

const tproxyText = "TPROXY hands connections to a program on its own: these packets go on to " +
	"it; where no program listens, the source drops them"

// answersSYNs makes a cookie of a rule that answers SYNs. Its state is that of what conntrack was
// told to leave alone: the SYNs.
func (p *ruleReader) answersSYNs(what string) {
	p.r.verb, p.r.cookie, p.r.states = doAccept, true, nil
	p.both(tcpSyn)
	p.remark(Noticed, what+" becomes `cookie`, and the SYNs of clients that are there pass", "")
}

// isLog makes a log of a rule that does nothing else, as its source says it.
func (p *ruleReader) isLog(what string) {
	r := p.r
	if r.verb = doLog; len(r.unknown) > 0 {
		r.verb, r.unknown = doNothing, nil
		r.remarks = []Remark{r.remark(LeftOut, what+" decides nothing, and asks for what a policy "+
			"has no word for", "")}
		return
	}
	p.logged(what)
}

// logged has a log stand in front of the rule.
func (p *ruleReader) logged(what string) {
	if p.r.logs = strings.TrimSpace(p.r.logs); p.r.logs == "" {
		p.r.logs = "log " + p.r.label
	}
	p.remark(Noticed, what+" becomes `log`, which shows packets to who runs `levee watch`: at "+
		"most 10,000 a second on each CPU, whatever limit the source has", "")
}

// both narrows the rule by alternatives of which one must hold.
func (p *ruleReader) both(alts ...match) {
	out, err := narrow(p.r.alts, alts, &p.out.written)
	if err != nil {
		p.unknown(err.Error(), "split the rule")
		return
	}
	p.r.alts = out
}

// narrow is what holds for one of a and one of b. written counts the ranges of addresses in lists
// of all rules.
func narrow(a, b []match, written *int) (out []match, err error) {
	if len(a)*len(b) > maxAlternatives {
		return nil, fmt.Errorf("it would become more than %d rules", maxAlternatives)
	}
	for i := range a {
		for j := range b {
			if !a[i].compatible(&b[j]) {
				return nil, fmt.Errorf("it asks for two sets about one address of which one is " +
					"filled at run time")
			}
			if m := a[i].and(&b[j]); !m.never {
				if n := m.weight(); n > 64 {
					*written += n // short lists are bounded by the input
				}
				if *written > maxWritten {
					return nil, fmt.Errorf("it asks for large sets and other addresses at once, " +
						"more than a rule can list")
				}
				out = append(out, m)
			}
		}
	}
	return out, nil
}
