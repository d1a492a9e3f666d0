package defend

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"levee/internal/dataplane"
	"levee/internal/filter/codegen"
	"levee/internal/lang/policy"
)

// put has the kernel judge by the operator's policy with live rules in it. Cookies among them let
// proven sources through.
func (w *Watcher) put(ctx context.Context, base *policy.Policy, over dataplane.PolicyState,
	rules []live, proven []netip.Addr, step func(what string)) (loaded string, err error) {
	if len(rules) == 0 {
		err := dataplane.LiveDown(ctx, w.Dev)
		if errors.Is(err, dataplane.ErrNotLive) {
			err = nil
		}
		return "", err
	}
	p, err := compose(base, rules)
	if err != nil {
		return "", err
	}
	if !fits(base, p) {
		return "", fmt.Errorf("the rules do not fit the policy: some could never match, or take " +
			"what is essential")
	}
	if err := w.Allowed(ctx, p); err != nil {
		return "", err
	}
	step("checked")
	var texts []string
	lease := time.Duration(0)
	for _, l := range rules {
		texts = append(texts, l.rule.Rule)
		lease = max(lease, l.of.Lease)
	}
	_, err = dataplane.Live(ctx, dataplane.LiveOptions{Dev: w.Dev, Over: over, Rules: texts,
		Lease: lease, Proven: proven}, compiler(p, step))
	return strings.Join(texts, "\n"), err
}

// compiler says when it has compiled.
func compiler(p *policy.Policy, step func(string)) dataplane.CompileFunc {
	compile := dataplane.Compiler(p)
	return func(t codegen.Target) (*codegen.Program, error) {
		out, err := compile(t)
		step("compiled")
		return out, err
	}
}

// noSteps is for changes whose way nobody asks for.
func noSteps(string) {}

// textsOf are the texts of rules, as put gives them.
func textsOf(rules []live) string {
	var texts []string
	for _, l := range rules {
		texts = append(texts, l.rule.Rule)
	}
	return strings.Join(texts, "\n")
}
