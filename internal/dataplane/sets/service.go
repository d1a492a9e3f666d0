package sets

import (
	"context"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
)

// openOfService opens the set of the policy of a service.
func openOfService(ctx context.Context, service, name string) (out []*Set, err error) {
	err = store.TransactServices(ctx, func(s *store.Store) error {
		a, err := generation.FindService(s, service)
		if err != nil {
			return err
		}
		set, err := OpenSetOf(s, a, name)
		if set == nil && err == nil {
			err = noSet(store.Service(service), name, namesOf(a))
		}
		if err == nil {
			out = append(out, set)
		}
		return err
	})
	return out, err
}

// readOfService is openOfService for a reader, who gets a copy.
func readOfService(ctx context.Context, service, name string, refused error) ([]Contents, error) {
	s, err := store.ServicesForReading(ctx, refused)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, noSet(store.Service(service), name, nil)
	}
	var out []Contents
	err = generation.Steady(func() error {
		out = nil
		a, err := generation.FindService(s, service)
		if err != nil {
			return err
		}
		for _, info := range a.Current().Sets {
			if info.Name != name {
				continue
			}
			set, err := CopyOf(s, a.Key, a.Current(), info)
			if err != nil {
				return err
			}
			out = append(out, Contents{a.Current().Dev, info.EntryType(),
				sortedEntries(set.entries())})
		}
		if len(out) == 0 {
			return noSet(a.Current().Dev, name, namesOf(a))
		}
		return nil
	})
	return out, err
}

func namesOf(a *attach.Attachment) (names []string) {
	for _, info := range a.Current().Sets {
		names = append(names, info.Name)
	}
	return names
}
