package policy

import (
	"testing"
)

func TestPatternsFitNamesOfInterfaces(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		fits          bool
	}{
		{"eth0", "eth0", true}, {"eth0", "eth01", false}, {"eth*", "eth0", true},
		{"eth*", "eth", true}, {"eth*", "veth0", false}, {"*", "eth0", true}, {"*", "lo", false},
		{"lo", "lo", true}, {"l*", "lo", false}, {"*0", "eth0", true}, {"*0", "eth1", false},
		{"en*s*f0", "enp1s0f0", true}, {"en*s*f0", "enp1s0f1", false}, {"a*a", "a", false},
		{"a*a", "aa", true}, {"**", "eth0", true}, {"e*h*0*", "eth0", true},
		{"e*h*0*", "eh1", false},
	} {
		if got := Fits(c.pattern, c.name); got != c.fits {
			t.Errorf("%s fits %s: %v", c.pattern, c.name, got)
		}
	}
}
