package usage

import (
	"errors"
	"fmt"
	"testing"
)

func TestWrongOptionsAreToldInWords(t *testing.T) {
	list := []string{"levee", "nft netdev ingress"}
	for _, c := range []struct {
		err  error
		want string // "" for none
	}{
		{Known("rung", nil, list), ""},
		{Known("rung", list, list), ""},
		{Known("rung", []string{"levee", "a\x1bb"}, list),
			`there is no rung "a\x1bb": choose from levee, "nft netdev ingress"`},
		{Wrongf("keys of %d bytes: %s", 5, Numbers([]int{4, 8})), "keys of 5 bytes: 4, 8"},
	} {
		got := ""
		if c.err != nil {
			got = c.err.Error()
		}
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		if c.err != nil && !errors.Is(fmt.Errorf("bench: %w", c.err), ErrWrong) {
			t.Errorf("%q is not told from other errors", got)
		}
	}
	if errors.Is(errors.New("disk full"), ErrWrong) {
		t.Error("any error is an option's")
	}
}
