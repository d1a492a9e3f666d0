package plan

import (
	"levee/internal/filter/echo"
	"levee/internal/filter/logging"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Echo is a proof by echo.
type Echo struct {
	*policy.Prove
	Tally int // in the memory; it goes with the name
}

// findEchoes lists the proofs, where rules ask for them.
func (p *planner) findEchoes() {
	if !p.Program.Policy.Asks(field.ProvenFlow) {
		return
	}
	taken := map[int]bool{}
	for _, s := range p.Program.Policy.Proves {
		tally := int(logging.Number(s.Name) % uint32(echo.Tallies))
		for taken[tally] {
			tally = (tally + 1) % echo.Tallies
		}
		taken[tally] = true
		p.Echoes = append(p.Echoes, Echo{s, tally})
	}
}

// forms are the proofs as package echo takes them.
func (p *planner) forms() (all []echo.Form) {
	for _, s := range p.Echoes {
		f := echo.Form{ID: logging.Number(s.Text), Tally: s.Tally, Bytes: s.Bytes, At: s.At,
			In: s.In}
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
