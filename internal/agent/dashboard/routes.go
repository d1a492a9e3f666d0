package dashboard

import (
	"context"
	"time"

	"levee/internal/agent/api"
	"levee/internal/agent/history"
	"levee/web"
)

// Policy is the policy in force on an interface, line by line.
type Policy struct {
	Dev          string    `json:"dev"`
	Policy       string    `json:"policy" doc:"Name of its file."`
	Hook         string    `json:"hook"`
	Since        time.Time `json:"since"`
	TrialSeconds float64   `json:"trial_seconds" doc:"Left to confirm; 0: it is not on trial."`
	Lines        []string  `json:"lines"`
	Slots        []Slot    `json:"slots" doc:"What decides or counts, in the order of the policy."`
	Shadow       *Shadow   `json:"shadow,omitempty" doc:"The policy that judges beside it."`
}

// Slot is a rule of the policy, or a built-in one, with its counter.
type Slot struct {
	ID      string  `json:"id" doc:"Identity of the counter, also over replaces."`
	Line    int     `json:"line" doc:"0 for built-in rules and those of the agent."`
	Rule    string  `json:"rule" doc:"Its place."`
	Label   string  `json:"label"`
	Text    string  `json:"text"`
	Reason  string  `json:"reason"`
	Verdict string  `json:"verdict" doc:"pass, drop, answer or redirect; empty: it counts only."`
	Packets uint64  `json:"packets"`
	Bytes   uint64  `json:"bytes"`
	Ns      float64 `json:"ns,omitempty" doc:"Estimate for a packet that it decides."`
}

// Shadow compares the decisions of another policy with those in force.
type Shadow struct {
	Policy  string    `json:"policy"`
	Since   time.Time `json:"since"`
	Packets uint64    `json:"packets" doc:"Judged by both."`
	Differ  uint64    `json:"differ" doc:"Of these, with another verdict."`
	Pairs   []Pair    `json:"pairs" doc:"Those that differ first, then by packets."`
}

// Pair are the decisions of both for some packets.
type Pair struct {
	Differs bool     `json:"differs"`
	Packets uint64   `json:"packets"`
	InForce Decision `json:"in_force"`
	Shadow  Decision `json:"shadow"`
}

// Decision is a verdict and the rule that made it.
type Decision struct {
	Verdict string `json:"verdict"`
	Rule    string `json:"rule"`
	Line    int    `json:"line"`
	Label   string `json:"label"`
	Text    string `json:"text"`
}

type policyInput struct {
	Dev string `path:"dev" maxLength:"15" doc:"Interface."`
}

// Routes returns the routes of the page. kept is the history, or why there is none; read reads the
// policy on an interface.
func Routes(kept func() (*history.Store, error),
	read func(ctx context.Context, dev string) (*Policy, error)) []api.Route {
	return append(seriesRoutes(kept),
		api.Get("/api/v1/interfaces/{dev}/policy", api.Viewer, "The policy in force, line by "+
			"line, with counters and estimated costs, and what a shadow would do otherwise.",
			func(ctx context.Context, in *policyInput) (*Policy, error) {
				return read(ctx, in.Dev)
			}),
		api.Files("/", files{web.Dashboard()}))
}
