package notify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"levee/internal/agent/notify/way"
	"levee/internal/agent/part"
	"levee/internal/agent/pubsub"
)

const (
	queued    = 64 // events that wait for one target
	firsts    = 5  // texts of held events in a summary
	lookEvery = 5 * time.Second
)

// backoff is the wait before each further attempt.
var backoff = []time.Duration{2 * time.Second, 10 * time.Second, time.Minute}

// Status counts the messages to a target since the agent began.
type Status struct {
	Name   string   `json:"name"`
	Way    string   `json:"way"`
	To     string   `json:"to" doc:"Address, path, or of a URL its host."`
	On     []string `json:"on" doc:"Kinds of events."`
	Limit  string   `json:"limit"`
	Sent   uint64   `json:"sent" doc:"Messages that were taken."`
	Failed uint64   `json:"failed" doc:"Messages that were given up."`
	Held   uint64   `json:"held" doc:"Events that the limit held back; a summary tells of them."`
	Lost   uint64   `json:"lost" doc:"Events for which the queue had no room."`
	Error  string   `json:"error,omitempty" doc:"Why the last message failed."`
}

// Notifier tells the targets of a file. It is made by New.
type Notifier struct {
	path    string
	backoff []time.Duration

	mu      sync.Mutex
	workers []*worker
	tested  map[string][]time.Time // the last tests, as many as are counted
	stamp   os.FileInfo
	parts   *part.Register
	file    *part.Part
}

// New makes a notifier for a file, which may come and change later. parts is told of the file and
// of each target.
func New(path string, parts *part.Register) *Notifier {
	return &Notifier{path: path, backoff: backoff, parts: parts, tested: map[string][]time.Time{},
		file: parts.Begin(part.File, path, "")}
}

// Run tells of the events that watch sends until ctx ends, of those before it too.
func (n *Notifier) Run(ctx context.Context,
	watch func(ctx context.Context, after uint64, send func(uint64, *pubsub.Event) error)) {
	n.look(ctx)
	go func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				n.look(ctx)
			}
		}
	}()
	// What has failed while the agent began is told too: all that there was.
	watch(ctx, math.MaxUint64, func(_ uint64, e *pubsub.Event) error {
		n.give(e)
		return nil
	})
}

func (n *Notifier) give(e *pubsub.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.workers {
		w.offer(e)
	}
}

// look reads the file anew where it has changed. Targets that stay go on as they were.
func (n *Notifier) look(ctx context.Context) {
	st, err := os.Stat(n.path)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		st = nil
	}
	for _, w := range n.workers {
		w.look()
	}
	if st == nil && n.stamp == nil {
		n.file.Works()
		return
	}
	if st != nil && n.stamp != nil && os.SameFile(st, n.stamp) &&
		st.ModTime().Equal(n.stamp.ModTime()) {
		return
	}
	all, err := decode(n.path)
	if err != nil {
		n.file.Fails(part.Do(fmt.Errorf("%w; whom it named before goes on to be notified", err),
			"mend it, or remove it and name the targets again: levee agent notify add"))
		return
	}
	n.file.Works()
	n.stamp = st
	var next []*worker
	for i := range all {
		at := slices.IndexFunc(n.workers, func(w *worker) bool {
			return reflect.DeepEqual(w.target, all[i])
		})
		if at >= 0 {
			next = append(next, n.workers[at])
			continue
		}
		w := &worker{target: all[i], events: make(chan pubsub.Event, queued), n: n, fresh: true,
			part: n.parts.Begin(part.Notification, all[i].Name, "")}
		var own context.Context
		own, w.stop = context.WithCancel(ctx)
		w.look()
		go func() {
			w.part.Run(own, w.run)
			w.part.End()
		}()
		next = append(next, w)
	}
	for _, w := range n.workers {
		if !slices.Contains(next, w) {
			w.stop()
		}
	}
	n.workers = next
}

// Status returns what became of messages, by target.
func (n *Notifier) Status() []Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := []Status{}
	for _, w := range n.workers {
		out = append(out, w.status())
	}
	return out
}

// Hosts returns the servers of the targets, by name.
func (n *Notifier) Hosts() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]string{}
	for _, w := range n.workers {
		if by, err := w.target.way(); err == nil && by.Host != nil {
			if host := by.Host(&w.target.Place); host != "" {
				out[w.target.Name] = host
			}
		}
	}
	return out
}

// worker tells one target.
type worker struct {
	target Target
	events chan pubsub.Event
	stop   func()
	n      *Notifier
	part   *part.Part

	// of the notifier alone
	wrong bool // it may not be told
	fresh bool // nobody has looked at it

	mu    sync.Mutex
	state Status
	lost  int // since the last message

	// of the goroutine alone
	sent  []time.Time // the last messages, as many as the limit counts
	held  map[pubsub.Kind]int
	first []string
}

func (w *worker) status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.target.Status()
	s.Sent, s.Failed, s.Held, s.Lost, s.Error = w.state.Sent, w.state.Failed, w.state.Held,
		w.state.Lost, w.state.Error
	return s
}

// Status returns the status of a target that was told nothing yet, without what may be secret.
func (t *Target) Status() (s Status) {
	s.Name, s.Way, s.To, s.Limit = t.Name, t.Way, t.Where(), t.Limit.String()
	s.On = []string{}
	for _, k := range t.On {
		s.On = append(s.On, string(k))
	}
	return s
}

