package demo

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// requests are n of them within a second from a time on: failed without an answer, the others
// answered after so long.
func requests(from int64, n, failed int, after time.Duration) (list []Request) {
	for i := range n {
		r := Request{Due: from + int64(i)*int64(time.Second)/int64(n), NS: after.Nanoseconds()}
		if i < failed {
			r.NS = 0
		}
		list = append(list, r)
	}
	return list
}

func TestShareIsOfAllRequestsThatWereDue(t *testing.T) {
	const bound = 204 * time.Millisecond
	second := int64(time.Second)
	for _, c := range []struct {
		name string
		list []Request
		want float64
	}{
		{"all in time", requests(0, 200, 0, 2*time.Millisecond), 1},
		{"at the bound", requests(0, 200, 0, bound), 1},
		{"later than the bound", requests(0, 200, 0, bound+1), 0},
		{"some without an answer", requests(0, 200, 20, 2*time.Millisecond), 0.9},
		{"some of which nothing was heard", requests(0, 150, 0, 2*time.Millisecond), 0.75},
		{"due before", requests(-second, 200, 0, 2*time.Millisecond), 0},
		{"due after", requests(second, 200, 0, 2*time.Millisecond), 0},
	} {
		s := servedOf(c.list, 0, second)
		if got := s.within(bound); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestFailuresAreTheSlowestRequests(t *testing.T) {
	s := servedOf(requests(0, 200, 60, 5*time.Millisecond), 0, int64(time.Second))
	if got := s.p(50); got != "5.0 ms" {
		t.Errorf("p50 %s", got)
	}
	if got := s.p(99); got != "> 1000 ms" {
		t.Errorf("p99 %s", got)
	}
}

func TestCalmIsAfterTheFlood(t *testing.T) {
	for _, c := range []struct {
		name string
		list []Request
		want bool
	}{
		{"none yet", nil, false},
		{"due before its end", requests(0, 200, 0, time.Millisecond), false},
		{"too few", requests(int64(time.Second), calmRequests-1, 0, time.Millisecond), false},
		{"slow", requests(int64(time.Second), 20, 0, calmWithin+1), false},
		{"failed", requests(int64(time.Second), 20, 20, 0), false},
		{"answered", requests(int64(time.Second), 20, 5, time.Millisecond), true},
	} {
		o := outcomes{list: c.list}
		if got := o.calm(int64(time.Second)); got != c.want {
			t.Errorf("%s: calm %v", c.name, got)
		}
	}
}

// Drops were shown as more than what was offered: a mean of some readings beside one of others.
func TestPartsOfTheFloodAreOfTheSamePackets(t *testing.T) {
	c := counts{received: 960, refused: 40, dropped: 950}
	if dropped, lost := c.share(c.dropped), c.share(c.refused); dropped != 0.95 || lost != 0.04 ||
		percent(dropped) != "95.0 %" {
		t.Errorf("dropped %v, lost %v", dropped, lost)
	}
	if got := (&counts{}).share(0); got != 0 {
		t.Errorf("of nothing %v", got)
	}
}

func TestFiguresAreRounded(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 7: "7", 999.4: "999", 999.6: "1.00 k",
		39_640: "39.6 k", 226_274: "226 k", 999_600: "1.00 M", 4_886_000: "4.89 M",
		20_480_000: "20.5 M", 3e9: "3.00 G"} {
		if got := SI(v); got != want {
			t.Errorf("SI(%v) = %q, want %q", v, got, want)
		}
	}
	// What is not all is not shown as all, and what is below 95 % not as 95 %.
	for v, want := range map[float64]string{1: "100.0 %", 0.9996: "99.9 %", 0.9499: "94.9 %",
		0.95: "95.0 %", 0: "0.0 %"} {
		if got := percent(v); got != want {
			t.Errorf("percent(%v) = %q, want %q", v, got, want)
		}
	}
	// A ratio is that of the figures beside it.
	for _, c := range []struct {
		a, b float64
		want string
	}{{4_886_000, 534_400, "9.2"}, {4_886_000, 410_400, "12"}, {9.96, 1, "10"}} {
		if got := ratio(c.a, c.b); got != c.want {
			t.Errorf("ratio(%v, %v) = %q, want %q", c.a, c.b, got, c.want)
		}
	}
}

// played is an act that holds up to a step.
func played(s *screen, title string, edge, most int) *column {
	c := s.act(title, newSearch(lastStep))
	for step, _, more := c.search.next(); more; step, _, more = c.search.next() {
		t := trial{step: step, sent: min(step, most), rate: rateOf(min(step, most)), share: 1,
			held: true, served: served{[]time.Duration{time.Millisecond}, 1}}
		if step > edge {
			t.share, t.held = 0.5, false
		}
		s.tried(c, t)
	}
	return c
}

func TestDemoTellsWhatEachActHeld(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, false, []string{"intro"})
	played(s, "no defence", firstStep, lastStep)
	c := s.act("nftables", newSearch(lastStep))
	s.missing(c, os.ErrNotExist)
	played(s, "levee", lastStep, 64)
	picture := filepath.Join(t.TempDir(), "demo.svg")
	if err := s.end(picture); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"no defence     320 k packets/s: 100.0 % of the requests in time, held\n",
		"no defence     640 k packets/s: 50.0 % of the requests in time, not held\n",
		"held up to, packets/s                  320 k     not installed          ≥ 2.56 M\n",
		"requests in time, by flood  320 k   640 k   1.28 M  2.56 M\n",
		"  no defence                █▄▄▄▄▄▄▄▄\n",
		"  levee                     " + strings.Repeat("█", 25) + "\n",
		"levee ≥ 2.56 M, no defence 320 k (levee 8.0 times).\n" +
			"≥: the flood went no faster.\nnftables: file does not exist\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if b, err := os.ReadFile(picture); err != nil || !bytes.Contains(b, []byte("2.56 M")) {
		t.Errorf("the picture: %v", err)
	}
}

