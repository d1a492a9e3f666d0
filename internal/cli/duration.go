package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Longest is the longest lease, and longer than anything else that takes a duration, as policies
// write it.
const Longest = "520w"

// ParseDuration reads a duration as policies have it, 500ms, 30s, 10m, 12h, 7d, 2w, or as Go prints
// it, 1h30m.
func ParseDuration(s string) (time.Duration, error) {
	for unit, length := range map[string]time.Duration{"d": 24 * time.Hour,
		"w": 7 * 24 * time.Hour} {
		if digits, ok := strings.CutSuffix(s, unit); ok {
			n, err := strconv.ParseUint(digits, 10, 64)
			switch {
			case errors.Is(err, strconv.ErrRange), err == nil && n > uint64(math.MaxInt64/length):
				return 0, fmt.Errorf("%s is longer than any duration here: at most %s", s, Longest)
			case err != nil:
				return 0, fmt.Errorf("%q is no duration: write 30s, 10m, 12h, 7d or 2w", s)
			case n == 0:
				return 0, fmt.Errorf("%s: a duration above zero is needed", s)
			}
			return time.Duration(n) * length, nil
		}
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no duration: write 30s, 10m, 12h, 7d or 2w", s)
	case d <= 0:
		return 0, fmt.Errorf("%s: a duration above zero is needed", s)
	}
	return d, nil
}

// FormatLease prints a duration to the second in the largest units that it has: 7d, 1h30m, 9m59s.
func FormatLease(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	s := int64(d.Round(time.Second) / time.Second)
	var b strings.Builder
	for _, u := range []struct {
		name string
		size int64
	}{{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}} {
		if n := s / u.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			s %= u.size
		}
	}
	return b.String()
}
