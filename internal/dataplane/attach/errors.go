package attach

import (
	"errors"
	"fmt"
)

func (e *UnheardError) Error() string {
	return fmt.Sprintf("%s is a veth device, which hands the answers of a cookie in native XDP to "+
		"its other end only if that has an XDP program too", e.Dev)
}

// UnheardError says that answers of a native XDP program on Dev may reach nobody (veth).
type UnheardError struct{ Dev string }

func Unable(err error) error { return unableError{err} }

// ErrUnable is wrapped by errors that mean: the policy is right, but this machine cannot load it
// into its kernel or attach it to the interface.
var ErrUnable = errors.New("the policy cannot be put in force on this machine")

// unableError marks an error as ErrUnable without changing what it says.
type unableError struct{ error }

func (e unableError) Unwrap() []error { return []error{e.error, ErrUnable} }

// UnfitError says why a program would judge other packets than those on the wire, or none, at a
// hook that the interface has. The next hook is taken.
type UnfitError struct{ why string }

func (e *UnfitError) Error() string { return e.why }

func Unfit(format string, args ...any) error { return &UnfitError{fmt.Sprintf(format, args...)} }
