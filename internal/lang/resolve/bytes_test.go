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
