package option

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestWrongOptionsAreToldInWords(t *testing.T) {
	list := []string{"levee", "nft netdev ingress"}
	for _, c := range []struct {
		err  error
		want string // "" for none
	}{
		{Known("rung", nil, list), ""},
		{Known("rung", list, list), ""},
		{Known("rung", []string{"levee", "a\x1bb"}, list), `there is no rung "a\x1bb": choose from levee, "nft netdev ingress"`},
		{Wrongf("keys of %d bytes: %s", 5, Numbers([]int{4, 8})), "keys of 5 bytes: 4, 8"},
		{Rounds(MinRounds), ""},
		{Rounds(MaxRounds), ""},
		{Rounds(5), "5 rounds: a 95 % interval of a median needs 6 or more (and 1000 are enough)"},
		{Rounds(1001), "1001 rounds: a 95 % interval of a median needs 6 or more (and 1000 are enough)"},
		{Window(time.Second, time.Second, time.Minute), ""},
		{Window(1, 50*time.Millisecond, time.Minute), "windows of 1ns: they last 50ms to 1m"},
		{Window(90*time.Minute, time.Second, time.Hour), "windows of 1h30m0s: they last 1s to 1h"},
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
