// Package around tells programs about the machine: the addresses to which a SYN on the interface
// may go, and the interfaces that receive packets in the stack. In go programs and interfaces; it
// changes the maps of these programs, and nothing else.
package around

import (
	"context"
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/cookie"
	"levee/internal/filter/state"
	"levee/internal/host/local"
)

// Note is told what those who put a policy in force should know.
type Note func(format string, args ...any)

// FillOwn tells the cookies of a program the destinations that a SYN has to have. The map is the
// interface's.
func FillOwn(l *loader.Loaded, index int, note Note) error {
	m := l.Holding(state.HoldsOwn)
	if m == nil {
		return nil
	}
	is, err := local.OwnOf(index)
	if err != nil {
		return err
	}
	if over := len(is.None) - cookie.MaxNone; over > 0 {
		note("this machine has %d broadcast and anycast addresses: cookies answer SYNs to %d "+
			"of them", len(is.None), over)
	}
	return loader.PutOwn(m, is)
}

// TellOwn tells the cookies of the policy on an interface of a change. It does nothing where the
// policy has none.
func TellOwn(ctx context.Context, dev string, is *local.Own) error {
	return tell(ctx, dev, state.HoldsOwn, func(m *ebpf.Map) error { return loader.PutOwn(m, is) })
}

// SameOwn reports whether cookies need not be told anew.
func SameOwn(a, b *local.Own) bool {
	return a != nil && b != nil && slices.Equal(a.MACs, b.MACs) && slices.Equal(a.None, b.None)
}

// tell writes the map that holds something in the policy on an interface, if it has it.
func tell(ctx context.Context, dev string, what state.Contents, put func(*ebpf.Map) error) error {
	return generation.TransactOn(ctx, dev, func(s *store.Store, a *attach.Attachment) error {
		g := a.Current()
		name, has := codegen.MapOf(g.Maps, what)
		if !has {
			return nil
		}
		m, err := s.OpenPinned(a.Key, g.Generation, name)
		if m == nil || err != nil {
			return err
		}
		defer m.Close()
		return put(m)
	})
}
