package scale

import (
	"context"
	"testing"
	"time"

	"levee/internal/lab/contender"
)

// The text that nftables, ipset and iptables read was written by this program while their clock ran.
func TestWritingAToolsInputIsNoPartOfItsLoading(t *testing.T) {
	const writing = 200 * time.Millisecond
	x := &tool{
		prepare: func(contender.Site) { time.Sleep(writing) },
		install: func(context.Context, contender.Site) error { return nil },
		dropped: func(context.Context, contender.Site) (uint64, error) { return 0, nil },
	}
	if err := x.Install(t.Context(), contender.Site{}); err != nil {
		t.Fatal(err)
	}
	if len(x.loads) != 1 || time.Duration(x.loads[0]) >= writing {
		t.Errorf("loading took %v, with %v of writing", x.loads, writing)
	}
}
