package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"levee/internal/bench/option"
	"levee/internal/lab"
	"levee/internal/lab/contender"
)

func defenceNames(list []contender.Defence) (names []string) {
	for _, d := range list {
		names = append(names, d.Name())
	}
	return names
}

// chosen are the rungs with the given names, all for none.
func chosen(list []contender.Defence, names []string) ([]contender.Defence, error) {
	if err := option.Known("rung", names, defenceNames(list)); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	return slices.DeleteFunc(list, func(d contender.Defence) bool { return len(names) > 0 && !slices.Contains(names, d.Name()) }), nil
}

// enter makes a lab for one IPv4 flood, with the application on a port; first lets it go before all else on its
// core. leave removes everything, and is to be called if there is no error.
func enter(ctx context.Context, o Options, port uint16, first bool) (b *bench, leave func() error, err error) {
	o.Families = []string{IPv4}
	if err := o.complete(); err != nil {
		return nil, nil, fmt.Errorf("bench: %w", err)
	}
	// The lab stays for the tidying up after an interrupted window.
	l, err := lab.New(context.WithoutCancel(ctx), lab.Standard())
	if err != nil {
		return nil, nil, err
	}
	if b, err = newBench(l, &o); err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	leave = func() error { return errors.Join(b.close(), l.Close()) }
	if err := b.listen(port, first); err != nil {
		return nil, nil, errors.Join(err, leave())
	}
	return b, leave, nil
}
