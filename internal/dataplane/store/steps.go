package store

import (
	"context"
	"fmt"
)

// Steps is told the name of each step of a change before it is done, and may fail it. Nobody is
// told where it is nil. The steps of Up, in order, are mount, foreign, compile, load, sets, pin,
// describe, for each program that does not judge link and keep link, adopt where the memory of
// connections is new, then swap, keep, adopt again; the first command after it that finds something
// to clean up, Up itself included, goes through unlink, wait, fold, forget, unpin. Each leaves a
// state from which the next command can continue.
type Steps func(name string) error

// StepsKey is the key of the Steps that a context has for the changes under it.
type StepsKey struct{}

// stepsOf returns the Steps of a context.
func stepsOf(ctx context.Context) Steps {
	f, _ := ctx.Value(StepsKey{}).(Steps)
	return f
}

// Step names the work that follows it.
func (f Steps) Step(name string) error {
	if f == nil {
		return nil
	}
	if err := f(name); err != nil {
		return fmt.Errorf("step %s: %w", name, err)
	}
	return nil
}
