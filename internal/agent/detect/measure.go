package detect

import (
	"time"

	"levee/internal/agent/kind"
)

// A test of the line over UDP is one way, fast, and looks like a flood. It has few hosts, flows and
// a connection of TCP by which it was asked for, and a program that takes its datagrams.
const (
	testHosts = 2   // that have most of what comes
	testFlows = 128 // that they have
	askLasts  = 400 * time.Millisecond
	askAgain  = 2 * time.Second
	// Where the machine has no use for more than this share of what they send, it is no test.
	unwanted = 0.25
)

// tests is the state of tests of the line.
type tests struct {
	unwanted    float64   // packets a second that no socket takes
	asked, last time.Time // who sends much was asked for, and seen
}

// Unwanted is told how many packets a second no socket of the machine takes: it has none for them,
// or no room in it, or forwards them.
func (d *Detector) Unwanted(packets float64) { d.tests.unwanted = packets }

// measured leaves out of what is judged the datagrams of a test of the line: those of flows that go
// on, of few hosts, with which there are connections. Who that is may have to be asked, which takes
// a moment.
func (j *judged) measured() {
	d, s, row := j.d, &j.sum, kind.UDP.Row() // of others nobody says whether a program takes them
	if d.fixed() || s[row.All] < soon*row.Floor {
		return
	}
	goes := goesOn(row, s)
	last := &j.n.ring[(j.n.at+bins-1)%bins] // who was asked for is known from then on
	peers := goes * min(1, last[kind.CountPeers]/max(1, goesOn(row, last)))
	if s[kind.CountHost]*testHosts < s[kind.CountBesides] || s[row.Same]*testFlows < s[row.All] {
		return
	}
	if j.n == d.root {
		if j.now.Sub(d.tests.last) > askAgain {
			d.tests.asked = j.now
			if d.Ask != nil {
				d.Ask()
			}
		}
		d.tests.last = j.now
	}
	if d.Peer != nil && j.now.Sub(d.tests.asked) < askLasts {
		peers = goes
	}
	if d.tests.unwanted > unwanted*peers {
		return
	}
	s[row.All] -= peers
	s[row.Counter] = max(0, s[row.Counter]-row.Repeat*peers)
}

// goesOn returns the packets a second of a kind in flows that are not new.
func goesOn(row *kind.Row, r *raw) float64 {
	return r[row.All] - row.Novel(r[row.Counter], r[row.All])
}
