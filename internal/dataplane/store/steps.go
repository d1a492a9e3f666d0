package store

import "fmt"

// TestHook, set by tests, is called before each step of a change and may fail it.
var TestHook func(step string) error

// Step names the work that follows it. The steps of Up, in order, are mount, foreign, compile,
// load, sets, pin, describe, for each program that does not judge link and keep link, adopt where
// the memory of connections is new, then swap, keep, adopt again; the first command after it that
// finds something to clean up, Up itself included, goes through unlink, wait, fold, forget, unpin.
// Each leaves a state from which the next command can continue.
func Step(name string) error {
	if TestHook == nil {
		return nil
	}
	if err := TestHook(name); err != nil {
		return fmt.Errorf("step %s: %w", name, err)
	}
	return nil
}
