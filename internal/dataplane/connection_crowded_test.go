package dataplane

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"levee/internal/filter/flow"
)

// TestAnAnswerOpensNothingBesideAFlood: a service answers whoever comes. So many come between a
// question and its answer that the client's place is lost. The answer opened a connection then, and
// the client, or who forges its address, was past every rule behind `pass established`.
func TestAnAnswerOpensNothingBesideAFlood(t *testing.T) {
	const room = uint32(flow.MinRoom)
	for _, c := range []struct {
		name                  string
		own, halfOpen, others uint32
		older                 bool // the memory is of a levee that notes no ports
	}{
		{"of those who ask", 0, 0, 2 * room, false},
		{"of those who ask, after an older levee", 0, 0, 2 * room, true},
		// Their lease is longer: whoever came last was the first to give way.
		{"of half-open connections", 0, 2 * room, room / 4, false},
		// As of a resolver, which asks from other ports.
		{"in a memory full of what this side began", 3 * room / 2, 0, room, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, p := connectionsOf(t,
				"connections max 16384\npass established as \"known\"\npass udp\ndefault drop\n")
			if c.older {
				// leases begin at 128 of a flow_head: of FLOW_STRANGER, and of FLOW_SERVED
				leases := x.memory()[128:]
				stranger, served := leases[4*10:4*11], leases[4*12:4*13]
				if !bytes.Equal(stranger, served) || bytes.Equal(served, make([]byte, 4)) {
					t.Fatalf("leases are % x and % x", stranger, served)
				}
				clear(served)
			}
			known := func(frame []byte) bool {
				slot, _, err := x.Eval(frame)
				if err != nil {
					t.Fatal(err)
				}
				r := p.Slots()[slot].Rule
				return r != nil && r.Label == "known"
			}
			ask := func(n uint32) bool { return known(x.frame(udp, n, false)) }
			for n := range c.own {
				x.converse(n)
			}
			for n := range c.halfOpen {
				x.leave(synAck, 1<<20+n)
			}
			x.pass(time.Minute)
			const clients = 50
			for n := range uint32(clients) {
				ask(n)
			}
			for n := range c.others {
				ask(1<<21 + n)
			}
			for n := range uint32(clients) {
				x.leave(udp, n)
			}
			if f := x.flowStats(); f.Taken == 0 {
				t.Fatalf("nobody lost his place: %+v", f)
			}
			for n := range uint32(clients) {
				if ask(n) {
					t.Errorf("client %d is established", n)
				}
			}
			// What this side begins meanwhile is known, from a port that serves nobody.
			if !known(x.converse(1 << 20)) {
				t.Error("an answer is not established")
			}
		})
	}
}

// converse has this side begin over UDP, from a port that serves nobody, and be answered once. It
// returns the next answer.
func (c *connections) converse(n uint32) []byte {
	c.Helper()
	question, answer := c.frame(udp, n, true), c.frame(udp, n, false)
	binary.BigEndian.PutUint16(question[34:], 40000)
	binary.BigEndian.PutUint16(answer[36:], 40000)
	if err := c.Leave(question); err != nil {
		c.Fatal(err)
	}
	if _, _, err := c.Eval(answer); err != nil {
		c.Fatal(err)
	}
	return answer
}

// TestPacketsToDrawnPortsEndNoConversation: rules let in all ports. The notes of which of them
// somebody has come to, as many as there are places and more, took those of what this side began.
func TestPacketsToDrawnPortsEndNoConversation(t *testing.T) {
	x, p := connectionsOf(t,
		"connections max 16384\npass established as \"known\"\npass udp\ndefault drop\n")
	const own = 500 // so few that no bucket has more than six, whatever the key
	var answers [][]byte
	for n := range uint32(own) {
		answers = append(answers, x.converse(n))
	}
	x.pass(10 * time.Second)
	for n := range uint32(1 << 15) {
		f := x.frame(udp, 1<<21+n, false)
		binary.BigEndian.PutUint16(f[36:], uint16(n))
		if _, _, err := x.Eval(f); err != nil {
			t.Fatal(err)
		}
	}
	lost := 0
	for _, answer := range answers {
		slot, _, err := x.Eval(answer)
		if err != nil {
			t.Fatal(err)
		}
		if r := p.Slots()[slot].Rule; r == nil || r.Label != "known" {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d conversations are lost", lost, own)
	}
}

// TestAFloodShortensNoTrial: the memory to which a trial may go back counts as one that has
// forgotten until the trial has ended. A place that was lost in it meanwhile made that two minutes.
func TestAFloodShortensNoTrial(t *testing.T) {
	const trial = 10 * time.Minute
	x, p := connectionsOf(t,
		"connections max 16384\npass established as \"known\"\npass udp\ndefault drop\n")
	ask := func(n uint32) int {
		slot, _, err := x.Eval(x.frame(udp, n, false))
		if err != nil {
			t.Fatal(err)
		}
		return slot
	}
	memory := x.memory()
	flow.Move(memory, make([]byte, len(memory)), x.now, uint64(trial/time.Second)*x.hz)
	for n := range 2 * uint32(flow.MinRoom) {
		ask(n)
	}
	if f := x.flowStats(); f.Taken == 0 {
		t.Fatalf("nobody lost his place: %+v", f)
	}
	for n := range uint32(5) { // whoever these answer asked the other memory
		x.pass(time.Minute)
		x.leave(udp, 1<<21+n)
		if r := p.Slots()[ask(1<<21+n)].Rule; r != nil && r.Label == "known" {
			t.Errorf("who is answered in minute %d of the trial is established", n+1)
		}
	}
}
