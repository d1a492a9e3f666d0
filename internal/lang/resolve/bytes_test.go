package resolve

import (
	"fmt"
	"strings"
	"testing"
)

func TestTermsOnThePayloadAreBounded(t *testing.T) {
	rules := func(n int) []byte {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "drop udp port %d payload at 0 %04x\n", i+1, i)
		}
		return []byte(b.String() + "default pass\n")
	}
	if _, ds := Parse("p.levee", rules(maxLooks), nil); ds.HasErrors() {
		t.Error(ds.Err())
	}
	_, ds := Parse("p.levee", rules(maxLooks+9), nil)
	if err := ds.Err(); err == nil || strings.Count(err.Error(), "at most 1024 terms") != 1 {
		t.Errorf("one more: %v", err)
	}
}

// TestOffsetsThatOverflow: with the length of the bytes behind it the largest number was a negative
// one, and no offset was too large then.
func TestOffsetsThatOverflow(t *testing.T) {
	const most = "9223372036854775807"
	for _, text := range []string{
		"drop udp payload at " + most + " 41\n",
		"prove \"a\" udp port 27015 reply payload at 4 41 echo 4 bytes at " + most +
			" in request at 5\n",
		"prove \"a\" udp port 27015 reply payload at 4 41 echo 4 bytes at 5 in request at " +
			most + "\n",
	} {
		_, ds := Parse("p.levee", []byte(text+"default pass\n"), nil)
		if err := ds.Err(); err == nil || !strings.Contains(err.Error(), "too large") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
