package datapath

import (
	"context"
	"net/netip"
)

// SetAdd adds entries to the dynamic set of that name of the policy on dev, or, if dev is "", of
// every policy in this network namespace that has one. All entries are added everywhere, or, with an
// error, none anywhere. devs are the interfaces.
func SetAdd(ctx context.Context, dev, name string, entries []SetEntry) (devs []string, err error) {
	if err := checkEntries(entries); err != nil {
		return nil, err
	}
	var done []undo
	err = eachSet(ctx, dev, name, func(s *Set) error {
		d, err := s.add(entries)
		if err != nil {
			takeBack(done)
			return err
		}
		done = append(done, d...)
		devs = append(devs, s.dev)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return devs, nil
}

// eachSet holds all sets of that name at once, in the fixed order in which they are opened, and runs
// fn on each until an error.
func eachSet(ctx context.Context, dev, name string, fn func(*Set) error) error {
	for {
		sets, err := openSets(ctx, dev, name)
		if err != nil {
			return err
		}
		done, err := holdAll(sets, fn)
		if done || err != nil {
			return err
		}
	}
}

// holdAll holds the sets, runs fn on each, and closes them. If one is out of date nothing is done, and
// all must be opened anew.
func holdAll(sets []*Set, fn func(*Set) error) (done bool, err error) {
	for _, s := range sets {
		defer s.Close()
	}
	for _, s := range sets {
		held, err := s.tryHold()
		if !held || err != nil {
			return false, err
		}
		defer s.release()
	}
	for _, s := range sets {
		if err := fn(s); err != nil {
			return false, err
		}
	}
	return true, nil
}

// SetDel deletes prefixes from dynamic sets, chosen as by SetAdd, and says how many entries there
// were. A prefix that is no entry is no error.
func SetDel(ctx context.Context, dev, name string, prefixes []netip.Prefix) (deleted int, devs []string, err error) {
	sets, err := openSets(ctx, dev, name)
	if err != nil {
		return 0, nil, err
	}
	for _, s := range sets {
		defer s.Close()
	}
	for _, s := range sets {
		n, err := s.Delete(ctx, prefixes...)
		if err != nil {
			return deleted, devs, err
		}
		deleted += n
		devs = append(devs, s.dev)
	}
	return deleted, devs, nil
}

// SetContents is a dynamic set with its entries.
type SetContents struct {
	Dev     string
	Entries []SetEntry
}

// SetList lists dynamic sets, chosen as by SetAdd.
func SetList(ctx context.Context, dev, name string) ([]SetContents, error) {
	sets, err := openSets(ctx, dev, name)
	if err != nil {
		return nil, err
	}
	var out []SetContents
	for _, s := range sets {
		defer s.Close()
		entries, err := s.List(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, SetContents{s.dev, entries})
	}
	return out, nil
}
