package defend

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/dataplane"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/codegen"
	"levee/internal/lang/policy"
)

// changer has the kernel judge by the operator's policy with live rules in it. Cookies among them
// let proven sources through.
type changer struct {
	dev     string
	base    *policy.Policy
	over    sets.PolicyState
	rules   []episode.Live
	proven  map[netip.Addr]bool
	allowed func(context.Context, *policy.Policy) error
	steps   []incident.Step
}

func (c *changer) put(ctx context.Context) error {
	if len(c.rules) == 0 {
		err := dataplane.LiveDown(ctx, c.dev)
		if errors.Is(err, dataplane.ErrNotLive) {
			err = nil
		}
		return err
	}
	p, err := compose(c.base, c.rules)
	if err != nil {
		return err
	}
	if !fits(c.base, p) {
		return errors.New("the rules do not fit the policy: some could never match, or take " +
			"what is essential")
	}
	if err := c.allowed(ctx, p); err != nil {
		return err
	}
	c.step("checked")
	var texts []string
	for _, l := range c.rules {
		texts = append(texts, l.Rule.Rule)
	}
	_, err = dataplane.Live(ctx, dataplane.LiveOptions{Dev: c.dev, Over: c.over, Rules: texts,
		Lease: episode.LeaseOf(c.rules), Proven: slices.Collect(maps.Keys(c.proven))},
		c.compiler(p))
	c.step("in force")
	return err
}

// compiler says when it has compiled.
func (c *changer) compiler(p *policy.Policy) dataplane.CompileFunc {
	compile := dataplane.Compiler(p)
	return func(t codegen.Target) (*codegen.Program, error) {
		out, err := compile(t)
		c.step("compiled")
		return out, err
	}
}

// step ends a part of the way to a rule in force.
func (c *changer) step(what string) { c.steps = append(c.steps, stepNow(what)) }

func stepNow(what string) incident.Step {
	return incident.Step{What: what, At: time.Now(), Core: coreTime()}
}
