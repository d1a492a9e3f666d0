package knock

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

var began = time.Date(2026, 11, 29, 7, 0, 0, 0, time.UTC)

// TestADatagramOpensOnce: and a million replays of it, forgeries and delays do not.
func TestADatagramOpensOnce(t *testing.T) {
	k := NewKey()
	g := NewGate(k, began, nil)
	now := began.Add(time.Hour)
	b := k.Datagram(now)
	if err := g.Take(b, now); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	other := NewKey()
	forged := other.Datagram(now)
	delayed := k.Datagram(now.Add(-Window - time.Microsecond))
	const n = 1 << 20 / 3
	for i := range n {
		at := now.Add(time.Duration(r.Int64N(int64(2 * time.Minute))))
		if err := g.Take(b, at); err == nil {
			t.Fatalf("replay %d is taken", i)
		}
		if err := g.Take(forged, now); !errors.Is(err, ErrForged) {
			t.Fatalf("a datagram of another key: %v", err)
		}
		if err := g.Take(delayed, at); !errors.As(err, new(*ClockError)) {
			t.Fatalf("a datagram that was kept: %v", err)
		}
		forged[r.IntN(len(forged))] ^= byte(1 + r.IntN(255))
	}
	if err := g.Take(b, now); !errors.Is(err, errReplayed) {
		t.Errorf("the same again: %v", err)
	}
}

