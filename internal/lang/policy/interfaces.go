package policy

import (
	"strings"
)

// IsPattern reports whether a name of an interface stands for all that it fits.
func IsPattern(name string) bool { return strings.Contains(name, "*") }

// Fits reports whether an interface has the name, or one that the pattern fits: in a pattern, each
// "*" stands for any characters, or none. No pattern fits lo, which a machine needs for itself.
func Fits(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	if name == "lo" || !strings.HasPrefix(name, parts[0]) {
		return false
	}
	name = name[len(parts[0]):]
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return strings.HasSuffix(name, last)
}
