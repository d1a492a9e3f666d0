package sets

import (
	"context"

	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// Add adds entries to the dynamic set of that name of the policy on dev, or, if dev is "", of
// every policy in this network namespace that has one. All entries are added everywhere, or, with
// an error, none anywhere. devs are the interfaces.
func Add(ctx context.Context, dev, name string, entries []Entry) (devs []string, err error) {
	return eachSet(ctx, dev, name, func(sets []*Set) error {
		if err := checkAll(sets, entries); err != nil {
			return err
		}
		return addAll(sets, entries)
	})
}

// Replace makes dynamic sets, chosen as by SetAdd, hold exactly these entries (see Set.Replace):
// all of the sets, or, with an error, none. devs are the interfaces.
func Replace(ctx context.Context, dev, name string, entries []Entry) (devs []string,
	err error) {
	return eachSet(ctx, dev, name, func(sets []*Set) error {
		if err := checkAll(sets, entries); err != nil {
			return err
		}
		return replaceAll(sets, entries)
	})
}

// checkAll says what keeps entries from being those of one of the sets.
func checkAll(sets []*Set, entries []Entry) error {
	for _, s := range sets {
		if err := s.check(entries); err != nil {
			return err
		}
	}
	return nil
}

// eachSet runs fn with all sets of that name held at once, in the fixed order in which they are
// opened.
func eachSet(ctx context.Context, dev, name string, fn func([]*Set) error) (devs []string,
	err error) {
	for {
		sets, err := openSets(ctx, dev, name)
		if err != nil {
			return nil, err
		}
		done, err := holdAll(ctx, sets, fn)
		if err != nil {
			return nil, err
		}
		if done {
			for _, s := range sets {
				devs = append(devs, s.dev)
			}
			return devs, nil
		}
	}
}

// holdAll holds the sets, runs fn, and closes them. If one is out of date nothing is done, and
// all must be opened anew.
func holdAll(ctx context.Context, sets []*Set, fn func([]*Set) error) (done bool, err error) {
	for _, s := range sets {
		defer s.Close()
	}
	for _, s := range sets {
		held, err := s.tryHold(ctx)
		if !held || err != nil {
			return false, err
		}
		defer s.Release()
	}
	return true, fn(sets)
}

// Delete deletes entries from dynamic sets, chosen as by SetAdd, and says how many there were: from
// all of the sets, or, with an error, from none. What is no entry is no error.
func Delete(ctx context.Context, dev, name string, elements []policy.Element) (deleted int,
	devs []string, err error) {
	devs, err = eachSet(ctx, dev, name, func(sets []*Set) error {
		for _, s := range sets {
			if err := s.checkElements(elements); err != nil {
				return err
			}
		}
		for _, s := range sets {
			deleted += s.remove(elements)
		}
		mergeDue(sets)
		return nil
	})
	return deleted, devs, err
}

// Contents is a dynamic set with its entries.
type Contents struct {
	Dev     string
	Type    policy.SetType
	Entries []Entry
}

// List lists dynamic sets, chosen as by SetAdd.
func List(ctx context.Context, dev, name string) ([]Contents, error) {
	if refused := kernel.Privileged(); refused != nil {
		if service, ok := store.ServiceNamed(dev); ok {
			return readOfService(ctx, service, name, refused)
		}
		s, err := store.ForReading(ctx, refused)
		if err != nil {
			return nil, err
		}
		return readSets(s, dev, name)
	}
	sets, err := openSets(ctx, dev, name)
	if err != nil {
		return nil, err
	}
	var out []Contents
	for _, s := range sets {
		defer s.Close()
		entries, err := s.List(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, Contents{s.dev, s.Type(), entries})
	}
	return out, nil
}
