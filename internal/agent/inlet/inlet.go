// Package inlet gives the agent the lines of its sources, wherever they come from: files, unix
// sockets, a list of Redis', the journal.
//
// In goes a source of a policy and a position, out come lines, each bounded, and the next position.
// Whoever uses it asks again and again, from one goroutine; an inlet never holds that up. What
// comes
// from a socket is hostile: its memory is bounded. It judges no line.
package inlet

import (
	"levee/internal/agent/follow"
	"levee/internal/lang/policy"
)

// Inlet is one place that lines come from.
type Inlet interface {
	// Poll hands on lines that have come, until about most bytes; more says that there are others.
	// A line is valid until line returns.
	Poll(most int64, line func([]byte)) (more bool, err error)
	// Renewal is which place the line is of that is handed on, counted from 0, where such may hold
	// again what was read before.
	Renewal() uint64
	// Position is up to where lines were handed on, nil where nothing can be had again.
	Position() []byte
	// Kept says that what was handed on is on the disk, with the position.
	Kept()
	// State is what there is to tell. Notes are told once.
	State() State
	Close()
}

// State is what there is to tell of an inlet.
type State struct {
	TooLong   uint64 // lines that were skipped
	Rotations uint64 // of a file
	LagBytes  int64  // that have come and were not handed on, where bytes are known
	LagLines  int64  // the same in lines
	Peers     int    // that are connected
	Notes     []string
	Waits     error // why nothing can come yet, though nothing has failed
}

// Options are what an inlet is opened with.
type Options struct {
	Position  []byte // that Position has given, or nil
	FromStart bool   // read a file that is new from its beginning
}

// Open opens the inlet of a source.
func Open(s *policy.Source, o Options) (Inlet, error) {
	switch s.Input {
	case policy.FromUnixStream, policy.FromUnixDgram:
		return listen(s.Path, s.Input == policy.FromUnixDgram)
	case policy.FromRedis:
		return newRedis(s, redisWait), nil
	case policy.FromJournal:
		return newJournal(s, o.Position), nil
	}
	f, err := follow.New(s.Path, o.Position, o.FromStart)
	if err != nil {
		return nil, err
	}
	return &file{f}, nil
}

// file is one that is followed.
type file struct{ *follow.Follower }

func (f *file) Kept() {}

func (f *file) State() State {
	s := State{TooLong: f.TooLong, Rotations: f.Rotations, LagBytes: f.Lag(), Notes: f.Notes,
		Waits: f.Missing}
	f.Notes = nil
	return s
}
