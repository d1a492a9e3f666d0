package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// played makes a column of n requests: failed of them without an answer, the others after ms.
func played(s *screen, title string, n, failed int, ms float64) *column {
	c := s.column(title)
	from := int64(len(s.columns)) * int64(time.Minute)
	s.count(c, from, from+int64(time.Second))
	for i := range n {
		r := Request{Due: from + int64(i)*int64(time.Second)/int64(n), NS: int64(ms * 1e6)}
		if i < failed {
			r.NS = 0
		}
		s.request(r)
	}
	return c
}

func TestServiceIsHeldByShareAndLatency(t *testing.T) {
	for _, c := range []struct {
		name      string
		quiet, ms float64
		failed    int // of 1000
		want      bool
	}{
		{"all answered, as fast as without a flood", 2, 2, 0, true},
		{"slower, within the bound", 2, 201, 0, true},
		{"slower than the bound", 2, 203, 0, false},
		{"nine in a thousand failed", 2, 2, 9, true},
		{"four in a hundred failed", 2, 2, 40, true},
		{"six in a hundred failed", 2, 2, 60, false},
	} {
		s := newScreen(new(bytes.Buffer), false, nil)
		played(s, "quiet", 1000, 0, c.quiet)
		played(s, "no defence", 1000, 990, 900)
		played(s, "levee", 1000, c.failed, c.ms)
		if got, sentence := s.held(); got != c.want {
			t.Errorf("%s: held %v, want %v: %s", c.name, got, c.want, sentence)
		}
	}
}

func TestABusyMachineIsNoSuccess(t *testing.T) {
	s := newScreen(new(bytes.Buffer), false, nil)
	played(s, "quiet", 1000, 100, 2)
	played(s, "levee", 1000, 0, 2)
	if held, sentence := s.held(); held || !strings.Contains(sentence, "too busy") {
		t.Errorf("held %v: %s", held, sentence)
	}
}

func TestFailuresAreTheSlowestRequests(t *testing.T) {
	s := newScreen(new(bytes.Buffer), false, nil)
	c := played(s, "act", 100, 30, 5)
	if got := c.p(50); got != "5.0 ms" {
		t.Errorf("p50 %s", got)
	}
	if got := c.p(99); got != "> 1000 ms" {
		t.Errorf("p99 %s", got)
	}
	if got := c.answered(); got != "70.0 %" {
		t.Errorf("answered %s", got)
	}
}

func TestRequestsCountForTheActInWhichTheyWereDue(t *testing.T) {
	s := newScreen(new(bytes.Buffer), false, nil)
	c := s.column("act")
	s.count(c, 100, 200)
	for _, due := range []int64{99, 100, 199, 200} {
		s.request(Request{Due: due, NS: 1e6})
	}
	if len(c.latency) != 2 {
		t.Errorf("%d requests counted, want 2", len(c.latency))
	}
}

func TestTableOnATerminalIsRedrawnInPlace(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, true, []string{"intro"})
	played(s, "quiet", 10, 0, 1)
	s.draw()
	n := s.drawn
	out.Reset()
	s.draw()
	if got := strings.Count(out.String(), "\n"); got != n ||
		!strings.HasPrefix(out.String(), "\x1b[") {
		t.Errorf("%d lines redrawn of %d: %q", got, n, out.String())
	}
}
