package dataplane

import (
	"context"
	"slices"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/cookie"
	"levee/internal/filter/state"
	"levee/internal/host/local"
)

// fillOwn tells the cookies of a program the destinations that a SYN has to have. The map is the
// interface's.
func (u *up) fillOwn(l *loader.Loaded) error {
	m := l.Holding(state.HoldsOwn)
	if m == nil {
		return nil
	}
	is, err := local.OwnOf(u.dev.Index)
	if err != nil {
		return err
	}
	if over := len(is.None) - cookie.MaxNone; over > 0 {
		u.Note("this machine has %d broadcast and anycast addresses: cookies answer SYNs to %d "+
			"of them", len(is.None), over)
	}
	return loader.PutOwn(m, is)
}

// tellOwn tells the cookies of the policy on an interface of a change. It does nothing where the
// policy has none.
func tellOwn(ctx context.Context, dev string, is *local.Own) error {
	return generation.TransactOn(ctx, dev, func(s *store.Store, a *attach.Attachment) error {
		g := a.Current()
		name, has := codegen.MapOf(g.Maps, state.HoldsOwn)
		if !has {
			return nil
		}
		m, err := s.OpenPinned(a.Key, g.Generation, name)
		if m == nil || err != nil {
			return err
		}
		defer m.Close()
		return loader.PutOwn(m, is)
	})
}

// sameOwn reports whether cookies need not be told anew.
func sameOwn(a, b *local.Own) bool {
	return a != nil && b != nil && slices.Equal(a.MACs, b.MACs) && slices.Equal(a.None, b.None)
}
