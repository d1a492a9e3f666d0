package service

import (
	"context"
	"errors"
	"fmt"
	"os"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// Remove takes the policy off a service, whether it runs or not, and forgets what it has counted.
// Sockets that have a filter of the service keep it, and take nothing from then on.
func Remove(ctx context.Context, name string) error {
	return store.TransactServices(ctx, func(s *store.Store) error { return remove(s, name) })
}

func remove(s *store.Store, name string) error {
	key := store.ServiceKey(name)
	_, state := os.Stat(s.State(key))
	_, pins := os.Stat(s.BPF(key))
	if state != nil && pins != nil {
		_, err := generation.FindService(s, name)
		return err
	}
	for i := len(sides) - 1; i >= 0; i-- {
		if err := s.Step("take off " + sides[i].pin); err != nil {
			return err
		}
		l, _, err := openLink(s.BPF(key, sides[i].pin))
		if err != nil {
			return err
		}
		if l == nil {
			continue
		}
		// traffic changes here
		if err := errors.Join(l.Detach(), l.Close(), removePin(s.BPF(key, sides[i].pin))); err !=
			nil {
			return kernel.Refuse(err, "take the policy off %s", name)
		}
	}
	for _, path := range []string{s.State(key), s.RememberedFile(key), s.BPF(key)} {
		if err := s.Step("remove"); err != nil {
			return err
		}
		if err := os.RemoveAll(path); err != nil {
			return kernel.Refuse(err, "remove what was kept for %s", name)
		}
	}
	return nil
}

// Status is a service with a policy.
type Status struct {
	Name string
	// InForce: a program is at the cgroup of the service, which runs; of a filter of sockets, that
	// it can be attached.
	InForce bool
	inspect.Attachment
}

// All tells of each service that has a policy, in the order of their names.
func All(ctx context.Context) (all []Status, err error) {
	if refused := kernel.Privileged(); refused != nil {
		s, err := store.ServicesForReading(ctx, refused)
		if err != nil || s == nil {
			return nil, err
		}
		err = generation.Steady(func() error {
			all, err = tellAll(s)
			return err
		})
		return all, err
	}
	if !store.AnyService() {
		return nil, nil
	}
	err = store.TransactServices(ctx, func(s *store.Store) error {
		all, err = tellAll(s)
		return err
	})
	return all, err
}

// AppendAll appends what All tells of policies to those of interfaces.
func AppendAll(ctx context.Context, to []inspect.Attachment) ([]inspect.Attachment, error) {
	all, err := All(ctx)
	for i := range all {
		to = append(to, all[i].Attachment)
	}
	return to, err
}

func tellAll(s *store.Store) (all []Status, err error) {
	err = generation.EachService(s, func(a *attach.Attachment) error {
		told, err := inspect.Tell(s, a)
		if err != nil {
			return err
		}
		name, _ := store.ServiceNamed(a.Current().Dev)
		st := Status{Name: name, Attachment: *told}
		if st.InForce, err = inForce(s, a); err != nil {
			return err
		}
		all = append(all, st)
		return nil
	})
	return all, err
}

// inForce reports whether the policy of a service judges its packets. A reader, who may open no
// link, is told by its pin alone.
func inForce(s *store.Store, a *attach.Attachment) (bool, error) {
	if a.Current().Mode == Socket {
		return true, nil
	}
	path := s.BPF(a.Key, store.PinLink)
	if s.ReadOnly {
		_, err := os.Stat(path)
		return err == nil, nil
	}
	l, id, err := openLink(path)
	if err != nil || l == nil {
		return false, err
	}
	return id != 0, l.Close()
}

// InForce is the policy of a service, as it was given to Put.
func InForce(ctx context.Context, name string) (out *inspect.InForce, err error) {
	read := func(s *store.Store) error {
		a, err := generation.FindService(s, name)
		if err != nil {
			return err
		}
		g := a.Current()
		out = &inspect.InForce{Path: g.Policy, Source: g.Source}
		out.Files, err = s.SetFiles(a.Key, g)
		return err
	}
	if refused := kernel.Privileged(); refused != nil {
		s, err := store.ServicesForReading(ctx, refused)
		if err == nil && s == nil {
			err = fmt.Errorf("no service has a policy")
		}
		if err != nil {
			return nil, err
		}
		return out, read(s)
	}
	err = store.TransactServices(ctx, read)
	return out, err
}
