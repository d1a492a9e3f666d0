package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/host/cgroup"
	"levee/internal/kernel"
)

// Remove takes the policy off a service, whether it runs or not, and forgets what it has counted.
// Sockets that have a filter of the service keep it, and take nothing from then on.
func Remove(ctx context.Context, name string) error {
	return store.TransactServices(ctx, func(s *store.Store) error { return remove(s, name) })
}

// RemoveEnded removes the services that have gone, of those whose policy is not in force. None of
// them can come into force in between.
func RemoveEnded(ctx context.Context, gone func(name string) bool) error {
	c, err := openHierarchy()
	if err != nil {
		return err
	}
	defer c.close()
	return store.TransactServices(ctx, func(s *store.Store) error {
		var names []string
		err := generation.EachService(s, func(a *attach.Attachment) error {
			name, _ := store.ServiceNamed(a.Current().Dev)
			if !gone(name) {
				return nil
			}
			judges, err := inForce(s, c, a)
			if err == nil && !judges {
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := remove(s, name); err != nil {
				return err
			}
		}
		return nil
	})
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
	// InForce: a program is at the cgroup of the service, which is there, as it is while the
	// service runs; of a filter of sockets, that it can be attached.
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
			all, err = tellAll(s, nil)
			return err
		})
		return all, err
	}
	if any, err := store.AnyService(); err != nil || !any {
		return nil, err
	}
	// Here, as in Put. Without cgroups there is no policy at one.
	c, err := openHierarchy()
	if err != nil && !errors.Is(err, cgroup.ErrNone) {
		return nil, err
	}
	if c != nil {
		defer c.close()
	}
	err = store.TransactServices(ctx, func(s *store.Store) error {
		all, err = tellAll(s, c)
		return err
	})
	return all, err
}

// openHierarchy opens the cgroup above all others.
func openHierarchy() (*group, error) {
	root, err := cgroup.Root()
	if err != nil {
		return nil, err
	}
	return openCGroup(root)
}

// AppendAll appends what All tells of policies to those of interfaces.
func AppendAll(ctx context.Context, to []inspect.Attachment) ([]inspect.Attachment, error) {
	all, err := All(ctx)
	for i := range all {
		to = append(to, all[i].Attachment)
	}
	return to, err
}

func tellAll(s *store.Store, c *group) (all []Status, err error) {
	err = generation.EachService(s, func(a *attach.Attachment) error {
		told, err := inspect.Tell(s, a)
		if err != nil {
			return err
		}
		name, _ := store.ServiceNamed(a.Current().Dev)
		st := Status{Name: name, Attachment: *told}
		if st.InForce, err = inForce(s, c, a); err != nil {
			return err
		}
		all = append(all, st)
		return nil
	})
	return all, err
}

// inForce reports whether the policy of a service judges its packets. c is a cgroup of the
// hierarchy, nil where there is none. A reader, who may open no link, is told by its pin, and by
// what was noted of the cgroup.
func inForce(s *store.Store, c *group, a *attach.Attachment) (bool, error) {
	if a.Current().Mode == Socket {
		return true, nil
	}
	path := s.BPF(a.Key, store.PinLink)
	if s.ReadOnly {
		var at place
		err := store.ReadJSON(placeFile(s, a.Key), &at)
		if err == nil {
			_, err = os.Stat(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil && at.there(), err
	}
	l, id, err := openLink(path)
	if err != nil || l == nil {
		return false, err
	}
	if err := l.Close(); err != nil || c == nil {
		return false, err
	}
	return c.beside(id)
}

// ContainerPrefix begins the names of containers among those of services.
const ContainerPrefix = "container:"

// WhyNot says why the policy of a service that has one at its cgroup is not in force.
func WhyNot(name string) string {
	if c, ok := strings.CutPrefix(name, ContainerPrefix); ok {
		return "the container has ended, or was started again and runs without it: levee wrap " +
			"container " + c + " FILE gives it to one that runs"
	}
	return "the service does not run, or has not been started since"
}

// place is the cgroup at which a policy of a service was put.
type place struct {
	Dir string `json:"directory"`
	ID  uint64 `json:"id"`
}

// placeFile returns where it is noted.
func placeFile(s *store.Store, key string) string { return s.State(key, "cgroup.json") }

// there reports whether the cgroup is there still, and not another one of its name.
func (p *place) there() bool {
	f, err := os.Open(p.Dir)
	if err != nil {
		return false
	}
	defer f.Close()
	id, err := idOf(f)
	return err == nil && id == p.ID
}

// InForce returns the policy of a service, as it was given to Put.
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
