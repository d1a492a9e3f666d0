package policy

import (
	"slices"

	"levee/internal/lang/action"
	"levee/internal/lang/field"
)

// Out holds the rules of a policy for packets that leave by the interface. It shares the sets of
// the policy, and `essential off`, with what arrives.
type Out struct {
	Protect []*Rule
	Rules   []*Rule
	Inners  []*Inner
	// Default is pass where the policy does not say; then it has no place.
	Default Default
}

// Leaving returns what the policy says of packets that leave, as a policy of its own, whose slots
// come behind those of this one; nil where it says nothing. It is made anew each time: who changes
// a copy of a policy gets what leaves of the copy.
func (p *Policy) Leaving() *Policy {
	if p.Out == nil {
		return nil
	}
	return &Policy{
		File: p.File, Interfaces: p.Interfaces, Sets: p.Sets, Protect: p.Out.Protect,
		Rules: p.Out.Rules, Inners: p.Out.Inners, NameLists: p.NameLists, Senders: p.Senders,
		Default: p.Out.Default, Essential: p.Essential,
		arriving: p,
	}
}

// WithOut returns the policy with a side for what leaves. Where it says nothing of that, all of it
// passes.
func (p *Policy) WithOut() *Policy {
	if p.Out != nil {
		return p
	}
	q := *p
	q.Out = &Out{Default: Default{Action: action.Pass}}
	return &q
}

// Whole returns the policy with both sides.
func (p *Policy) Whole() *Policy {
	if p.arriving != nil {
		return p.arriving
	}
	return p
}

// Leaves reports whether the policy is about packets that leave.
func (p *Policy) Leaves() bool { return p.arriving != nil }

// Tracks reports whether a rule of either side asks for connections.
func (p *Policy) Tracks() bool {
	out := p.Leaving()
	return p.Asks(field.Flow) || out != nil && out.Asks(field.Flow)
}

// Count returns how many rules the policy has, on both sides.
func (p *Policy) Count() int {
	n := len(p.Protect) + len(p.Rules)
	if p.Out != nil {
		n += len(p.Out.Protect) + len(p.Out.Rules)
	}
	return n
}

// first returns the slot of the first counter of the policy: the counters of what leaves come
// behind those of what arrives.
func (p *Policy) first() int {
	if p.arriving == nil {
		return 0
	}
	return p.arriving.DefaultSlot() + 1
}

// side returns the prefix of built-in names: "" for what arrives, else that of what leaves.
func (p *Policy) side() string {
	if p.arriving == nil {
		return ""
	}
	return "out:"
}

// GIDBesideMessages returns the first term of rules for what leaves that asks for gids, where
// others look into DNS messages: in a program, what is known of a message takes the place of the
// number.
func GIDBesideMessages(rules []*Rule) (gid *Term) {
	messages := false
	for _, rule := range rules {
		if !rule.Out {
			continue
		}
		for i := range rule.Match {
			t := &rule.Match[i]
			messages = messages || t.Field.OfMessage()
			if t.Field == field.GID && gid == nil {
				gid = t
			}
		}
		messages = messages || rule.Limit != nil && slices.ContainsFunc(rule.Limit.Keys,
			func(k Key) bool { return slices.Contains(k.Fields, field.DNSName) })
	}
	if !messages {
		return nil
	}
	return gid
}
