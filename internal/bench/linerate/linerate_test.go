package linerate

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
)

// TestLineRates compares with the maximum frame rates that test equipment vendors and RFC 2544
// reports print for 10 Gbit/s, and with the exact fraction for all others.
func TestLineRates(t *testing.T) {
	published := map[float64]int64{64: 14_880_952, 128: 8_445_945, 256: 4_528_985, 512: 2_349_624,
		1024: 1_197_318, 1280: 961_538, 1518: 812_743, 9018: 138_304}
	for _, gbit := range []int64{1, 10, 25, 40, 100, 200, 400} {
		for frame, at10 := range published {
			q, err := Solve(Quantities{Speed: float64(gbit) * 1e9, Frame: frame})
			if err != nil {
				t.Fatal(err)
			}
			exact, _ := big.NewRat(gbit*1e9, 8*(int64(frame)+20)).Float64()
			if q.Rate != exact {
				t.Errorf("%d Gbit/s, %g bytes: %v packets/s, want %v", gbit, frame, q.Rate, exact)
			}
			if gbit == 10 && int64(q.Rate) != at10 {
				t.Errorf("10 Gbit/s, %g bytes: %d packets/s, published %d", frame, int64(q.Rate),
					at10)
			}
			if ns := 8 * (frame + 20) / float64(gbit); math.Abs(q.Time-ns) > 1e-9*ns {
				t.Errorf("%d Gbit/s, %g bytes: %v ns, want %v", gbit, frame, q.Time, ns)
			}
		}
	}
}

func TestAnyTwoGiveTheRest(t *testing.T) {
	want, err := Solve(Quantities{Speed: 10e9, Frame: 64, Clock: 2.5, Cores: 2})
	if err != nil || want.Time != 67.2 || want.Cycles != 336 || math.Abs(want.Wire-64./84) > 1e-12 {
		t.Fatalf("%+v, %v", want, err)
	}
	for name, q := range map[string]Quantities{
		"link and rate":   {Speed: want.Speed, Rate: want.Rate, Clock: 2.5, Cores: 2},
		"link and time":   {Speed: want.Speed, Time: want.Time, Clock: 2.5, Cores: 2},
		"link and cycles": {Speed: want.Speed, Cycles: want.Cycles, Clock: 2.5, Cores: 2},
		"frame and rate":  {Frame: 64, Rate: want.Rate, Clock: 2.5, Cores: 2},
		"frame and time":  {Frame: 64, Time: want.Time, Clock: 2.5, Cores: 2},
		"rounded as well": {Speed: want.Speed, Frame: 64, Rate: 14.88e6, Clock: 2.5, Cores: 2},
		"cycles and time": {Speed: want.Speed, Cycles: 336, Time: 67.2, Cores: 2},
	} {
		got, err := Solve(q)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, v := range [][2]float64{{got.Speed, want.Speed}, {got.Frame, 64},
			{got.Rate, want.Rate}, {got.Time, 67.2}, {got.Cycles, 336}, {got.Clock, 2.5}} {
			if math.Abs(v[0]-v[1]) > 1e-3*v[1] {
				t.Errorf("%s: %+v, want %+v", name, got, want)
				break
			}
		}
	}
	if q, err := Solve(Quantities{Time: 50}); err != nil || q.Rate != 20e6 || q.Cores != 0 {
		t.Errorf("50 ns alone: %+v, %v", q, err)
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	for _, c := range []struct {
		q    Quantities
		want string
	}{
		{Quantities{Speed: 10e9, Frame: 63}, "64 to"},
		{Quantities{Speed: 10e9, Frame: 1e6}, "64 to"},
		{Quantities{Speed: 10e9, Rate: 20e6}, "at 64 bytes, the smallest frame, it is 1.4881e+07"},
		{Quantities{Speed: 10e9, Rate: 1}, "do not fill"},
		{Quantities{Speed: 10e9, Frame: 64, Rate: 1e6}, "1e+06 was given"},
		{Quantities{Rate: 1e6, Time: 50}, "50 was given"},
		{Quantities{Time: 1, Cycles: 1e6}, "GHz"},
		{Quantities{Speed: math.NaN(), Frame: 64}, "link speed"},
		{Quantities{Speed: 10e9, Frame: math.NaN()}, "frame"},
		{Quantities{Speed: math.Inf(1), Frame: 64}, "link speed"},
		{Quantities{Speed: 10e9, Frame: 64, Clock: 1e9}, "clock"},
		{Quantities{Speed: 10e9, Frame: 64, Cores: -1}, "cores"},
	} {
		if _, err := Solve(c.q); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.q, err, c.want)
		}
	}
	for _, q := range []Quantities{{}, {Speed: 10e9}, {Frame: 64}, {Cycles: 100}, {Clock: 2},
		{Frame: 64, Clock: 2}} {
		if _, err := Solve(q); !errors.Is(err, errTooFew) {
			t.Errorf("%+v: %v, want errTooFew", q, err)
		}
	}
}

