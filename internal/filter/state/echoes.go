package state

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/filter/echo"
	"levee/internal/quantity"
)

// What maps of the row hold.
const (
	// HoldsEchoes is an array of 1 entry, BPF_F_MMAPABLE: flows that have proven themselves,
	// package echo.
	HoldsEchoes Contents = "echoes"
	// HoldsForms is an array of 1 entry: which replies clients echo, package echo.
	HoldsForms Contents = "forms of replies"
)

var echoes = Row{
	Name: "echoes",
	What: HoldsEchoes,
	Used: func(u *Use) bool { return len(u.Echoes) > 0 },
	Maps: func(u *Use) []Map {
		maps := []Map{{Name: echo.Map, Bytes: echo.Size, For: "flows that have proven themselves",
			Holds: Identity{What: HoldsEchoes}, Lifetime: Carried}}
		if u.JudgedBytes > 0 {
			return maps
		}
		return append(maps, Map{echo.FormsMap, echo.FormBytes, "which replies clients echo",
			Identity{What: HoldsForms}, Private, u.forms})
	},
	Bound: func(u *Use) Bound {
		if u.JudgedBytes > 0 {
			return Bound{1, echo.MaxInstructions}
		}
		return Bound{4, echo.MaxInstructions}
	},
	Emit: func(e *Emission) error { return echo.Emit(e.Builder, e.Context, e.TCX) },
	Beside: &Program{Name: echo.Program, At: Egress, Nth: 2,
		Lost: "no flow has proven itself since", Spec: func(u *Use) (*ebpf.ProgramSpec, error) {
			notes := slices.ContainsFunc(u.Echoes, func(f echo.Form) bool {
				return f.Made == echo.MadeByService
			})
			if u.JudgedBytes > 0 || !notes {
				return nil, nil // the policy in force notes replies, or the cookie needs none
			}
			return echo.Spec(u.Link)
		}},
	Shared:   []Contents{HoldsEchoes},
	Lent:     true,
	Head:     echo.HeadBytes,
	Seed:     echo.Seed,
	SetClock: echo.SetClock,
	Room: func(*Use) Room {
		return Room{echo.Places, echo.Size, "echoes: room for %d proven flows"}
	},
	In: func(to *Rooms) **Room { return &to.Echoes },
	Tell: func(r *Reading, to *Memories) {
		p := &Echoes{Stats: echo.Read(r.Memory, r.Now), Proves: []Echo{}}
		for _, e := range r.Echoes {
			p.Proves = append(p.Proves, Echo{e.Name, echo.ReadTally(r.Memory, e.Tally)})
		}
		to.Echoes = p
	},
	Values: []Value{
		gauge("levee_proven_flows", "flows", "Flows over UDP that have proven themselves by echo.",
			ofEchoes, func(e *Echoes) int { return e.Flows }),
		counter("levee_refused_flow_proofs", "proofs",
			"Proofs by echo that found no place, since all in their line are active.", ofEchoes,
			func(e *Echoes) uint64 { return e.Refused }),
		counter("levee_flow_proofs", "proofs", "Values of replies that came back.", ofEchoes,
			func(e *Echoes) uint64 { return e.sum(func(t *Echo) uint64 { return t.Proofs }) }),
		counter("levee_wrong_echo_packets", "packets",
			"Packets of unproven flows with no value of a reply where one may be.", ofEchoes,
			func(e *Echoes) uint64 { return e.sum(func(t *Echo) uint64 { return t.Wrong }) }),
	},
	Lines: func(of *Memories, _ string) []Line {
		e := of.Echoes
		if e == nil {
			return nil
		}
		flows := quantity.Plural(e.Flows, "flow") + " proven"
		status := fmt.Sprintf("%s; room for %d; %d refused, %d lost their place", flows, e.Places,
			e.Refused, e.Taken)
		for i := range e.Proves {
			status += "; " + e.Proves[i].String()
		}
		return []Line{{"echoes", e.Flows, flows, "echoes", status}}
	},
}

func ofEchoes(m *Memories) *Echoes { return m.Echoes }

// Echoes is the status of the memory of proofs by echo.
type Echoes struct {
	echo.Stats
	Proves []Echo `json:"proves"`
}

// Echo is the status of one `prove` statement.
type Echo struct {
	Name string `json:"name"`
	echo.Tally
}

// fewValues is of how many values given a tenth has to be different.
const fewValues = 100

// String returns what a memory tells of a statement, and what is wrong with it.
func (e *Echo) String() string {
	values := fmt.Sprint(e.Values)
	if e.Values >= echo.MostValues {
		values = fmt.Sprintf("%d or more", e.Values)
	}
	text := fmt.Sprintf("%q: %d given, %s different, %d came back, %d packets without one", e.Name,
		e.Given, values, e.Proofs, e.Wrong)
	if e.Given >= fewValues && uint64(e.Values) < min(e.Given/10, echo.MostValues/10) {
		text += " (replies repeat their values: who sees one of them can guess others)"
	}
	return text
}

func (e *Echoes) sum(of func(*Echo) uint64) (n uint64) {
	for i := range e.Proves {
		n += of(&e.Proves[i])
	}
	return n
}

// SetEchoes says which replies clients echo.
func (u *Use) SetEchoes(forms []echo.Form) (err error) {
	u.Echoes = forms
	if len(forms) > 0 {
		u.forms, err = echo.FormsSpec(forms)
	}
	return err
}
