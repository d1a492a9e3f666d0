package inlet

import "sync"

// QueueBytes limits the bytes of a queue that wait to be read. Whoever writes waits then.
const QueueBytes = 4 << 20

// Queue holds lines between goroutines that read them and the loop that takes them. A position
// stands with the line that it is behind.
type Queue struct {
	mu    sync.Mutex
	room  sync.Cond
	lines []queued
	bytes int
	ended bool
	state State
	err   error // of the last attempt to read
}

type queued struct {
	line     []byte
	position []byte
}

// NewQueue returns an empty one.
func NewQueue() *Queue {
	q := &Queue{}
	q.room.L = &q.mu
	return q
}

// Put appends a copy of a line once there is room, and tells whether the queue still takes any.
func (q *Queue) Put(line, position []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.ended && q.bytes > 0 && q.bytes+len(line) > QueueBytes {
		q.room.Wait()
	}
	if q.ended {
		return false
	}
	q.lines = append(q.lines, queued{append([]byte{}, line...), position})
	q.bytes += len(line) + lineOverhead
	return true
}

// lineOverhead is the memory of a line besides its text, in bytes.
const lineOverhead = 64

// Change changes the state.
func (q *Queue) Change(f func(*State)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f(&q.state)
}

// Fail notes what goes wrong, nil once it does not any more.
func (q *Queue) Fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err, q.state.Waits = err, nil
}

// Note adds a note.
func (q *Queue) Note(text string) {
	q.Change(func(s *State) {
		if len(s.Notes) < 100 {
			s.Notes = append(s.Notes, text)
		}
	})
}

// Poll hands on what has come.
func (q *Queue) Poll(most int64, line func([]byte)) (more bool, err error) {
	_, more, err = q.Take(most, line)
	return more, err
}

// Take is Poll, and the position behind the last line.
func (q *Queue) Take(most int64, line func([]byte)) (position []byte, more bool, err error) {
	q.mu.Lock()
	n := 0
	for ; n < len(q.lines) && most > 0; n++ {
		most -= int64(len(q.lines[n].line)) + 1
	}
	some := q.lines[:n:n]
	q.lines = q.lines[n:]
	if len(q.lines) == 0 {
		q.lines = nil
	}
	for _, l := range some {
		q.bytes -= len(l.line) + lineOverhead
	}
	more, err = len(q.lines) > 0, q.err
	q.room.Broadcast()
	q.mu.Unlock()
	for _, l := range some {
		line(l.line)
		if l.position != nil {
			position = l.position
		}
	}
	return position, more, err
}

// Position returns the position of an inlet that can have nothing again.
func (q *Queue) Position() []byte { return nil }

// Renewal returns 0: nothing comes twice.
func (q *Queue) Renewal() uint64 { return 0 }

// Kept has nothing to do.
func (q *Queue) Kept() {}

// State returns what there is to tell.
func (q *Queue) State() State {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state
	s.LagBytes, s.LagLines = int64(q.bytes-len(q.lines)*lineOverhead), int64(len(q.lines))
	q.state.Notes = nil
	return s
}

// End lets everybody go who waits.
func (q *Queue) End() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.room.Broadcast()
}
