package match

import (
	"bytes"
	"fmt"
	"strings"

	"levee/internal/lang/syntax"
)

// NearPrefix begins the comments that hold a rule near to one that is left out.
const NearPrefix = "#   nearest: "

// Words returns the words of the rules, without labels and other comments, to find the names of
// sets.
func Words(body []byte) map[string]bool {
	seen := make(map[string]bool)
	for line := range bytes.Lines(body) {
		rest, isNear := bytes.CutPrefix(line, []byte(NearPrefix))
		switch {
		case isNear: // whoever takes it up needs its sets
			line = rest
		case line[0] == '#':
			continue
		}
		rule, _, _ := bytes.Cut(line, []byte(` as "`))
		for _, w := range bytes.Fields(rule) {
			if c := w[0]; (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') && len(w) <= 32 {
				seen[string(w)] = true
			}
		}
	}
	return seen
}

// UniqueName makes of any text a name of a set that the language takes and that is not in used.
func UniqueName(text string, used map[string]bool) string {
	const most = 32
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, text)
	if name == "" || name[0] < 'A' || name[0] == '_' || syntax.IsKeyword(name) {
		name = "set-" + name
	}
	name = name[:min(len(name), most)]
	base := name
	for n := 2; used[name]; n++ {
		suffix := fmt.Sprintf("-%d", n)
		name = base[:min(len(base), most-len(suffix))] + suffix
	}
	used[name] = true
	return name
}

// DynamicText returns a set that is filled at run time: of at most so many entries, with a lease in
// seconds, or none below 1.
func DynamicText(most uint64, lease int64) string {
	const limit = 16_777_216 // docs/reference/sets.md "Sets"
	most = min(max(most, 1), limit)
	if lease < 1 || lease > 520*7*86400 {
		return fmt.Sprintf("dynamic(max %d)", most)
	}
	return fmt.Sprintf("dynamic(max %d, lease %ds)", most, lease)
}

// AddressesText is addresses as a list of a policy.
func AddressesText(in AddressSpans) string {
	var b strings.Builder
	writeAddrs(&b, in)
	return b.String()
}

// PortsText is ports as a list of a policy.
func PortsText(in Spans) string {
	var list []string
	for _, s := range in {
		list = append(list, NumberText(s))
	}
	if len(list) == 1 { // braced leaves them out
		return "{ " + list[0] + " }"
	}
	return braced(list)
}
