package bench

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestLadderOfTwoRungs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	r, err := Ladder(t.Context(), Options{Rungs: []string{"xdp drop", "nft netdev ingress"}, Window: 100 * time.Millisecond, Warmup: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	r.Text(&b)
	t.Log("\n" + b.String())
	for _, g := range r.Rungs {
		for _, w := range g.Windows {
			t.Logf("%s %+v", g.Name, w)
		}
	}
}
