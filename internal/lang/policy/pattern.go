package policy

import (
	"levee/internal/lang/pattern"
)

// Pattern lists the items of which a term searches payloads for any.
type Pattern struct {
	Items   []pattern.Item
	AnyCase bool             // letters of ASCII are found in either case
	Machine *pattern.Machine // that finds them
	Text    string           // as it is written in a policy
	Within  int              // how many bytes of a stream are searched; 0 of a payload
}
