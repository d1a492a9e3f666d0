package dataplane

import (
	"context"

	"levee/internal/dataplane/keep"
	"levee/internal/dataplane/store"
)

// KeepEvents are told of what a keeper does.
type KeepEvents = keep.Events[*Report]

// Keep puts a policy into force on the interfaces of o.Names that there are, and on each one that
// comes, until ctx ends, which leaves the policy in force, or somebody unbinds it
// (keep.ErrUnkept). anew, if there is one, reads the policy again, for an interface that cannot
// have the program of the one before it.
func Keep(ctx context.Context, o UpOptions, compile CompileFunc,
	anew func(dev string) (UpOptions, CompileFunc, error), tell KeepEvents) error {
	return keep.Run(ctx, o.Names, o.PolicyPath, &binding{o, compile, anew}, tell)
}

// binding is a policy that is put into force again and again.
type binding struct {
	UpOptions
	compile CompileFunc
	anew    func(dev string) (UpOptions, CompileFunc, error)
}

func (b *binding) Put(ctx context.Context, devs []string) ([]*Report, error) {
	return UpAll(ctx, devs, b.UpOptions, b.compile)
}

func (b *binding) Adopt(s *store.Store, dev string) (bool, error) { return adopt(s, dev) }

func (b *binding) Move(ctx context.Context, dev, why string) (*Report, error) {
	return MoveOn(ctx, dev, why)
}

func (b *binding) Anew(dev string) error {
	if b.anew == nil {
		return nil
	}
	o, compile, err := b.anew(dev)
	if err == nil {
		b.UpOptions, b.compile = o, compile
	}
	return err
}
