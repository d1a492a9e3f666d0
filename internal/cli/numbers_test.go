package cli

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration // 0: an error
	}{
		{"500ms", 500 * time.Millisecond}, {"30s", 30 * time.Second}, {"10m", 10 * time.Minute},
		{"12h", 12 * time.Hour},
		{"7d", 7 * 24 * time.Hour}, {"2w", 14 * 24 * time.Hour}, {"1h30m", 90 * time.Minute},
		{"", 0}, {"0s", 0}, {"0d", 0}, {"-1s", 0}, {"-1d", 0}, {"10", 0}, {"d", 0}, {"1.5d", 0},
		{"99999w", 0}, {"forever", 0},
	} {
		got, err := ParseDuration(c.in)
		if got != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("parseDuration(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
	}
}

func TestFormatLease(t *testing.T) {
	for _, c := range []struct {
		in   time.Duration
		want string
	}{
		{0, "0s"}, {123 * time.Millisecond, "123ms"}, {time.Second, "1s"},
		{599999 * time.Millisecond, "10m"},
		{90 * time.Minute, "1h30m"}, {7*24*time.Hour + time.Second, "7d1s"},
	} {
		if got := FormatLease(c.in); got != c.want {
			t.Errorf("formatLease(%v) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestParseRate(t *testing.T) {
	for _, c := range []struct {
		in   string
		want float64 // 0: an error
	}{
		{"1000", 1000}, {"50k", 50e3}, {"1.5M", 1.5e6}, {"2M/s", 2e6}, {"0.5", 0.5}, {"1G", 1e9},
		{"", 0}, {"0", 0}, {"-1", 0}, {"NaN", 0}, {"Inf", 0}, {"2G", 0}, {"fast", 0}, {"k", 0},
	} {
		got, err := ParseRate(c.in)
		if got != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("parseRate(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
	}
}
