// Package judgetest runs the tests that policies have, for tests of Go.
package judgetest

import (
	"levee/internal/dataplane/judge"
	"levee/internal/lang/policy"
)

// Run runs the tests of a policy, by the oracle.
func Run(p *policy.Policy) ([]*judge.TestResult, error) {
	j, err := judge.New(p, judge.Oracle)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	var all []*judge.TestResult
	for _, t := range p.Tests {
		res, err := j.Test(p.File, t)
		if err != nil {
			return nil, err
		}
		all = append(all, res)
	}
	return all, nil
}
