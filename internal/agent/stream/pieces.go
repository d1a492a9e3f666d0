package stream

import (
	"bytes"
	"slices"
)

const (
	mostPieces = 128 // of a message
	pieceBytes = 64  // that a piece takes besides its own
)

// pieces are parts of a message that come in any order, some of them twice: in their order, apart
// from each other or side by side.
type pieces struct {
	all  []piece
	held int // bytes of all
}

type piece struct {
	at   int
	data []byte
}

// bytes returns how many bytes of memory the pieces take.
func (p *pieces) bytes() int { return p.held + len(p.all)*pieceBytes }

// add keeps a part that begins at a byte of the message. It returns whether the part agrees with
// what was there, and there is room.
func (p *pieces) add(at int, data []byte) bool {
	if at+len(data) > Limit {
		return false
	}
	for i := 0; i < len(p.all) && len(data) > 0; i++ {
		of := &p.all[i]
		if end := of.at + len(of.data); at >= end {
			continue
		}
		if at < of.at {
			n := min(len(data), of.at-at)
			p.all = slices.Insert(p.all, i, piece{at, bytes.Clone(data[:n])})
			p.held += n
			at, data = at+n, data[n:]
			continue
		}
		n := min(len(data), of.at+len(of.data)-at)
		if !bytes.Equal(data[:n], of.data[at-of.at:at-of.at+n]) {
			return false
		}
		at, data = at+n, data[n:]
	}
	if len(data) > 0 {
		p.all = append(p.all, piece{at, bytes.Clone(data)})
		p.held += len(data)
	}
	return len(p.all) <= mostPieces
}

// front returns the message up to the first byte that has not come.
func (p *pieces) front() (got []byte) {
	for _, of := range p.all {
		if of.at != len(got) {
			break
		}
		got = append(got, of.data...)
	}
	return got
}
