package guard

import (
	"errors"
	"strings"
	"testing"

	"levee/internal/packet"
)

// TestASessionThatCannotBeBegunAgain: its packets pass, and the first of the next one does not.
func TestASessionThatCannotBeBegunAgain(t *testing.T) {
	for _, c := range []struct{ policy, decider string }{
		{"pass tcp flags ack\ndefault drop\n", "the default (edge.levee:2)"},
		{"drop tcp syn port 22 as \"no more\"\ndefault pass\n", `"no more" (edge.levee:1)`},
		{"pass tcp port 22\ndefault drop\n", ""},
		{"pass tcp syn port 22\ndefault drop\n", ""},
	} {
		var cut *CutError
		err := CheckNew(parse(t, c.policy), packet.Ethernet, ssh())
		if (c.decider == "") != (err == nil) || err != nil && (!errors.As(err, &cut) ||
			cut.Decider != c.decider || !strings.HasPrefix(err.Error(),
			"a new connection such as an SSH session, from 192.0.2.7:50000 to ")) {
			t.Errorf("%q: %v", c.policy, err)
		}
	}
}