// offer queues an event that the target asks for, and waits for nobody.
func (w *worker) offer(e *pubsub.Event) {
	lost := 0
	switch {
	case e.Kind == pubsub.Lost:
		lost = e.Count
	case !w.target.asks(e.Kind):
		return
	default:
		select {
		case w.events <- *e:
			return
		default:
			lost = 1
		}
	}
	w.mu.Lock()
	w.lost += lost
	w.state.Lost += uint64(lost)
	w.mu.Unlock()
}

// asks tells whether a target is told of a kind. Who hears an alarm hears when it is over.
func (t *Target) asks(k pubsub.Kind) bool {
	if k == pubsub.Recovered {
		k = pubsub.Alarm
	}
	return slices.Contains(t.On, k)
}

// next returns how long it takes until the limit allows another message; 0: now.
func (w *worker) next(now time.Time) time.Duration {
	l := w.target.Limit
	if l.Most < 1 || len(w.sent) < l.Most {
		return 0
	}
	return max(0, w.sent[len(w.sent)-l.Most].Add(l.Per).Sub(now))
}

// look tells what is known before anything is sent: whether the target is one that may be told.
func (w *worker) look() {
	err := w.target.Check()
	switch {
	case err != nil:
		w.fails(err)
	case w.wrong || w.fresh:
		w.part.Works()
	}
	w.wrong, w.fresh = err != nil, false
}

func (w *worker) fails(err error) {
	w.part.Fails(part.Do(err, "levee agent notify test "+w.target.Name+" tries it; levee agent "+
		"notify list shows all"))
}

// run tells the target until ctx ends.
func (w *worker) run(ctx context.Context) error {
	summary := time.NewTimer(time.Hour)
	summary.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-summary.C:
			w.summarise(ctx)
		case e := <-w.events:
			wait := w.next(time.Now())
			if wait == 0 && len(w.held) == 0 {
				w.tell(ctx, messageOf(&e))
				continue
			}
			w.hold(&e)
			summary.Reset(wait)
		}
	}
}

func messageOf(e *pubsub.Event) *Message {
	m := way.NewMessage(e.Kind, e.Text, e.At.UTC())
	m.Event = &way.Event{Set: e.Set, Origin: e.Origin, Entry: e.Entry, Incident: e.Incident,
		Part: e.Part, Count: e.Count}
	return m
}

func (w *worker) hold(e *pubsub.Event) {
	if w.held == nil {
		w.held = map[pubsub.Kind]int{}
	}
	w.held[e.Kind]++
	if len(w.first) < firsts {
		w.first = append(w.first, e.Text)
	}
	w.mu.Lock()
	w.state.Held++
	w.mu.Unlock()
}

// summarise tells what the limit has held back.
func (w *worker) summarise(ctx context.Context) {
	var parts []string
	total := 0
	for _, k := range append(slices.Clip(Kinds), pubsub.Recovered) {
		if n := w.held[k]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, k))
			total += n
		}
	}
	m := way.NewMessage(way.Summary, fmt.Sprintf(
		"%d events were held back by the limit of %s: %s", total,
		w.target.Limit, strings.Join(parts, ", ")), time.Now().UTC())
	m.Held, m.First = w.held, w.first
	w.held, w.first = nil, nil
	w.tell(ctx, m)
}

// tell sends a message, and tries again where that may help.
func (w *worker) tell(ctx context.Context, m *Message) {
	w.mu.Lock()
	m.Lost, w.lost = w.lost, 0
	w.mu.Unlock()
	w.sent = append(w.sent, time.Now())
	w.sent = w.sent[max(0, len(w.sent)-w.target.Limit.Most):]
	var err error
	for try := 0; ; try++ {
		if err = w.target.Check(); err != nil {
			break
		}
		if err = w.target.Send(ctx, m); err == nil || errors.As(err, new(way.Permanent)) ||
			try == len(w.n.backoff) {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(w.n.backoff[try]):
		}
	}
	w.told(m, err)
}

// told notes what became of a message.
func (w *worker) told(m *Message, err error) {
	w.mu.Lock()
	if err == nil {
		w.state.Sent++
		w.state.Error = ""
	} else {
		w.state.Failed++
		w.state.Error = err.Error()
	}
	w.mu.Unlock()
	if err == nil {
		w.part.Saw(time.Now(), "a message about "+string(m.Kind))
	} else {
		w.fails(err)
	}
}

// Tests are for somebody who looks at what comes of each. Who may ask for one could hold up what is
// told, or have a command begin without end.
const (
	mostTests   = 5
	testsWithin = time.Minute
)

// ErrTested is returned for one test too many.
var ErrTested = fmt.Errorf("it had %d tests within a minute: try again in a minute", mostTests)

// begins notes a test of a target, if another may begin.
func (n *Notifier) begins(name string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	last := slices.DeleteFunc(n.tested[name], func(t time.Time) bool {
		return now.Sub(t) >= testsWithin
	})
	may := len(last) < mostTests
	if may {
		last = append(last, now)
	}
	n.tested[name] = last
	return may
}

// Test sends a message to a target as the file has it now, which its limit does not count, and
// returns why it was not taken.
func (n *Notifier) Test(ctx context.Context, name string) error {
	all, err := decode(n.path)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(t Target) bool { return t.Name == name })
	if at < 0 {
		return ErrNoTarget
	}
	if !n.begins(name, time.Now()) {
		return ErrTested
	}
	m := NewTest()
	if err = all[at].Check(); err == nil {
		err = all[at].Send(ctx, m)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.workers { // none yet, if the file is new
		if reflect.DeepEqual(w.target, all[at]) {
			w.told(m, err)
		}
	}
	return err
}
