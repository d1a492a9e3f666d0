package defend

import (
	"testing"
	"time"
)

// TestWhatIsSentIsCountedFromTheSecondLookOn: one counter says nothing of a second.
func TestWhatIsSentIsCountedFromTheSecondLookOn(t *testing.T) {
	var s sent
	now := time.Now()
	none := refusals{told: true}
	if _, ok := s.second(now, 1000, none, true); ok {
		t.Error("the first time")
	}
	if rate, ok := s.second(now.Add(2*time.Second), 1500, none, true); !ok || rate != 250 {
		t.Errorf("the second time: %v, %v", rate, ok)
	}
	no := refusals{told: true, resets: 40, unreachables: 60}
	if rate, ok := s.second(now.Add(3*time.Second), 1700, no, true); !ok || rate != 100 {
		t.Errorf("200 packets, of which 100 refuse something: %v, %v", rate, ok)
	}
	if rate, ok := s.second(now.Add(4*time.Second), 1800, none, true); !ok || rate != 100 {
		t.Errorf("refusals whose counter began anew: %v, %v", rate, ok)
	}
	no.resets = 900 // by another interface
	if rate, ok := s.second(now.Add(5*time.Second), 1900, no, true); !ok || rate != 0 {
		t.Errorf("more refusals than packets: %v, %v", rate, ok)
	}
	if rate, ok := s.second(now.Add(6*time.Second), 2000, refusals{}, true); !ok || rate != 100 {
		t.Errorf("refusals that nobody tells: %v, %v", rate, ok)
	}
	if rate, ok := s.second(now.Add(7*time.Second), 2100, no, true); !ok || rate != 100 {
		t.Errorf("refusals that were not told before: %v, %v", rate, ok)
	}
	if _, ok := s.second(now.Add(8*time.Second), 10, none, true); ok {
		t.Error("a counter that began anew")
	}
	if _, ok := s.second(now.Add(9*time.Second), 0, none, false); ok || s != (sent{}) {
		t.Error("a device that is not there")
	}
	if n, ok := (namespace{}).sent("lo"); !ok || n > 1<<62 {
		t.Errorf("of lo: %d, %v", n, ok)
	}
	if _, ok := (namespace{}).sent("no-such-device"); ok {
		t.Error("of no device")
	}
}

// TestRefusalsAreNoAnswers: a flood to a closed port had a thousand answers a second of ICMP, and
// half of what is too much otherwise was not too much of it. The kernel's counters are read as it
// writes them.
func TestRefusalsAreNoAnswers(t *testing.T) {
	four := "Ip: Forwarding DefaultTTL\nIp: 1 64\n" +
		"Icmp: InMsgs OutMsgs OutDestUnreachs\nIcmp: 5 9 7\n" +
		"Tcp: MaxConn OutSegs InErrs OutRsts\nTcp: -1 900 2 11\n"
	six := "Ip6InReceives   \t12\nIcmp6OutDestUnreachs   \t3\n"
	if got := refusalsOf(four, six); got != (refusals{true, 11, 2, 10}) {
		t.Errorf("%+v", got)
	}
	for _, text := range []string{"", "Tcp:\nTcp:\n", "Tcp: OutRsts\n", "Tcp: OutRsts\nTcp: x\n",
		"Tcp: A OutRsts\nTcp: 1\n"} {
		if got := refusalsOf(text, ""); got != (refusals{}) {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if got := (namespace{}).refused(); !got.told {
		t.Errorf("of this machine: %+v", got)
	}
	var r refused
	now := time.Now()
	for i, want := range []struct {
		after          time.Duration
		resets, broken uint64
		more           float64
		ok             bool
	}{{0, 100, 5, 0, false}, {200 * time.Millisecond, 180, 25, 100, true},
		{2 * time.Second, 900, 25, 0, false}} {
		now = now.Add(want.after)
		more, ok := r.since(now, refusals{told: true, resets: want.resets,
			broken: want.broken})
		if more != want.more || ok != want.ok {
			t.Errorf("the look %d: %v, %v", i+1, more, ok)
		}
	}
}