// TestNoBitMayChange: a datagram with any bit turned is none of the key.
func TestNoBitMayChange(t *testing.T) {
	k := NewKey()
	for bit := range 8 * Bytes {
		b := k.Datagram(began)
		b[bit/8] ^= 1 << (bit % 8)
		if err := NewGate(k, began, nil).Take(b, began); !errors.Is(err, ErrForged) {
			t.Errorf("bit %d: %v", bit, err)
		}
	}
	for n := range 2 * Bytes {
		if n == Bytes {
			continue
		}
		b := append(k.Datagram(began), make([]byte, Bytes)...)[:n]
		if err := NewGate(k, began, nil).Take(b, began); !errors.Is(err, ErrForged) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestAClockThatIsOffIsTold: by how much, and which way; up to half a minute does no harm.
func TestAClockThatIsOffIsTold(t *testing.T) {
	k := NewKey()
	now := began.Add(time.Hour)
	for _, tt := range []struct {
		off  time.Duration
		says string
	}{
		{0, ""}, {29 * time.Second, ""}, {-30 * time.Second, ""},
		{-time.Minute, "the clock of who knocks is 1m0s behind this machine's: set one of the two"},
		{61 * time.Second, "the clock of who knocks is 1m1s ahead of this machine's: set one of " +
			"the two"},
	} {
		err := NewGate(k, began, nil).Take(k.Datagram(now.Add(tt.off)), now)
		if got := text(err); got != tt.says {
			t.Errorf("a clock off by %v: %q, want %q", tt.off, got, tt.says)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestAGateThatBeginsAgainTakesNothingOld: what it took before is not remembered.
func TestAGateThatBeginsAgainTakesNothingOld(t *testing.T) {
	k := NewKey()
	b := k.Datagram(began)
	if err := NewGate(k, began, nil).Take(b, began); err != nil {
		t.Fatal(err)
	}
	again := began.Add(time.Second)
	var clock *ClockError
	err := NewGate(k, again, nil).Take(b, again)
	if !errors.As(err, &clock) || !clock.Begun {
		t.Errorf("after it began again: %v", err)
	}
	if err := NewGate(k, again, nil).Take(k.Datagram(again), again); err != nil {
		t.Error(err)
	}
}

// TestAClockThatGoesBackOpensNothingTwice: numbers are forgotten once their time is over. Where the
// clock is set back behind that, a datagram that somebody kept was taken again.
func TestAClockThatGoesBackOpensNothingTwice(t *testing.T) {
	k := NewKey()
	g := NewGate(k, began, nil)
	kept := k.Datagram(began.Add(time.Second))
	take := func(b []byte, at time.Duration, says string) {
		t.Helper()
		if got := text(g.Take(b, began.Add(at))); got != says {
			t.Errorf("at %v: %q, want %q", at, got, says)
		}
	}
	const again = "it has been here before"
	take(kept, 2*time.Second, "")
	take(kept, 31*time.Second, again)
	take(k.Datagram(began.Add(time.Minute)), time.Minute, "") // it is forgotten
	take(kept, 2*time.Second, "this machine's clock has gone back: for 29s more nobody can tell "+
		"what has been here before")
	// What is not forgotten is known, and what nobody can have sent before is taken.
	take(k.Datagram(began.Add(40*time.Second)), 50*time.Second, "")
	take(k.Datagram(began.Add(61*time.Second)), time.Minute, "")
}

// TestAClockThatGoesBackBeforeAGateBeginsOpensNothingTwice: a machine without a clock of its own
// begins with the time at which it was last seen to run, and takes until then what it took before.
func TestAClockThatGoesBackBeforeAGateBeginsOpensNothingTwice(t *testing.T) {
	k := NewKey()
	g := NewGate(k, began, nil)
	if g.Left() != nil {
		t.Error("it has left something, and has taken nothing")
	}
	at := began.Add(10 * time.Minute)
	kept, later := k.Datagram(at), k.Datagram(at.Add(time.Second))
	if err := g.Take(kept, at); err != nil {
		t.Fatal(err)
	}
	left := g.Left()
	for range 3 { // each gate takes nothing, and leaves what it was left
		g = NewGate(k, began, left)
		const want = "one of a later time was taken before this began to listen: for 0s more " +
			"nobody can tell what has been here before, unless both sides get a new key"
		if got := text(g.Take(kept, at)); got != want {
			t.Errorf("again: %q, want %q", got, want)
		}
		left = g.Left()
	}
	if err := g.Take(later, at); err != nil {
		t.Errorf("a later one: %v", err)
	}
	if err := NewGate(k, began, g.Left()).Take(later, at); err == nil {
		t.Error("and that again is taken")
	}
	other := NewKey()
	for name, left := range map[string][]byte{"another key's": g.Left(), "half": left[:8],
		"a spoilt one": append([]byte{1}, left[1:]...)} {
		if err := NewGate(other, began, left).Take(other.Datagram(began), began); err != nil {
			t.Errorf("what %s gate has left: %v", name, err)
		}
	}
}

// TestAGateRemembersABoundedNumber: who has the key fills it, and others are taken a minute later.
func TestAGateRemembersABoundedNumber(t *testing.T) {
	k := NewKey()
	g := NewGate(k, began, nil)
	for range mostSeen {
		if err := g.Take(k.Datagram(began), began); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Take(k.Datagram(began), began); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	later := began.Add(2 * Window)
	if err := g.Take(k.Datagram(later), later); err != nil || len(g.seen) != 1 {
		t.Errorf("a minute later: %v, and %d are remembered", err, len(g.seen))
	}
}

func TestKeysAreWrittenAsTheyAreRead(t *testing.T) {
	k := NewKey()
	if got, err := ParseKey(k.String()); err != nil || got != k {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "x", k.String()[1:], k.String() + "AAAA"} {
		if _, err := ParseKey(text); err == nil {
			t.Errorf("%q is taken for a key", text)
		}
	}
}

// FuzzTake: no datagram of somebody without the key opens, or ends the gate.
func FuzzTake(f *testing.F) {
	k := Key{1}
	f.Add(k.Datagram(began)[:atMAC])
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := NewGate(Key{2}, began, nil).Take(b, began); !errors.Is(err, ErrForged) {
			t.Errorf("%x: %v", b, err)
		}
	})
}

func BenchmarkForgery(b *testing.B) {
	k, other := NewKey(), NewKey()
	g, d := NewGate(k, began, nil), other.Datagram(began)
	for b.Loop() {
		_ = g.Take(d, began)
	}
}
