package statustext

import "testing"

func TestShortRates(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.4: "0", 12: "12", 999: "999", 999.7: "1k", 3400: "3.4k", 1.254e6: "1.25M",
		10e9: "10G", 999.6e6: "1G",
	} {
		if got := shortRate(&v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
	if got := shortRate(nil); got != "" {
		t.Errorf("no rate is %q", got)
	}
}
