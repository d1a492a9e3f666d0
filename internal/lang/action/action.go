// Package action is the registry of actions: all that levee knows of what a rule does to a packet
// that meets its conditions.
//
// A row of the table (table.go) has an action's word, its verdict if it decides, whether it has an
// effect, and what the compiler may do with its rules. Every stage asks the table; what a row does
// not say may not be done. What an effect does to a packet is said twice: in instructions by
// package codegen, and in Go by the oracle.
//
// Nothing here knows of policies, packets or instructions.
package action

// Info is one row of the table. A member that is left out is "no".
type Info struct {
	Action Action
	Word   string // that begins the rule, and that text, JSON and counters show
	// Decides says that every packet that meets the rule is decided by it. A rule that never
	// decides has the effect of Count too, for its counter; that of one that may, by its effect,
	// has what it decided.
	Decides bool
	Verdict Action // Drop or Pass, or Redirect, where it decides or may
	First   bool   // its rules stand before all others
	// Effect says that the rule does something besides deciding. Effects happen in the order of the
	// rules, once, and only for packets that come to the rule.
	Effect bool
	May    Traits
	// Connection says that the rule is about TCP connections as a whole, nil of others.
	Connection *Connection
	// Begins says that only packets that may begin a connection have the effect. A later fragment,
	// which the rule meets too, begins none.
	Begins bool
	// Next tells the fate of the next connection like one that the rule passes, where the two
	// differ. It completes "it would be ...".
	Next   string
	Reason string // what an explanation adds to the verdict: completes "by RULE, which ..."
	// NoService says why a policy of a service cannot have the rule, "" if it can.
	NoService string
	// NoOut is the error of a rule about what leaves, nil if there may be one.
	NoOut  *NoOut
	Behind string // words that begin what may stand behind the match of a rule, before its label
	Others string // words of other packet filters for it
}

// Connection lists the errors of a rule about whole connections that asks for a field which only
// some packets of one have.
type Connection struct {
	Who     string // begins "WHO cannot look at ..."
	Why     string // and what to write
	Example string // of one that says TCP
}

// NoOut is the error of a rule about what leaves, of which there is none.
type NoOut struct {
	Why     string
	Instead string // what to write
}

// Traits are the liberties that a compiler may take with a rule that has an effect.
type Traits uint8

const (
	// GoesOn: the effect never decides. The packet meets what follows.
	GoesOn Traits = 1 << iota
	// MayGo: the rule may be left out where an earlier rule decides all that it matches.
	MayGo
	// MayShare: classes of packets whose rules are the same may share the code of the rule.
	MayShare
	// MayBeTree: the rule may stand in a rule tree, which only finds the first rule that matches.
	MayBeTree
	// MayBeBytecode: the rule may be bytecode. That finds the rule that decides first, and the
	// other rules before it then, in any order. So the effect must give the same before, between
	// and behind all others.
	MayBeBytecode
	// MayShadow: the effect is nothing that others see, so that a shadow, the policy that judges
	// beside the one in force, has it too.
	MayShadow
	// MayMeetMalformed: the rule may be about malformed frames, of which no field is known.
	MayMeetMalformed

	All = GoesOn | MayGo | MayShare | MayBeTree | MayBeBytecode | MayShadow |
		MayMeetMalformed
)

// unlisted is the row of what is no action of the language.
var unlisted Info

// index has the row of each action, nil for numbers without a row.
var index = func() (out [256]*Info) {
	for i := range table {
		out[table[i].Action] = &table[i]
	}
	return out
}()

// Info returns the row of an action. One that is not listed may nothing.
func (a Action) Info() *Info {
	if i := index[a]; i != nil {
		return i
	}
	return &unlisted
}

// String returns the word of the action.
func (a Action) String() string { return a.Info().Word }

// MayDecide reports whether rules with the action decide packets, all or some.
func (a Action) MayDecide() bool {
	i := a.Info()
	return i.Decides || i.Effect && i.May&GoesOn == 0
}

// DecidesSome reports whether the effect decides some of the packets that meet the rule, by those
// before them, and lets the others go on.
func (a Action) DecidesSome() bool { return a.MayDecide() && !a.Decides() }

// Decides reports whether a packet that the rule matches meets no rule behind it.
func (a Action) Decides() bool { return a.Info().Decides }

// Verdict returns what the action does to a packet that it decides.
func (a Action) Verdict() Action { return a.Info().Verdict }

// First reports whether rules with the action stand before all others.
func (a Action) First() bool { return a.Info().First }

// Table lists the rows, in the order in which messages name the words.
func Table() []Info { return table }

// Words lists the words of actions, in the order of the table.
func Words() []string {
	out := make([]string, len(table))
	for i := range table {
		out[i] = table[i].Word
	}
	return out
}

// Named returns the action of a word of the language.
func Named(word string) (a Action, ok bool) {
	for i := range table {
		if table[i].Word == word {
			return table[i].Action, true
		}
	}
	return Drop, false
}
