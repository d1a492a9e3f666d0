package defend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/codegen"
	"levee/internal/filter/ir"
	machine "levee/internal/kernel"
	"levee/internal/lang/policy"
)

// changer has the kernel judge by the operator's policy with live rules in it. Cookies among them
// let proven sources through.
type changer struct {
	kernel  kernel
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
		return c.kernel.down(ctx, c.dev)
	}
	p, err := c.together(ctx)
	if err != nil {
		return err
	}
	c.step("checked")
	var rules []inspect.LiveRule
	for _, l := range c.rules {
		rules = append(rules, inspect.LiveRule{Rule: l.Rule.Rule, Origin: l.Origin,
			Before: l.Rule.Before})
	}
	err = c.kernel.put(ctx, dataplane.LiveOptions{Dev: c.dev, Over: c.over, Rules: rules,
		Lease:  episode.LeaseOf(c.rules),
		Proven: slices.Collect(maps.Keys(c.proven))}, c.compiler(p))
	c.step("in force")
	return err
}

// stands says whether the rules, and no others, are in force, whatever came of the change: it may
// have been made before something behind it failed, or before whoever asked for it went.
func (c *changer) stands(ctx context.Context) bool {
	there, _, err := c.kernel.live(context.WithoutCancel(ctx), c.dev)
	if err != nil {
		return false
	}
	if there == nil {
		return len(c.rules) == 0
	}
	var want []string
	for _, l := range c.rules {
		want = append(want, l.Rule.Rule)
	}
	return slices.Equal(there.Rules, want)
}

// together is the policy with the rules in it, if they fit it and cut nobody off.
func (c *changer) together(ctx context.Context) (*policy.Policy, error) {
	p, err := compose(c.base, c.rules)
	if err != nil {
		return nil, err
	}
	if err := c.fit(); err != nil {
		return nil, err
	}
	return p, c.allowed(ctx, p)
}

// fit is an error where rules do not fit the policy. Those of detectors are looked at without those
// of writers, who may well drop what a rule below would match.
func (c *changer) fit() error {
	of := func(written bool) []episode.Live {
		return slices.DeleteFunc(slices.Clone(c.rules), func(l episode.Live) bool {
			return (l.Of == nil) != written
		})
	}
	p, err := compose(c.base, of(false))
	if err == nil && !fits(c.base, p) {
		err = errors.New("the rules do not fit the policy: some could never match, or take " +
			"what is essential")
	}
	if err != nil {
		return err
	}
	return fitsWritten(c.base, of(true))
}

// fitsWritten is an error for rules of writers that take what is essential.
func fitsWritten(base *policy.Policy, rules []episode.Live) error {
	p, err := compose(base, rules)
	if err != nil {
		return err
	}
	before := len(ir.Taken(ir.Build(base)))
	if all := ir.Taken(ir.Build(p)); len(all) > before {
		return fmt.Errorf("it would take what is essential: %s", all[0].Message)
	}
	return nil
}

// blame finds the rules of writers that keep all from coming into force, each by itself.
func (c *changer) blame(ctx context.Context) map[string]string {
	out := map[string]string{}
	for _, l := range c.rules {
		if l.Of != nil {
			continue
		}
		one := []episode.Live{l}
		err := fitsWritten(c.base, one)
		if err == nil {
			var p *policy.Policy
			if p, err = compose(c.base, one); err == nil {
				err = c.allowed(ctx, p)
			}
		}
		if err != nil && ctx.Err() == nil {
			out[l.Rule.Label] = err.Error()
		}
	}
	return out
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
	return incident.Step{What: what, At: time.Now(), Core: machine.ProcessorTime().Seconds()}
}
