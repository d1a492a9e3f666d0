package literal

import (
	"testing"
	"time"
)

func TestLeases(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"500ms": 500 * time.Millisecond, "30s": 30 * time.Second, "10m": 10 * time.Minute,
		"12h": 12 * time.Hour,
		"7d":  7 * 24 * time.Hour, "2w": 14 * 24 * time.Hour, "520w": MaxLease, "1ms": minLease,
		"": 0, "0s": 0, "521w": 0, "1y": 0, "1.5h": 0, "-1s": 0, "99999999999999999999s": 0, "s": 0,
		"10 m": 0,
	} {
		got, p := Lease(text)
		if got != want || p.Found() != (want == 0) {
			t.Errorf("%q: %v, %v", text, got, p)
		}
	}
}
