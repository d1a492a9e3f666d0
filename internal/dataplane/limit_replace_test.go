package dataplane

import (
	"context"
	"fmt"
	"testing"

	"levee/internal/dataplane/store"
)

// TestAReplaceRefillsNoBudget: a limit whose burst, rate or memory changes has its budgets in
// another unit of time or in another number of lines. Ten a day that were spent were there again,
// and ten more, when the burst became 20.
func TestAReplaceRefillsNoBudget(t *testing.T) {
	n := newTestNet(t)
	for i, c := range []struct {
		from, to string
		spend    int // of the first
		pays     int // of the second
	}{
		{"10/d burst 10", "10/d burst 20", 10, 10},
		{"10/d burst 20", "10/d burst 10", 20, 0},
		{"10/d burst 20", "10/d burst 10", 15, 0},
		{"10/d burst 10", "10/d burst 10 by source memory 4kB", 10, 10}, // other budgets
		{"10/d burst 10 by source", "10/d burst 20 by source", 10, 10},
		{"10/d burst 10 by source memory 8kB", "10/d burst 10 by source memory 4kB", 10, 0},
		{"10/d burst 10 by source memory 4kB", "10/d burst 10 by source memory 1MB", 10, 0},
		{"10/d burst 10 by source memory 4kB", "10/d burst 12 by source memory 8kB", 10, 2},
		{"10/d burst 10 by source, source/24 x2", "10/d burst 30 by source, source/24 x2", 10, 20},
		{"10/h burst 10", "10/d burst 10", 10, 0}, // was full again in an hour: nine more
		{"10/d burst 10", "10/h burst 10", 10, 0},
		{"10/d burst 10", "20/h burst 10", 4, 6},
		{"10/d burst 10", "20/d burst 20", 5, 15}, // the same time, of other packets
		{"10/d burst 10 by source x4", "10/d burst 10 by source x2", 15, 5},
	} {
		for _, label := range []string{" as \"budget\"", ""}[:max(1, 2-i)] {
			n.run(t, c.from+" to "+c.to+label, func(t *testing.T) {
				text := "limit udp rate %s" + label + "\npass udp as \"paid\"\ndefault drop\n"
				refillsNothing(t, n, text, c.from, c.to, c.spend, c.pays)
			})
		}
	}
}

// refillsNothing spends of a limit, gives it another rate, and has it pay what it may.
func refillsNothing(t *testing.T, n *testNet, text, from, to string, spend, pays int) {
	t.Helper()
	defer Down(t.Context(), "lv0")
	bring := func(rate string) {
		t.Helper()
		if err := bringPolicy(t, "lv0", fmt.Sprintf(text, rate), 0); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (paid, all uint64) {
		a := status(t)
		paid, all = packets(&a, "paid"), packets(&a, "paid")
		for _, c := range a.Counters {
			if c.Action == "limit" {
				all += c.Packets
			}
		}
		return paid, all
	}
	send := func(packets int) {
		t.Helper()
		_, before := count()
		for range packets {
			n.sendFrame(t, udpFrame)
		}
		wantUntil(t, func() bool {
			_, all := count()
			return all == before+uint64(packets)
		})
	}
	bring(from)
	send(spend)
	spent, _ := count()
	if spent != uint64(spend) {
		t.Fatalf("%d of %d were paid", spent, spend)
	}
	bring(to)
	send(40)
	if paid, _ := count(); int(paid-spent) != pays {
		t.Errorf("the new limit paid %d, want %d", paid-spent, pays)
	}
}

// TestWhatIsSpentWhileALimitChangesIsSpent: a budget in another memory was read as that was made.
// What it paid from then until the next program judged it paid again.
func TestWhatIsSpentWhileALimitChangesIsSpent(t *testing.T) {
	n := newTestNet(t)
	heard := passing(t)
	const burst, probe = 10, 7
	sent := 0
	spend := func() error { // and wait until a packet behind these has come
		for range burst {
			n.sendFrame(t, udpTo(9))
		}
		sent += burst
		n.sendFrame(t, udpTo(probe))
		return heard(probe)
	}
	bring := func(ctx context.Context, memory string) {
		t.Helper()
		if err := bringPolicyUnder(ctx, "lv0", store.XDPNative, "pass udp port 7\n"+
			"limit udp rate 10/d burst 10 by source memory "+memory+" as \"limit\"\n"+
			"pass udp as \"paid\"\ndefault drop\n", 0); err != nil {
			t.Fatal(err)
		}
	}
	defer Down(t.Context(), "lv0")
	bring(t.Context(), "4kB")
	bring(stepping(t.Context(), func(step string) error {
		if step == "swap" || step == "wait" { // by the one program, then by the other
			return spend()
		}
		return nil
	}), "1MB")
	var paid uint64
	wantUntil(t, func() bool {
		a := status(t)
		paid = packets(&a, "paid")
		return paid+packets(&a, "limit") == uint64(sent)
	})
	if sent < 2*burst || paid != burst {
		t.Errorf("of %d packets %d were paid, the burst is %d", sent, paid, burst)
	}
}
