package past

import (
	"time"

	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
)

// Report is the object of `levee rollback --list --json`.
type Report struct {
	Dev      string `json:"dev"`
	Policies []Row  `json:"policies"` // the newest first
}

// Row is one of the policies that were in force.
type Row struct {
	Number  int        `json:"number"`
	Since   time.Time  `json:"since"` // when it came into force
	Policy  diag.Shown `json:"policy"`
	InForce bool       `json:"in_force"`
	// what is otherwise than in the one before it; none of the oldest
	Change *Change `json:"change,omitempty"`
	Older  bool    `json:"-"` // there is one before it
}

// NewReport lists policies, the newest first, with what is otherwise in each than in the one before
// it. inForce tells which are the same as the one in force: the newest of these is that one. Those
// that cannot be read again are told, and have no change.
func NewReport(dev string, all []Policy, inForce func(*Policy) bool, tell func(error)) *Report {
	read := func(p *Policy) *policy.Policy {
		parsed, err := p.Parse()
		if err != nil {
			tell(err)
		}
		return parsed
	}
	rep := &Report{Dev: dev}
	var now *policy.Policy
	found := false
	for i := range all {
		p := &all[i]
		if i == 0 {
			now = read(p)
		}
		row := Row{Number: p.Number, Since: p.Since, Policy: diag.Shown(p.Path),
			InForce: !found && inForce(p)}
		found = found || row.InForce
		var before *policy.Policy
		if row.Older = i+1 < len(all); row.Older {
			if before = read(&all[i+1]); before != nil && now != nil {
				c := compare(before, now)
				row.Change = &c
			}
		}
		now = before
		rep.Policies = append(rep.Policies, row)
	}
	return rep
}