// On a machine whose service recovers slowly the searches are cut, so that a demo takes a minute.
func TestDemoTellsWhichSearchWasCut(t *testing.T) {
	s := newScreen(io.Discard, false, nil)
	played(s, "no defence", firstStep, lastStep)
	cut := s.act("levee", newSearch(lastStep))
	s.tried(cut, trial{step: firstStep, sent: firstStep, rate: rateOf(firstStep), share: 1,
		held: true})
	const want = "levee: the time for floods was over before the search was."
	if said := verdict(s.columns); said[len(said)-1] != want || strings.Contains(said[0], "≥") {
		t.Errorf("said %q, want %q at the end", said, want)
	}
}

// Of two acts that hold about the same another run may show the other one in front, as ten in a row
// did with nftables and no defence.
func TestDemoTellsWhichActsAreNotApart(t *testing.T) {
	for _, c := range []struct {
		edges [2]int
		alike bool
	}{{[2]int{45, 45}, true}, {[2]int{45, 49}, true}, {[2]int{49, 45}, true},
		{[2]int{45, 50}, false}, {[2]int{50, 45}, false}} {
		s := newScreen(io.Discard, false, nil)
		played(s, "no defence", c.edges[0], lastStep)
		played(s, "nftables", c.edges[1], lastStep)
		played(s, "levee", 60, lastStep)
		said := strings.Join(verdict(s.columns), "\n")
		const want = "no defence and nftables lie closer than two runs do: " +
			"which holds more is not told."
		if strings.Contains(said, want) != c.alike || strings.Contains(said, "and levee") {
			t.Errorf("edges %v: said\n%s", c.edges, said)
		}
	}
}

func TestDemoTellsThatTheCoresHaveMoved(t *testing.T) {
	const says = "the hypervisor has moved the cores"
	for _, c := range []struct {
		lines [2]float64
		moved bool
	}{{[2]float64{60, 80}, false}, {[2]float64{0, 400}, false}, {[2]float64{60, 400}, true},
		{[2]float64{400, 60}, true}} {
		var out bytes.Buffer
		s := newScreen(&out, false, nil)
		s.machine(served{}, heldExtra, 7e6, c.lines[0])
		for i, line := range c.lines {
			a := played(s, "act", 20*(i+1), lastStep)
			for i := range a.trials {
				a.trials[i].line = line
			}
		}
		if err := s.end(""); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), says) != c.moved ||
			strings.Contains(out.String(), "A cache line takes 60 ns") != (c.lines[0] == 60) ||
			!strings.Contains(out.String(), "cache line, both ways") {
			t.Errorf("%v:\n%s", c.lines, out.String())
		}
	}
}

func TestAnActMayHoldNothing(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, false, nil)
	played(s, "no defence", -1, lastStep)
	played(s, "levee", -1, lastStep)
	if err := s.end(""); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "levee at no rate, no defence at no rate.") {
		t.Error(out.String())
	}
}

func TestTableOnATerminalIsRedrawnInPlace(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, true, []string{"intro"})
	played(s, "levee", 20, lastStep)
	s.now("levee")
	n := s.drawn
	out.Reset()
	s.now("levee")
	if got := strings.Count(out.String(), "\n"); got != n ||
		!strings.HasPrefix(out.String(), "\x1b[") {
		t.Errorf("%d lines redrawn of %d: %q", got, n, out.String())
	}
}
