package load

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/lab/contender"
)

// The text that nftables, ipset and iptables read was written by this program while their clock
// ran.
func TestWritingAContendersInputIsNoPartOfItsLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writing = time.Hour
		x := New(Spec{
			Prepare: func(contender.Site) { time.Sleep(writing) },
			Install: func(context.Context, contender.Site) error { return nil },
			Dropped: func(context.Context, contender.Site) (uint64, error) { return 0, nil },
		})
		if err := x.Install(t.Context(), contender.Site{}); err != nil {
			t.Fatal(err)
		}
		if len(x.loads) != 1 || x.loads[0] != 0 {
			t.Errorf("loading took %v, with %v of writing", x.loads, writing)
		}
	})
}

func TestCountersOfTheOthersAreRead(t *testing.T) {
	head := "Chain PREROUTING (policy ACCEPT 0 packets, 0 bytes)\n    pkts      bytes target     " +
		"prot opt in     out     source               destination\n"
	for listing, want := range map[string]uint64{
		head + "      10      100 RULES      0    --  *      *       0.0.0.0/0            " +
			"0.0.0.0/0\n       3      30            0    --  *      *       0.0.0.0/0            " +
			"0.0.0.0/0\n": 7,
		head + "      10      100 DROP       0    --  *      *       0.0.0.0/0            " +
			"0.0.0.0/0\n": 10,
	} {
		if n, err := firstLessSecond(listing); n != want || err != nil {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}
	if _, err := firstLessSecond(head); err == nil {
		t.Error("no rule is no error")
	}
}
