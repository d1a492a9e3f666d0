package defend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/rulebook"
	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
	"levee/internal/lang/policy"
)

// Carry has the live rules of a policy go on in one that takes its place, where they fit it and cut
// nobody off, unless that is forced. The agent, which knows what is usual, looks at them again when
// it is in force.
func Carry(p *policy.Policy, allowed func(context.Context, string, *policy.Policy) error,
	force bool) func(context.Context, string, []inspect.LiveRule) *dataplane.Carried {
	return func(ctx context.Context, dev string, rules []inspect.LiveRule) *dataplane.Carried {
		c := &carrier{changer: changer{dev: dev, base: p,
			allowed: func(ctx context.Context, with *policy.Policy) error {
				if force {
					return nil
				}
				return allowed(ctx, dev, with)
			}}}
		for _, r := range rules {
			l := carried(p, r)
			if l.Of == nil && !rulebook.IsID(l.Rule.Label) {
				c.lose(r, errNoDetector)
				continue
			}
			c.all, c.texts = append(c.all, l), append(c.texts, r)
		}
		return c.carry(ctx)
	}
}

// WithLive returns the policy by which packets are judged where live rules stand in p. Sources that
// a detector keeps are told from the text of its rules.
func WithLive(p *policy.Policy, rules []inspect.LiveRule) (*policy.Policy, error) {
	var live []episode.Live
	for _, r := range rules {
		live = append(live, carried(p, r))
	}
	return compose(p, live)
}

// carrier finds the rules that the next policy keeps.
type carrier struct {
	changer
	all   []episode.Live
	texts []inspect.LiveRule // the same
	out   dataplane.Carried
}

var errNoDetector = errors.New(episode.NoDetector)

// carried returns a rule of the policy before, with its detector in this one.
func carried(p *policy.Policy, r inspect.LiveRule) episode.Live {
	_, label, _ := strings.Cut(r.Rule, ` as "`)
	l := episode.Live{Origin: r.Origin, Rule: incident.Rule{Rule: r.Rule, Before: r.Before,
		Label: strings.TrimSuffix(label, `"`), State: incident.Live}}
	if rulebook.IsID(l.Rule.Label) {
		return l
	}
	if at := slices.IndexFunc(p.Detects, func(d *policy.Detect) bool {
		return d.Name == r.Origin
	}); at >= 0 {
		l.Of = p.Detects[at]
	}
	return l
}

func (c *carrier) lose(r inspect.LiveRule, why error) {
	c.out.Lost = append(c.out.Lost, fmt.Sprintf("the live rule `%s` ends: %v", r.Rule, why))
}

// carry keeps all rules, or, if they do not fit together, each one that fits those before it.
func (c *carrier) carry(ctx context.Context) *dataplane.Carried {
	c.rules = c.all
	with, err := c.together(ctx)
	if err == nil {
		c.out.Rules, c.out.Compile = c.texts, dataplane.Compiler(with)
		return &c.out
	}
	var kept []episode.Live
	for i, l := range c.all {
		c.rules = append(slices.Clone(kept), l)
		p, err := c.together(ctx)
		if err != nil {
			c.lose(c.texts[i], err)
			continue
		}
		kept, c.out.Rules = c.rules, append(c.out.Rules, c.texts[i])
		c.out.Compile = dataplane.Compiler(p)
	}
	return &c.out
}
