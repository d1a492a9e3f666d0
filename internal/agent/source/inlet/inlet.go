// Package inlet has what all places of events have in common: a row each, with its words in a
// policy and who reads there, and a queue between goroutines and the loop of the agent.
//
// In goes a place and a position, out come lines, each bounded, and the next position. Whoever uses
// it asks again and again, from one goroutine; an inlet never holds that up. What comes from others
// is hostile: its memory is bounded. It judges no line, and knows no policy.
package inlet

import (
	"net/netip"
	"slices"
)

// Row is a kind of place from which events come.
type Row struct {
	Name    string   // its word in a policy
	Others  []string // what others call it
	At      Value    // what stands behind the word
	Options []Option // what stands behind that, in this order
	// Check calls wrong for each error in a place. of is the word at fault: an option, the word of
	// the row, or "" for the value behind it; %q in the text is its value. A nil Check accepts
	// every place.
	Check func(p *Place, wrong func(of, hint, text string))
	// Format is that of all its events; "": a policy says it.
	Format string
	// Flows are the protocols and the ports whose flows are read unless terms of a match behind At
	// name some of the former or other ports; nil: nothing of flows is read, and no match stands
	// there.
	Flows func(at string) (protos []uint8, ports []uint16)
	// Proof says where a `prove` for datagrams that are read is written down: words of a hint,
	// behind "as". A row has it whose Flows may be of UDP.
	Proof func(at string) string
	// Fields are those that events of a place may have; nil: all of the format.
	Fields func(at string) []string
	// ByFormat is that what is read depends on the format of the events.
	ByFormat bool
	// Alone is that each source reads by itself, from a position of its own. Without it all sources
	// of one place share what comes.
	Alone bool
	// Server is the host of another machine that is asked; nil: none is.
	Server func(*Place) string
	// Advise returns the way out where nothing can be read; "": nobody knows one.
	Advise func(*Place, error) string
	// Open begins to read.
	Open func(*Place, Opening) (Inlet, error)
}

// Value is a text of a place.
type Value struct {
	What string // what it is, in errors
	Form string // an example, with the word in front of it
	Path bool   // it is the whole path of a file
	// Words is one of which it is, without quotes; nil: it is any text.
	Words []string
}

// Option is a text behind a word of its own.
type Option struct {
	Word string
	Value
	Required bool
}

// Place is a place from which events of a source come.
type Place struct {
	Input   string            // the name of its row
	At      string            // what stands behind the word: a path, an address, a unit
	Options map[string]string // what stands behind other words
	Format  string            // of the events: eve, json or lines
	Match   string            // of flows, as it is printed; "": those to the ports of their kind
	Flows   Flows             // what that means
}

// Flows are those that are read.
type Flows struct {
	Protos   []uint8        // one of them
	Ports    []Ports        // of the destination; one of them
	From, To []netip.Prefix // of the addresses; nil: all
}

// Ports are those from the first to the last.
type Ports struct{ First, Last uint16 }

// Want says whether a flow between two addresses is read.
func (f *Flows) Want(proto uint8, src, dst netip.AddrPort) bool {
	return slices.Contains(f.Protos, proto) &&
		within(f.From, src.Addr()) && within(f.To, dst.Addr()) &&
		slices.ContainsFunc(f.Ports, func(p Ports) bool {
			return p.First <= dst.Port() && dst.Port() <= p.Last
		})
}

func within(all []netip.Prefix, a netip.Addr) bool {
	return all == nil || slices.ContainsFunc(all, func(p netip.Prefix) bool {
		return p.Contains(a)
	})
}

// The formats of events.
const (
	EVE   = "eve"   // JSON objects with the fields of a table
	JSON  = "json"  // JSON objects with any fields
	Lines = "lines" // lines of text
)

// Inlet is one place that is read.
type Inlet interface {
	// Poll hands on lines that have come, until about most bytes; more says that there are others.
	// A line is valid until line returns.
	Poll(most int64, line func([]byte)) (more bool, err error)
	// Renewal numbers the files or other places that the lines came from, from 0: a new one may
	// repeat lines that were read before.
	Renewal() uint64
	// Position is up to where lines were handed on, nil where nothing can be had again.
	Position() []byte
	// Kept says that what was handed on is on the disk, with the position.
	Kept()
	// State returns the counts of the inlet, and its notes. Notes are told once.
	State() State
	Close()
}

// State counts the lines of an inlet, and how far it is behind.
type State struct {
	TooLong   uint64 // lines that were skipped
	Rotations uint64 // of a file
	LagBytes  int64  // that have come and were not handed on, where bytes are known
	LagLines  int64  // the same in lines
	Peers     int    // that are connected
	Flows     uint64 // that were read, of a stream
	Unknown   uint64 // of these could not be read, or are no such stream
	Lost      uint64 // packets of flows that there was no room for
	Notes     []string
	Waits     error // why nothing can come yet, though nothing has failed
}

// Opening has the arguments for opening an inlet.
type Opening struct {
	Position  []byte // that Position has given, or nil
	FromStart bool   // read a file that is new from its beginning
	// Streams opens what is read of flows; nil: nobody reads any.
	Streams func(*Place) (Inlet, error)
}
