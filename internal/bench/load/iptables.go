package load

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"levee/internal/lab/contender"
)

// FlushFirst empties the chain of the first hook of iptables, or ip6tables.
func FlushFirst(ctx context.Context, s contender.Site, program string) error {
	_, err := contender.Run(ctx, s.Host, nil, program, "-w", "-t", "raw", "-F", "PREROUTING")
	return err
}

// CountFirst returns the counter of the first rule of raw PREROUTING less that of the second, if
// there is one: what a chain called by the first has decided.
func CountFirst(ctx context.Context, s contender.Site, program string) (uint64, error) {
	out, err := contender.Run(ctx, s.Host, nil, program, "-w", "-t", "raw", "-nvxL", "PREROUTING")
	if err != nil {
		return 0, err
	}
	return firstLessSecond(string(out))
}

func firstLessSecond(listing string) (uint64, error) {
	var counts []uint64
	for i, line := range strings.Split(strings.TrimSpace(listing), "\n") {
		if f := strings.Fields(line); i >= 2 && len(f) > 2 { // below two lines of headings
			n, err := strconv.ParseUint(f[0], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("reading what iptables lists: %w", err)
			}
			counts = append(counts, n)
		}
	}
	switch {
	case len(counts) == 0:
		return 0, errors.New("iptables lists no rule: somebody removed them")
	case len(counts) > 1:
		return counts[0] - counts[1], nil
	}
	return counts[0], nil
}
