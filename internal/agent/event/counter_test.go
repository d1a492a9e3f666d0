package event

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/ledger"
)

func addr(i int) ledger.Entry {
	return ledger.Of(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8),
		byte(i)}), 32))
}

func TestEventsAreCountedByTheirTime(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]struct {
		seconds []int // of the events, after begin
		now     int
		want    []bool
	}{
		"five within a minute": {[]int{0, 10, 20, 30, 59}, 60, []bool{false, false, false,
			false, true}},
		"five within a minute and": {[]int{0, 10, 20, 30, 60, 61}, 61, []bool{false, false,
			false, false, false, true}},
		"each one more": {[]int{1, 1, 1, 1, 1, 1}, 1, []bool{false, false, false,
			false, true, true}},
		"out of order": {[]int{30, 20, 59, 10, 0}, 60, []bool{false, false, false,
			false, true}},
		"an old one late": {[]int{100, 101, 102, 103, 1, 104}, 110, []bool{false,
			false, false, false, false, true}},
		"an old one behind five": {[]int{100, 101, 102, 103, 104, 1}, 110, []bool{false,
			false, false, false, true, false}},
		"a day of them at once": {[]int{0, 9000, 18000, 27000, 36000}, 86400, []bool{false,
			false, false, false, false}},
		"from the future": {[]int{900, 901, 902, 903, 904}, 5, []bool{false, false,
			false, false, true}},
	} {
		k := newCounter(5, time.Minute)
		for i, s := range c.seconds {
			got := k.Add(addr(1), begin.Add(time.Duration(s)*time.Second),
				begin.Add(time.Duration(c.now)*time.Second))
			if got != c.want[i] {
				t.Errorf("%s: event %d: %v", name, i, got)
			}
		}
	}
}

// TestAClockThatIsSetBackHidesNobody: events of an hour that had not been yet were the last for
// that hour, and those that came were too old to be counted with them.
func TestAClockThatIsSetBackHidesNobody(t *testing.T) {
	k := newCounter(3, time.Minute)
	begin := time.Unix(1_700_000_000, 0)
	for i, c := range []struct {
		at   time.Duration
		want bool
	}{{time.Hour, false}, {time.Hour + time.Second, false}, {0, true}, {time.Second, true},
		{50 * time.Second, true}, {2 * time.Minute, false}, {121 * time.Second, false},
		{122 * time.Second, true}} {
		if at := begin.Add(c.at); k.Add(addr(1), at, at) != c.want {
			t.Errorf("event %d, at %v: not %v", i, c.at, c.want)
		}
	}
}

// TestNobodyIsForgottenBeforeHisTime: an attacker with many addresses cannot push his first one
// out,
// and takes no more memory than there is.
func TestNobodyIsForgottenBeforeHisTime(t *testing.T) {
	c := newCounter(3, time.Minute)
	now := time.Unix(1_700_000_000, 0)
	c.Add(addr(0), now, now)
	c.Add(addr(0), now, now)
	for i := range 2 * maxPrefixes {
		c.Add(addr(1+i), now, now)
	}
	if len(c.seen) != maxPrefixes || c.refused != maxPrefixes+1 {
		t.Errorf("%d addresses, %d refused", len(c.seen), c.refused)
	}
	if !c.Add(addr(0), now, now) {
		t.Error("who was counted first is forgotten")
	}
	later := now.Add(2 * time.Minute)
	for range 2 {
		c.Add(addr(1<<20), later, later)
	}
	if !c.Add(addr(1<<20), later, later) || len(c.seen) > 2 {
		t.Errorf("%d addresses after their time", len(c.seen))
	}
	c = newCounter(1000, time.Minute)
	for i := range 2 * maxTimes {
		c.Add(addr(i%2000), now, now)
	}
	if n := 0; true {
		for _, s := range c.seen {
			n += len(s)
		}
		if n != c.times || n > maxTimes {
			t.Errorf("%d times are kept, %d counted", n, c.times)
		}
	}
}

// TestNamesTakeNoMoreThanTheirRoom: a hundred thousand names of a thousand bytes each took 130 MB.
func TestNamesTakeNoMoreThanTheirRoom(t *testing.T) {
	c := newCounter(3, time.Minute)
	now := time.Unix(1_700_000_000, 0)
	long := strings.Repeat("x", 1000)
	name := func(i int) ledger.Entry { return ledger.Entry{Name: fmt.Sprint(i, long)} }
	for i := range 2 * maxLetters / len(long) {
		c.Add(name(i), now, now)
	}
	letters := 0
	for e := range c.seen {
		letters += len(e.Name)
	}
	if letters != c.letters || letters > maxLetters || letters < maxLetters-2000 || c.refused == 0 {
		t.Errorf("%d bytes are kept, %d counted, %d names refused", letters, c.letters, c.refused)
	}
	c.Add(name(0), now, now)
	if !c.Add(name(0), now, now) {
		t.Error("who was counted first is forgotten")
	}
	later := now.Add(2 * time.Minute)
	c.Add(name(1<<20), later, later)
	if len(c.seen) != 1 || c.letters != len(name(1<<20).Name) {
		t.Errorf("%d names of %d bytes after their time", len(c.seen), c.letters)
	}
}