func TestWordsAreRead(t *testing.T) {
	for word, want := range map[string]Quantities{
		"10G": {Speed: 10e9}, "10Gbit/s": {Speed: 10e9}, "100Mbps": {Speed: 100e6},
		"2.5g": {Speed: 2.5e9}, "1T": {Speed: 1e12}, "40Gb/s": {Speed: 40e9},
		"64": {Frame: 64}, "1518B": {Frame: 1518}, "9018bytes": {Frame: 9018},
		"14.88Mpps": {Rate: 14.88e6}, "1e6pps": {Rate: 1e6}, "500kpackets/s": {Rate: 500e3},
		"500Kpps": {Rate: 500e3},
		"67.2ns":  {Time: 67.2}, "1us": {Time: 1000}, "1.5µs": {Time: 1500}, "2ms": {Time: 2e6},
		"336cycles": {Cycles: 336},
	} {
		var q Quantities
		if err := q.Add(word, WithFCS); err != nil || q != want {
			t.Errorf("%s: %+v, %v, want %+v", word, q, err, want)
		}
	}
	for _, word := range []string{"", "G", "ten", "-5G", "0", "64.5", "10Q", "10GB", "1e400", "NaN",
		"Inf", "64 64", "5GB/s", "10kns"} {
		var q Quantities
		if err := q.Add(word, WithFCS); err == nil {
			t.Errorf("%q was read as %+v", word, q)
		}
	}
	var q Quantities
	if err := q.Add("10G", WithFCS); err != nil {
		t.Fatal(err)
	}
	if err := q.Add("1G", WithFCS); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second speed: %v", err)
	}
}

func TestSizesAreCountedAsAsked(t *testing.T) {
	for _, c := range []struct {
		word string
		by   Counting
		want float64
	}{
		{"64", WithFCS, 64}, {"60", WithoutFCS, 64}, {"1514", WithoutFCS, 1518},
		{"1500", IPPacket, 1518}, {"20", IPPacket, 64}, {"46", IPPacket, 64}, {"47", IPPacket, 65},
		{"59", WithoutFCS, 0}, {"19", IPPacket, 0},
	} {
		var q Quantities
		if err := q.Add(c.word, c.by); q.Frame != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%s counted %d: %g, %v, want %g", c.word, c.by, q.Frame, err, c.want)
		}
	}
}

func FuzzWords(f *testing.F) {
	for _, s := range []string{"10G 64", "14.88Mpps 67.2ns", "1e300T 64", "0x10 5", "5cycles 2ns",
		"µ µs"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var q Quantities
		for _, w := range strings.Fields(line) {
			if q.Add(w, WithFCS) != nil {
				return
			}
		}
		out, err := Solve(q)
		if err != nil {
			return
		}
		if s := fmt.Sprint(out); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
			t.Errorf("%q: %s", line, s)
		}
	})
}
