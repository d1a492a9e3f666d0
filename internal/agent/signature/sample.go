package signature

import (
	"errors"
	"io"
	"math/rand/v2"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Most limits the packets of a sample by default.
const Most = 100_000

const (
	// headers is the largest size of headers of a packet that is kept, in bytes: eight tags, labels
	// and extension headers of usual size fit.
	headers = 448
	// body is the number of bytes behind the headers that are kept. Fixed bytes of floods stand in
	// front.
	body = 64
)

// seed of the drawing of samples and of nothing else: the same packets give the same sample.
const seed = 20261124

// Sample is a bounded number of packets, drawn evenly from all that are added. Of each the headers
// and the first bytes behind them are kept; for the rest stand zeros when it is judged.
type Sample struct {
	link   packet.Link
	body   int
	most   int
	rnd    *rand.Rand
	frames []frame
	seen   int  // packets that were added
	blind  bool // of some nobody knows what passed them
	left   int  // of them, left out for their headers
}

// frame is a packet of a sample.
type frame struct {
	head   []byte
	length int
	by     string // the ID of the slot that passed it; "": nobody knows
}

// NewSample makes an empty sample of packets of a link layer that holds up to most, or Most for 0.
// The policy, which may be nil, is the one of Limits: bytes that its rules look at are kept.
func NewSample(link packet.Link, p *policy.Policy, most int) *Sample {
	if most <= 0 {
		most = Most
	}
	s := &Sample{link: link, body: body, most: most, rnd: rand.New(rand.NewPCG(seed, 0))}
	if p == nil {
		return s
	}
	for _, list := range [][]*policy.Rule{p.Protect, p.Rules} {
		for _, r := range list {
			for i := range r.Match {
				if t := &r.Match[i]; t.Field == field.Payload {
					s.body = max(s.body, 8+t.Bytes.At+len(t.Bytes.Value))
				}
			}
		}
	}
	return s
}

// Add adds a frame at its length on the wire (packet.Record.Whole). At its end as many bytes as are
// missing were not captured, and are zero. It keeps no part of b.
func (s *Sample) Add(b []byte, missing int) { s.AddPassed(b, missing, "") }

// AddPassed is Add for a packet that a slot has passed: by is its ID in policy.Slots, or Unsaid.
func (s *Sample) AddPassed(b []byte, missing int, by string) {
	s.seen++
	s.blind = s.blind || by == ""
	var pkt packet.Packet
	length := len(b)
	s.link.Decode(b, &pkt)
	at := max(pkt.NetworkOffset, pkt.TransportOffset)
	if at > headers || pkt.ExtensionHeaders > 0 && pkt.TransportOffset == 0 {
		s.left++
		return
	}
	// 20 bytes of TCP stand behind the offset too, and body counts from there for all alike
	keep := min(len(b)-missing, max(at+20+s.body, headers/2))
	place := len(s.frames)
	if place >= s.most {
		if place = s.rnd.IntN(s.seen - s.left); place >= s.most {
			return
		}
		old := &s.frames[place]
		old.head, old.length, old.by = append(old.head[:0], b[:keep]...), length, by
		return
	}
	s.frames = append(s.frames, frame{append([]byte(nil), b[:keep]...), length, by})
}

// AddAll looks at what next gives until io.EOF: a frame, and how many bytes of it are missing. It
// leaves out packets that the link layer cannot have, and counts them.
func (s *Sample) AddAll(next func() (frame []byte, missing int, err error)) (other int, err error) {
	for {
		frame, missing, err := next()
		if err == io.EOF {
			return other, nil
		}
		if err == nil {
			frame, err = s.link.Carry(frame)
		}
		switch {
		case errors.Is(err, packet.ErrNotL3):
			other++
		case err != nil:
			return other, err
		default:
			s.Add(frame, missing)
		}
	}
}

// Seen counts the packets that were added, Len those that are held, and LeftOut those with headers
// that are too long to be held.
func (s *Sample) Seen() int    { return s.seen }
func (s *Sample) Len() int     { return len(s.frames) }
func (s *Sample) LeftOut() int { return s.left }

// each gives the frames of some places, each at its length on the wire. A frame is valid until the
// next one.
func (s *Sample) each(places []int, look func(n int, b []byte)) {
	var buf []byte
	for n, at := range places {
		f := &s.frames[at]
		if cap(buf) < f.length {
			buf = make([]byte, f.length, max(f.length, 4096))
		}
		b := buf[:f.length]
		copy(b, f.head)
		look(n, b)
		clear(b[:len(f.head)]) // the rest is zero from the beginning
	}
}

// all returns the places of a sample.
func (s *Sample) all() []int {
	places := make([]int, len(s.frames))
	for i := range places {
		places[i] = i
	}
	return places
}

// evenly picks at most n of some places, as far from each other as can be.
func evenly(places []int, n int) []int {
	if len(places) <= n {
		return places
	}
	out := make([]int, n)
	for i := range out {
		out[i] = places[i*len(places)/n]
	}
	return out
}

// Link returns the link layer of the packets.
func (s *Sample) Link() packet.Link { return s.link }

// Each gives the packets that are held, each at its length on the wire. A frame is valid until the
// next one.
func (s *Sample) Each(look func(b []byte)) {
	s.each(s.all(), func(_ int, b []byte) { look(b) })
}
