package inspect

import (
	"context"
	"path/filepath"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
)

// InForce is the policy in force on an interface, in the form that Up was given.
type InForce struct {
	Path   string // of the policy
	Source []byte
	Files  []setfile.File // what its set files held then
	Trial  bool           // it is on trial
	// why only the fallback of the policy is in force; "": it is the policy
	OnError string
	// why this policy, which was in force before, is so again in place of another; "": it is not
	Instead string
	Live    []LiveRule // those that stand in it now, beside the text
}

// Name returns what verdicts call the policy: the base name of its file.
func (p *InForce) Name() string { return filepath.Base(p.Path) }

// Parse reads the policy again.
func (p *InForce) Parse() (*policy.Policy, diag.Diagnostics) {
	return resolve.Parse(p.Name(), p.Source, setfile.Recorded(p.Files))
}

// Show reads the policy in force on an interface.
func Show(ctx context.Context, dev string) (out *InForce, notes []string, err error) {
	notes, err = generation.NotedOn(ctx, dev,
		func(s *store.Store, a *attach.Attachment) (err error) {
			g := a.Current()
			out = &InForce{
				Path: g.Policy, Source: g.Source, OnError: g.OnError, Instead: g.Instead,
				Trial: a.OnTrial() != nil,
			}
			live, err := TellLive(s, a)
			if err != nil {
				return err
			}
			if live != nil {
				out.Live = live.Each()
			}
			out.Files, err = s.SetFiles(a.Key, g)
			return err
		})
	return out, notes, err
}
