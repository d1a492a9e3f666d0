package api

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Streams that are open at a time, and how they are kept open.
const (
	maxStreams    = 32 // of all who are no admin
	maxOwnStreams = 8  // of one caller
	streamAlive   = 15 * time.Second
	streamTimeout = 10 * time.Second // for one event to be taken
)

// Stream returns a route that sends events of a type, as server-sent events, until the caller goes
// or run returns. after is the number of the last event that the caller has seen, 0 for none. A
// caller that does not take an event within ten seconds is let go.
func Stream[Event any](path string, role Role, doc string,
	run func(ctx context.Context, after uint64, send func(id uint64, e *Event) error)) Route {
	open := &streams{own: map[string]int{}}
	h := func(w http.ResponseWriter, r *http.Request) {
		caller := CallerOf(r.Context())
		if most := open.begin(&caller); most > 0 {
			writeProblem(w, http.StatusServiceUnavailable,
				"%d streams are open, which is the most: close a page that shows events", most)
			return
		}
		defer open.end(&caller)
		after, _ := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64) // none: from now on
		control := http.NewResponseController(w)
		h := w.Header()
		h.Set("Content-Type", eventStream)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // nginx
		write := func(text []byte) error {
			if err := control.SetWriteDeadline(time.Now().Add(streamTimeout)); err != nil {
				return err
			}
			if _, err := w.Write(text); err != nil {
				return err
			}
			return control.Flush()
		}
		if write([]byte(": levee\n\n")) != nil {
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		type message struct {
			text []byte
			done chan error
		}
		queue := make(chan message)
		go func() {
			defer cancel()
			run(ctx, after, func(id uint64, e *Event) error {
				data, err := json.Marshal(e)
				if err != nil {
					return err
				}
				text := append(strconv.AppendUint([]byte("id: "), id, 10), "\ndata: "...)
				m := message{append(append(text, data...), "\n\n"...), make(chan error, 1)}
				select {
				case queue <- m:
					return <-m.done
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		}()
		alive := time.NewTicker(streamAlive)
		defer alive.Stop()
		for {
			var err error
			select {
			case <-ctx.Done():
				return
			case m := <-queue:
				err = write(m.text)
				m.done <- err
			case <-alive.C:
				err = write([]byte(":\n\n"))
			}
			if err != nil {
				return
			}
		}
	}
	return Route{Method: http.MethodGet, Path: path, Role: role, Doc: doc,
		raw: http.HandlerFunc(h), kind: eventStream, event: new(Event)}
}

// streams counts those that are open, so that no caller keeps the others out.
type streams struct {
	mu  sync.Mutex
	all int
	own map[string]int
}

// whose returns who has a stream: all of a token's are one caller's, and of those without one an
// address.
func whose(c *Caller) string {
	if c.Name != "" {
		return c.Name
	}
	host, _, _ := net.SplitHostPort(c.From)
	return "at " + host
}

// begin counts one more, unless there are as many as may be: then it says how many.
func (s *streams) begin(c *Caller) (most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.own[whose(c)] >= maxOwnStreams:
		return maxOwnStreams
	case c.Role == Admin:
	case s.all >= maxStreams:
		return maxStreams
	default:
		s.all++
	}
	s.own[whose(c)]++
	return 0
}

func (s *streams) end(c *Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Role != Admin {
		s.all--
	}
	if s.own[whose(c)]--; s.own[whose(c)] == 0 {
		delete(s.own, whose(c))
	}
}

const eventStream = "text/event-stream"
