package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"levee/internal/agent/api"
	"levee/internal/agent/defend"
	"levee/internal/agent/inforce"
	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/status"
	"levee/internal/filter/ir"
	"levee/internal/lang/diag"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
)

// Routes returns the routes of the agent's API that are of its parts, with those of its page, and
// what reads policies for it.
func Routes(floods *defend.Manager, watcher *inforce.Watcher, page []api.Route) []api.Route {
	check := api.Post("/api/v1/check", api.Viewer,
		"Check the text of a policy: all errors and warnings, each with its place and a hint.",
		checkText)
	check.Quiet, check.MaxBody = true, maxChecked+maxChecked/2
	return append(slices.Concat(floods.Routes(), page, status.Routes()), check,
		api.Get("/api/v1/policies", api.Viewer,
			"The policies in force, as texts, with what the rules of each line have counted.",
			func(ctx context.Context, _ *struct{}) (*policiesReport, error) {
				return readPolicies(ctx, watcher)
			}),
	)
}

// policiesReport are the policies in force.
type policiesReport struct {
	Policies []policyInForce `json:"policies"`
}

type policyInForce struct {
	Devs   []string      `json:"devs" doc:"The interfaces that have it, as one where there are several."`
	Policy string        `json:"policy" doc:"Name of its file."`
	Hash   string        `json:"hash" doc:"SHA-256 of its text."`
	Hook   string        `json:"hook"`
	Since  time.Time     `json:"since"`
	Text   string        `json:"text" doc:"Empty where it is longer than 1 MiB."`
	Rules  []ruleCounted `json:"rules" doc:"In the order in which they are asked; line 0 is built in."`
}

type ruleCounted struct {
	Line    int    `json:"line"`
	Label   string `json:"label"`
	Text    string `json:"text"`
	Verdict string `json:"verdict" doc:"pass, drop, redirect or count"`
	Reason  string `json:"reason"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// maxPolicyText is the longest text of a policy that the API shows.
const maxPolicyText = 1 << 20

func readPolicies(ctx context.Context, watcher *inforce.Watcher) (*policiesReport, error) {
	out := &policiesReport{Policies: []policyInForce{}}
	all, err := watcher.Counted(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for i := range all {
		s := &all[i]
		if seen[s.Dev] {
			continue
		}
		p := policyInForce{Devs: []string{s.Dev}, Policy: diag.Unquoted(s.Policy), Hash: s.Hash,
			Hook: string(s.Mode), Since: s.Since, Rules: []ruleCounted{}}
		if s.Together != "" {
			p.Devs = dataplane.Others(all, s.Dev)
		}
		for _, dev := range p.Devs {
			seen[dev] = true
		}
		shown, _, err := inspect.Show(ctx, s.Dev)
		if err != nil {
			return nil, err
		}
		if len(shown.Source) <= maxPolicyText {
			p.Text = string(shown.Source)
		}
		for _, c := range s.Counters {
			p.Rules = append(p.Rules, ruleCounted{c.Line, c.Label, c.Text, c.Action, c.Reason,
				c.Packets, c.Bytes})
		}
		out.Policies = append(out.Policies, p)
	}
	return out, nil
}

// maxChecked is the longest text that is checked, and mostChecked how many elements its sets and
// lists may have: some hundred bytes each.
const (
	maxChecked  = 256 << 10
	mostChecked = 1 << 20
)

type checkInput struct {
	Body struct {
		Text string `json:"text" maxLength:"262144" doc:"The policy."`
		Name string `json:"name,omitempty" maxLength:"100" doc:"What diagnostics call it."`
	}
}

type checkReport struct {
	OK          bool            `json:"ok" doc:"No errors; there may be warnings."`
	Rules       int             `json:"rules"`
	Sets        int             `json:"sets"`
	Tests       int             `json:"tests"`
	Diagnostics []checkedResult `json:"diagnostics"`
}

type checkedResult struct {
	Line     int    `json:"line" doc:"0 where it concerns all of it."`
	Column   int    `json:"column"`
	Severity string `json:"severity" enum:"error,warning"`
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty" doc:"What to do."`
	Source   string `json:"source,omitempty" doc:"The line."`
}

var checking sync.Mutex // one check at a time: they take processor time

// checkText checks a policy. It opens no file: a caller may not read this machine's by diagnostics.
func checkText(ctx context.Context, in *checkInput) (*checkReport, error) {
	checking.Lock()
	defer checking.Unlock()
	if ctx.Err() != nil { // nobody waits for it any more
		return nil, ctx.Err()
	}
	name := in.Body.Name
	if name == "" {
		name = "policy"
	}
	tree, ds := syntax.Parse(name, []byte(in.Body.Text))
	tree.Most = mostChecked
	p, more := resolve.Consume(tree, func(string) (io.ReadCloser, error) {
		return nil, errors.New("a check by the API reads no files: use levee check")
	})
	ds = diag.Merge(ds, more)
	out := &checkReport{OK: !ds.HasErrors(), Diagnostics: []checkedResult{}}
	if out.OK {
		out.Rules, out.Sets, out.Tests = p.Count(), len(p.Sets), len(p.Tests)
		ds = append(ds, ir.Diagnostics(tree, ir.Build(p).Findings)...)
	}
	for _, d := range ds {
		out.Diagnostics = append(out.Diagnostics, checkedResult{int(d.Line), int(d.Col),
			fmt.Sprint(d.Severity), d.Message, d.Hint, d.Source})
	}
	return out, nil
}
