package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
)

// errUnconfirmed says that nobody confirmed a policy, so that nothing but a person puts it in force.
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
			return fmt.Errorf("it was on trial on %[1]s, and %[2]w: `levee up %[3]s --dev %[1]s "+
				"--confirm %[4]s` tries it again", dev, errUnconfirmed, b.opts.PolicyPath,
				initConfirm)
		}
	}
	return nil
}

// left reports whether what the interfaces have stays, where levee up begins by itself: a trial that
// goes on, and what was in force before one that nobody confirmed. It says so.
func (e *env) left(b *bringing, devs []string) (bool, error) {
	all, _, err := inspect.Status(context.Background(), false)
	if err != nil {
		return false, err
	}
	have := 0
	for _, dev := range devs {
		i := slices.IndexFunc(all, func(a inspect.Attachment) bool { return a.Dev == dev })
		if i < 0 {
			continue
		}
		if all[i].Trial > 0 {
			e.Sayf("a policy is on trial on %s; %s is not put there meanwhile", dev, b.name())
			return true, nil
		}
		have++
	}
	if have < len(devs) || !errors.Is(b.unusable, errUnconfirmed) {
		return false, nil
	}
	e.Sayf("%s is not put in force (%v); what was in force before stays", b.name(), b.unusable)
	return true, nil
}
