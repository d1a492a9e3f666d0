package plan

import (
	"slices"

	"levee/internal/filter/echo"
	"levee/internal/filter/logging"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Echo is a proof by echo.
type Echo struct {
	*policy.Prove
	Tally int // in the memory; it goes with the name
	Made  echo.Made
}

// findEchoes lists the forms of proof if a rule asks for them. The one of cookies for A2S comes
// first.
func (p *planner) findEchoes() {
	if !p.Program.Policy.Asks(field.ProvenFlow) {
		return
	}
	taken := map[int]bool{}
	proves := p.Program.Policy.Proves
	asked := p.askedFor()
	if asked != nil {
		proves = append([]*policy.Prove{asked}, proves...)
	}
	for _, s := range proves {
		tally := int(logging.Number(s.Name) % uint32(echo.Tallies))
		for taken[tally] {
			tally = (tally + 1) % echo.Tallies
		}
		taken[tally] = true
		p.Echoes = append(p.Echoes, Echo{Prove: s, Tally: tally})
	}
	if asked != nil {
		p.Echoes[0].Made = echo.MadeForA2S
	}
}

// askedFor returns the proof that cookies for A2S expect, nil if packets reach no such cookie: the
// number of the answer, after an INFO or after the type of other queries. A shadow has it too: its
// cookies answer nobody, but flows that have proven themselves so count as proven.
func (p *planner) askedFor() *policy.Prove {
	const info, others = 25, 5
	var rules []*policy.Rule
	for _, k := range p.Cookies {
		rules = append(rules, k.Rule)
	}
	if p.Target.IsShadow() {
		rules = p.Program.Policy.Rules
	}
	var ports []field.Range
	any := false
	for _, r := range rules {
		if r.Cookie == nil || r.Cookie.Answers != action.A2SQueries {
			continue
		}
		any = true
		i := slices.IndexFunc(r.Match, func(t policy.Term) bool {
			return t.Field == field.DstPort && !t.Not && t.Set == nil
		})
		if i < 0 {
			ports = []field.Range{{Hi: field.DstPort.Info().Max}}
			break
		}
		ports = field.Join(slices.Concat(ports, r.Match[i].Ranges))
	}
	if !any {
		return nil
	}
	if len(ports) > policy.MaxServices { // what is asked for is of one flow, so more do no harm
		ports = []field.Range{{Lo: ports[0].Lo, Hi: ports[len(ports)-1].Hi}}
	}
	return &policy.Prove{Name: policy.ProvedByCookie, Text: policy.ProvedByCookie, Ports: ports,
		Bytes: policy.LeastEcho, In: []int{info, others}}
}

// NumberTally returns the index of the tally for proofs by A2S cookies. The plan must have one.
func (p *Plan) NumberTally() int {
	i := slices.IndexFunc(p.Echoes, func(e Echo) bool { return e.Made == echo.MadeForA2S })
	return p.Echoes[i].Tally
}

// forms returns the proofs as package echo takes them.
func (p *planner) forms() (all []echo.Form) {
	for _, s := range p.Echoes {
		f := echo.Form{ID: logging.Number(s.Text), Tally: s.Tally, Bytes: s.Bytes, At: s.At,
			In: s.In, Made: s.Made}
		for _, r := range s.Ports {
			f.Ports = append(f.Ports, echo.Ports{Lo: uint16(r.Lo), Hi: uint16(r.Hi)})
		}
		for _, b := range s.Reply {
			f.Reply = append(f.Reply, echo.Bytes{At: b.At, Value: b.Value, Mask: b.Mask,
				Not: b.Not})
		}
		all = append(all, f)
	}
	return all
}
