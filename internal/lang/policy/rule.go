package policy

import (
	"slices"

	"levee/internal/lang/action"
)

// Rule is one statement that begins with the word of an action.
type Rule struct {
	Action    action.Action
	Match     []Term    // all must hold; empty matches every well-formed packet
	Malformed bool      // `malformed`: matches malformed frames and only these; Match is then empty
	Label     string    // from `as`, or ""
	Text      string    // canonical text, as `levee fmt` prints it
	ID        string    // identity across replaces: see docs/reference/language.md "Statements"
	Limit     *Limit    // of a limit
	Sample    uint32    // of a log: one packet in so many is told of
	Cookie    *Cookie   // of a cookie
	Greylist  *Greylist // of a greylist
	Ring      *Ring     // of a redirect
	Out       bool      // about what leaves
	Pos       Pos
}

// Ring is the destination of packets that a rule redirects.
type Ring struct {
	Name string        // that of a file: letters, digits, - and _
	Else action.Action // Pass or Drop: the verdict while nobody reads the ring
}

// MaxRings limits the rings of a policy.
const MaxRings = 8

// Rings returns the names of the rings that rules redirect packets to, in the order of their first
// rules.
func (p *Policy) Rings() (names []string) {
	for _, r := range p.Rules {
		if r.Ring != nil && !slices.Contains(names, r.Ring.Name) {
			names = append(names, r.Ring.Name)
		}
	}
	return names
}

// Asks says whether the rule asks the set.
func (r *Rule) Asks(s *Set) bool {
	return slices.ContainsFunc(r.Match, func(t Term) bool {
		return t.Set == s || t.Inner != nil &&
			slices.ContainsFunc(t.Inner.Match, func(t Term) bool { return t.Set == s })
	})
}

// Cookie holds the numbers of a rule that begins with cookie: it answers SYNs, or queries over UDP,
// in the host's place where more than so many come in a second. docs/reference/proofs.md "Cookies"
// says how.
type Cookie struct {
	Answers action.Answered
	Above   uint64 // of them that pass unanswered in a second; 0: none
}
