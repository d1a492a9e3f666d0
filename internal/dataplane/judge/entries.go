package judge

import (
	"context"
	"errors"

	"levee/internal/dataplane/sets"
	"levee/internal/lang/policy"
)

// Entries returns what the dynamic sets of the policy in force on dev hold now.
func Entries(ctx context.Context, dev string, p *policy.Policy) ([]Entry, error) {
	var all []Entry
	for _, set := range p.Sets {
		if set.Kind != policy.Dynamic {
			continue
		}
		entries, err := entriesOf(ctx, dev, set.Name)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			all = append(all, Entry{set, e.Element()})
		}
	}
	return all, nil
}

func entriesOf(ctx context.Context, dev, name string) (_ []sets.Entry, err error) {
	set, err := sets.Open(ctx, dev, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	return set.List(ctx)
}
