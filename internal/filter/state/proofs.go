package state

import (
	"fmt"
	"strings"

	"levee/internal/filter/cookie"
	"levee/internal/filter/price"
	"levee/internal/lang/action"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/quantity"
)

// What maps of the row hold.
const (
	// HoldsCookies is an array of 1 entry, BPF_F_MMAPABLE: sources that have proven themselves,
	// package cookie.
	HoldsCookies Contents = "cookies"
	// HoldsWork is an array of 1 entry for each CPU: scratch memory of package cookie.
	HoldsWork Contents = "work"
	// HoldsOwn is an array of 1 entry, BPF_F_MMAPABLE: the addresses that the kernel takes on the
	// interface, package cookie.
	HoldsOwn Contents = "own addresses"
)

var proofs = Row{
	Name: "cookies",
	What: HoldsCookies,
	Used: func(u *Use) bool { return u.Cookies > 0 || u.Asks[field.Proven] },
	Maps: func(u *Use) []Map {
		maps := []Map{{Name: cookie.Map, Bytes: cookie.Size,
			For: "sources that have proven themselves", Holds: Identity{What: HoldsCookies},
			Lifetime: Carried}}
		if u.Cookies > 0 {
			maps = append(maps, Map{cookie.WorkMap, cookie.WorkBytes,
				"what cookies work on, for each CPU", Identity{What: HoldsWork}, Private,
				cookie.WorkSpec()},
				Map{cookie.OwnMap, cookie.OwnBytes, "addresses that the kernel takes",
					Identity{What: HoldsOwn}, Attached, nil})
		}
		return maps
	},
	Bound: func(u *Use) (b Bound) {
		for _, is := range u.Answered {
			if is {
				b.Add(Bound{1, cookie.MaxInstructions})
			}
		}
		if u.Proves {
			b.Add(Bound{1, 0})
		}
		if u.Reached[field.Proven] {
			b.Add(Bound{1, cookie.MaxSourceInstructions})
		}
		return b
	},
	Emit: func(e *Emission) error {
		for of, is := range e.Answered {
			if !is {
				continue
			}
			if err := cookie.Emit(e.Builder, action.Answered(of), e.Context, e.TCX, e.Frags,
				e.Link); err != nil {
				return err
			}
		}
		return cookie.EmitSources(e.Builder)
	},
	Calls: []Call{{Action: action.Cookie, Size: 16, Time: price.Wait(2), // neither SYN nor RST
		Asks: []field.Field{field.TCPFlags}}},
	Answer:   &Answer{Field: field.Proven, Label: cookie.ProvenLabel, Size: 6, Time: 20},
	Shared:   []Contents{HoldsCookies},
	Lent:     true,
	Head:     cookie.HeadBytes,
	Seed:     cookie.Seed,
	SetClock: cookie.SetClock,
	Room: func(*Use) Room {
		return Room{cookie.Places, cookie.Size, "cookies: room for %d proven clients"}
	},
	In: func(to *Rooms) **Room { return &to.Cookies },
	Tell: func(r *Reading, to *Memories) {
		p := &Proofs{cookie.Read(r.Memory, r.Now), []diag.Shown{}}
		for _, k := range r.Cookies {
			if k.Always || cookie.Answering(r.Memory, k.Meter, r.Now) {
				p.Answering = append(p.Answering, k.Rule)
			}
		}
		to.Cookies = p
	},
	Values: []Value{
		gauge("levee_proven_clients", "clients",
			"Clients that have proven themselves to cookies.", ofProofs,
			func(p *Proofs) int { return p.Sources }),
		counter("levee_forged_proofs", "proofs", "Resets that answer no answer of a cookie.",
			ofProofs, func(p *Proofs) uint64 { return p.Forged }),
		gauge("levee_answering_cookies", "cookies", "Cookies that answer SYNs or queries now.",
			ofProofs, func(p *Proofs) int { return len(p.Answering) }),
	},
	Lines: func(of *Memories, _ string) []Line {
		p := of.Cookies
		if p == nil {
			return nil
		}
		clients := quantity.Plural(p.Sources, "client")
		answering := forRules("answering", p.Answering)
		return []Line{{"cookies", p.Sources, clients + " proven, " + answering, "cookies",
			fmt.Sprintf("%s proven; room for %d; %d proofs, %d forged; %s", clients, p.Places,
				p.Proven, p.Forged, answering)}}
	},
}

func ofProofs(m *Memories) *Proofs { return m.Cookies }

// Proofs is the status of the memory of cookies.
type Proofs struct {
	cookie.Stats
	Answering []diag.Shown `json:"answering"` // rules that answer SYNs or queries now
}

// forRules says what is done now, and which rules ask for that.
func forRules(done string, rules []diag.Shown) string {
	if len(rules) == 0 {
		return done + " nobody"
	}
	var names []string
	for _, r := range rules {
		names = append(names, string(r))
	}
	return done + " for " + strings.Join(names, ", ")
}
