package load

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"levee/internal/filter/codegen"
	"levee/internal/filter/names"
	"levee/internal/lab/contender"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// Levee is a policy that is put into force as `levee up` does. The programs of the last load are
// kept, so that it can be switched off and on without compiling it again.
type Levee struct {
	Text     []byte
	Files    map[string][]byte // that it may read
	programs map[codegen.Target]*codegen.Program
}

// Spec is levee with the policy; a change is that to another one. nil: the same one anew.
func (p *Levee) Spec(name, what string, changed *Levee) Spec {
	if changed == nil {
		changed = p
	}
	return Spec{
		Name: name, What: what, Hook: contender.XDP,
		Install: p.Load, Change: changed.Load, Off: contender.LeveeDown, On: p.again,
		Dropped: contender.LeveeDropped, Remove: contender.LeveeDown,
	}
}

// Load compiles the policy and puts it into force.
func (p *Levee) Load(ctx context.Context, s contender.Site) error {
	resolved, err := Parse(p.Text, p.Files)
	if err != nil {
		return err
	}
	p.programs = map[codegen.Target]*codegen.Program{}
	return contender.LeveeUp(ctx, s, policyName, p.Text,
		func(t codegen.Target) (*codegen.Program, error) {
			prog, err := codegen.Compile(resolved, t)
			if err == nil {
				p.programs[anySecret(t)] = prog
			}
			return prog, err
		})
}

// again puts it into force once more.
func (p *Levee) again(ctx context.Context, s contender.Site) error {
	return contender.LeveeUp(ctx, s, policyName, p.Text,
		func(t codegen.Target) (*codegen.Program, error) {
			if prog := p.programs[anySecret(t)]; prog != nil {
				return prog, nil
			}
			return nil, fmt.Errorf("the policy was compiled for another target than %+v", t)
		})
}

// anySecret returns a target whatever its secret of names, which ends with the last policy of a
// machine: what is measured has no names.
func anySecret(t codegen.Target) codegen.Target {
	t.Names = names.Secret{}
	return t
}

const policyName = "scale.levee"

// Parse reads a policy that was made for a measurement, and the files that it names.
func Parse(text []byte, files map[string][]byte) (*policy.Policy, error) {
	p, diags := resolve.Parse(policyName, text, func(name string) (io.ReadCloser, error) {
		b, ok := files[name]
		if !ok {
			return nil, fmt.Errorf("no file %s", name)
		}
		return io.NopCloser(bytes.NewReader(b)), nil
	})
	if diags.HasErrors() {
		return nil, fmt.Errorf("the policy made for the measurement: %w", diags.Err())
	}
	return p, nil
}
