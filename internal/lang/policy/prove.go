package policy

import (
	"math/bits"

	"levee/internal/lang/field"
)

// Prove is one `prove` statement: bytes of a reply over UDP that its client sends back. Who has
// them has received the reply, and so sends from his own address and port.
type Prove struct {
	Name  string
	Ports []field.Range // of the service: sorted, disjoint, not adjacent
	Reply []Reply       // that replies have to match
	Bytes int           // how many come back, LeastEcho to MostEcho
	At    int           // where replies have them, behind the UDP header
	In    []int         // where packets of clients may have them
	Text  string        // canonical
	Pos   Pos
}

// ProvedByCookie is the name under which what cookies for A2S ask for is counted; no statement has
// it.
const ProvedByCookie = "cookie a2s"

// Reply holds bytes that a reply has to have, or must not have, at a place.
type Reply struct {
	*Bytes
	Not bool // it has other bytes there
}

// MostDiffering is the greatest length in bytes of a `not` term of `prove`: a reply counts if its
// bytes at that place differ.
const MostDiffering = 8

// Bounds of `prove`. What fewer bytes hold can be guessed: see docs/reference/proofs.md "Proof by
// echo".
const (
	MaxProves   = 16
	LeastEcho   = 4
	MostEcho    = 20
	MaxEchoes   = 4 // places in packets of clients
	MaxServices = 8 // ranges of ports
	MaxReply    = 4 // terms that replies have to match
)

// FreeBits returns how many bits of the bytes that come back the reply's terms leave open.
func (p *Prove) FreeBits() int {
	known := make([]byte, p.Bytes)
	for _, b := range p.Reply {
		if b.Not {
			continue
		}
		for i, m := range b.Mask {
			if at := b.At + i - p.At; at >= 0 && at < len(known) {
				known[at] |= m
			}
		}
	}
	free := 8 * p.Bytes
	for _, k := range known {
		free -= bits.OnesCount8(k)
	}
	return free
}
