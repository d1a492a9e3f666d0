package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
)

// errUnconfirmed says that nobody confirmed a policy: nothing but a person puts it in force.
var errUnconfirmed = errors.New("nobody confirmed it")

// unconfirmed returns an error that matches errUnconfirmed for a policy that was on trial on one of
// the interfaces.
func (e *env) unconfirmed(b *bringing, devs []string) error {
	for _, dev := range slices.Concat(devs, b.opts.Names) {
		is, err := dataplane.Unconfirmed(dev, b.opts.Source)
		if err != nil {
			e.Sayf("cannot read whether %s was on trial on %s: %v", b.name(), dev, err)
		}
		if is {
			return fmt.Errorf("%[1]s was on trial on %[2]s, and %[3]w: `levee up %[4]s "+
				"--dev %[2]s --confirm %[5]s` tries it again", b.name(), dev, errUnconfirmed,
				b.opts.PolicyPath, initConfirm)
		}
	}
	return nil
}

// onTrial returns the first of the interfaces whose policy is on trial, "" if there is none. What
// is wrong with another interface is no reason to leave these without a policy; it is said when
// they get theirs.
func onTrial(devs []string) string {
	all, _, _ := inspect.Status(context.Background(), false)
	for _, a := range all {
		if a.Trial > 0 && slices.Contains(devs, a.Dev) {
			return a.Dev
		}
	}
	return ""
}
