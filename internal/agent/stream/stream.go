// Package stream reads the first bytes of flows: what a client says before anything else. A
// protocol is a row; its parser is fed in pieces of any size, and gives the same answer however
// they are cut.
//
// In go segments and datagrams as a tap gives them, out come records, JSON objects with the fields
// that Suricata has in EVE. All of it comes from the network and is hostile: segments and datagrams
// are read in their order, a gap ends the flow, and memory is bounded. It opens nothing, and knows
// no policy and no clock.
package stream

import "slices"

// Protocol is an application protocol.
type Protocol struct {
	Name   string
	What   string // is read, in a few words
	Protos []uint8
	Ports  []uint16 // of its servers, unless a source names others
	Fields []string // of its records, besides those of all
	New    func(proto uint8) Parser
	// Initials is that datagrams are read which begin with an Initial of QUIC, and no others.
	Initials bool
	// Proof says where a `prove` for its flows is written down: words of a hint, behind "as". A
	// protocol that is read of datagrams has one.
	Proof string
}

// Transport protocols, as Protos has them.
const (
	TCP = 6
	UDP = 17
)

// Limit bounds the bytes of a flow that are read.
const Limit = 16 << 10

// Answer is a parser's verdict after a piece.
type Answer uint8

const (
	More    Answer = iota // the record is not whole
	Done                  // it is
	Unknown               // this is no such stream, or not one that can be read
)

// Parser reads one direction of a flow.
type Parser interface {
	// Feed reads the next bytes, or the next datagram, and keeps nothing of b. On a stream it is
	// not called again once the answer is another than More. Datagrams may come until the flow is
	// proven: where one of them has the answer Unknown, there is no record.
	Feed(b []byte) Answer
	// End is asked where nothing more comes: whether what was read is a record nonetheless.
	End() bool
	// Record is the members of a record, by their names in EVE.
	Record() map[string]any
	// Held returns the bytes that the parser has kept.
	Held() int
}

// Protocols are the rows.
var Protocols = []*Protocol{&tls, &quic, &dtls, &http, &ssh, &smtp, &dnsRow, &banner}

// Named returns the protocol of a name; nil: there is none.
func Named(name string) *Protocol {
	at := slices.IndexFunc(Protocols, func(k *Protocol) bool { return k.Name == name })
	if at < 0 {
		return nil
	}
	return Protocols[at]
}

// Names returns the names of all protocols.
func Names() (out []string) {
	for _, k := range Protocols {
		out = append(out, k.Name)
	}
	return out
}

// common are the fields of each record.
var common = []string{"timestamp", "event_type", "src_ip", "src_port", "dest_ip", "dest_port",
	"proto", "app_proto", "in_iface"}

// All returns the fields that records of a protocol may have.
func (k *Protocol) All() []string { return slices.Concat(common, k.Fields) }
