package past

import (
	"fmt"
	"slices"
	"strings"

	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

// Change lists the differences between a policy and the one before it.
type Change struct {
	Added   []string    `json:"rules_added"` // as `levee fmt` prints them
	Removed []string    `json:"rules_removed"`
	Moved   bool        `json:"moved"` // the same rules, in another order
	Sets    []SetChange `json:"sets"`
	Others  []string    `json:"others"` // statements besides, as they are now
}

// SetChange is the difference of a static set, which may be new or gone.
type SetChange struct {
	Name    string `json:"name"`
	Added   int    `json:"added"` // elements
	Removed int    `json:"removed"`
	// new, gone, or, of a dynamic set, changed; "" for a static set that was there
	What string `json:"what,omitempty"`
}

// outDefault decides what leaves where no rule does.
func outDefault(p *policy.Policy) action.Action {
	if p.Out == nil {
		return action.Pass
	}
	return p.Out.Default.Action
}

// compare says what is otherwise in a policy than in one before it.
func compare(before, now *policy.Policy) Change {
	texts := func(p *policy.Policy) (all []string) {
		for _, r := range slices.Concat(p.Protect, p.Rules) {
			all = append(all, r.Text)
		}
		if out := p.Leaving(); out != nil {
			for _, r := range slices.Concat(out.Protect, out.Rules) {
				all = append(all, r.Text)
			}
		}
		return all
	}
	was, is := texts(before), texts(now)
	c := Change{Sets: []SetChange{}, Others: []string{}}
	c.Removed, c.Added = without(was, is), without(is, was)
	c.Moved = len(c.Added)+len(c.Removed) == 0 && !slices.Equal(was, is)
	for _, name := range namesOf(before, now) {
		if s, changed := compareSets(name, setOf(before, name), setOf(now, name)); changed {
			c.Sets = append(c.Sets, s)
		}
	}
	if before.Default.Action != now.Default.Action {
		c.Others = append(c.Others, "default "+now.Default.Action.String())
	}
	if was, is := outDefault(before), outDefault(now); was != is {
		c.Others = append(c.Others, "out default "+is.String())
	}
	if before.Essential != now.Essential {
		c.Others = append(c.Others, map[bool]string{true: "essential rules are back",
			false: "essential off"}[now.Essential])
	}
	if before.MaxConnections != now.MaxConnections {
		if now.MaxConnections == 0 {
			c.Others = append(c.Others, "no connections max")
		} else {
			c.Others = append(c.Others, fmt.Sprintf("connections max %d", now.MaxConnections))
		}
	}
	proves := func(p *policy.Policy) (all []string) {
		for _, s := range p.Proves {
			all = append(all, s.Text)
		}
		return all
	}
	for _, text := range without(proves(before), proves(now)) {
		c.Others = append(c.Others, "no "+text)
	}
	c.Others = append(c.Others, without(proves(now), proves(before))...)
	if before.OnError != now.OnError {
		c.Others = append(c.Others, map[policy.OnError]string{policy.KeepLast: "no on error",
			policy.ErrorPass: "on error pass", policy.ErrorDrop: "on error drop"}[now.OnError])
	}
	return c
}

// String returns the change in a line; "" where the rules mean the same.
func (c Change) String() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if n := len(c.Added); n > 0 {
		add("%d added", n)
	}
	if n := len(c.Removed); n > 0 {
		add("%d removed", n)
	}
	if len(parts) > 0 {
		parts = []string{"rules: " + strings.Join(parts, ", ")}
	}
	if c.Moved {
		add("rules in another order")
	}
	for _, s := range c.Sets {
		if s.What != "" {
			add("set %s: %s", s.Name, s.What)
		} else {
			add("set %s: %d added, %d removed", s.Name, s.Added, s.Removed)
		}
	}
	return strings.Join(append(parts, c.Others...), "; ")
}

// without lists what is in all more often than in others, in order.
func without(all, others []string) []string {
	count := map[string]int{}
	for _, text := range others {
		count[text]++
	}
	out := []string{}
	for _, text := range all {
		if count[text]--; count[text] < 0 {
			out = append(out, text)
		}
	}
	return out
}

func namesOf(policies ...*policy.Policy) (names []string) {
	for _, p := range policies {
		for _, s := range p.Sets {
			if !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
			}
		}
	}
	return names
}

func setOf(p *policy.Policy, name string) *policy.Set {
	for _, s := range p.Sets {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func compareSets(name string, before, now *policy.Set) (c SetChange, changed bool) {
	c.Name = name
	switch {
	case before == nil:
		c.What = "new"
	case now == nil:
		c.What = "gone"
	case before.Kind == policy.Dynamic || now.Kind == policy.Dynamic:
		if before.Kind != now.Kind || before.Type != now.Type || before.Max != now.Max ||
			before.Lease != now.Lease || before.RollUp != now.RollUp || before.Keep != now.Keep ||
			!slices.Equal(before.Names, now.Names) {
			c.What = "changed"
		}
	default:
		was, is := slices.Collect(before.Texts()), slices.Collect(now.Texts())
		c.Removed, c.Added = len(without(was, is)), len(without(is, was))
	}
	return c, c.What != "" || c.Added+c.Removed > 0
}
