// Package pubsub tells what happens to those who watch at that moment, and keeps the last of it for
// those who come back.
//
// In go events, out come the same with numbers, to each subscriber. It never waits for one: who is
// slow misses events, and is told how many.
package pubsub

import (
	"context"
	"sync"
	"time"
)

// Event is something that happened.
type Event struct {
	ID       uint64    `json:"id" doc:"Grows by one with each event, from the start of the agent on."`
	At       time.Time `json:"at" doc:"When."`
	Kind     Kind      `json:"kind" enum:"alarm,recovered,refused,leased,withdrawn,repaired,policy,incident,lost" doc:"What it is about."`
	Text     string    `json:"text" doc:"One sentence."`
	Set      string    `json:"set,omitempty" doc:"The set that it is about."`
	Origin   string    `json:"origin,omitempty" doc:"Whose leases it is about."`
	Entry    string    `json:"entry,omitempty" doc:"The entry, where it is one."`
	Incident string    `json:"incident,omitempty" doc:"The id of the incident."`
	Part     string    `json:"part,omitempty" doc:"The part of the agent that fails or works again."`
	Count    int       `json:"count,omitempty" doc:"How many entries, leases or lost events."`
}

// Kind is the subject of an event.
type Kind string

// Kinds of events.
const (
	Alarm     Kind = "alarm"     // somebody should look
	Recovered Kind = "recovered" // what an alarm was about works again, or is no longer there
	Refused   Kind = "refused"   // an entry has an address that no entry may have
	Leased    Kind = "leased"    // leases are new or renewed
	Withdrawn Kind = "withdrawn" // leases were taken back
	Repaired  Kind = "repaired"  // entries that the kernel lacked are there again
	Policy    Kind = "policy"    // other policies are in force
	Incident  Kind = "incident"  // a flood began, was acted on, or ended
	Lost      Kind = "lost"      // the subscriber was too slow
)

const (
	kept    = 512 // events for those who come back
	pending = 64  // for one subscriber
)

// Hub takes events and gives them to subscribers. The zero value is ready.
type Hub struct {
	mu     sync.Mutex
	last   uint64
	recent []Event
	to     map[*subscriber]bool
}

type subscriber struct {
	events chan Event
	lost   int
}

// Publish numbers an event and tells it to all who watch.
func (h *Hub) Publish(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	e.ID = h.last
	if e.At.IsZero() {
		e.At = time.Now()
	}
	if len(h.recent) == kept {
		copy(h.recent, h.recent[1:])
		h.recent = h.recent[:kept-1]
	}
	h.recent = append(h.recent, e)
	for s := range h.to {
		s.send(e)
	}
}

func (s *subscriber) send(e Event) {
	if s.lost > 0 {
		lost := Event{ID: e.ID - 1, At: e.At, Kind: Lost, Count: s.lost,
			Text: "events came faster than they were taken: some are left out"}
		select {
		case s.events <- lost:
			s.lost = 0
		default:
			s.lost++
			return
		}
	}
	select {
	case s.events <- e:
	default:
		s.lost++
	}
}

// Watch sends events behind a number, of which the last are kept, and then those that come, until
// ctx ends or send fails. 0 is from now on. A number that is larger than any is of an agent before
// this one: all that is kept is sent.
func (h *Hub) Watch(ctx context.Context, after uint64, send func(id uint64, e *Event) error) {
	s := &subscriber{events: make(chan Event, pending)}
	h.mu.Lock()
	var past []Event
	if after > h.last {
		past = append(past, h.recent...)
	} else if after > 0 {
		first := h.last - uint64(len(h.recent)) + 1
		past = append(past, h.recent[max(after+1, first)-first:]...)
	}
	if h.to == nil {
		h.to = map[*subscriber]bool{}
	}
	h.to[s] = true
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.to, s)
		h.mu.Unlock()
	}()
	for i := range past {
		if send(past[i].ID, &past[i]) != nil {
			return
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-s.events:
			if send(e.ID, &e) != nil {
				return
			}
		}
	}
}

// Watchers returns how many watch.
func (h *Hub) Watchers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.to)
}
