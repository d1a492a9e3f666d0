// Package mpegts says what is known of MPEG transport streams that come to an interface: by flow
// and by PID what is discontinuous, missing, repeated, declared, scrambled or damaged, when nothing
// came, and the media delivery index of RFC 4445.
//
// In go streams as they are at one moment; out come reports of two such moments, events and
// metrics. The package must never read a packet, open or load anything, or say of a stream what was
// not counted.
package mpegts

import (
	"cmp"
	"net/netip"
	"time"
)

// Bytes are those of a packet of a stream (H.222.0 2.4.3).
const Bytes = 188

// Null is the PID of packets that fill a stream up.
const Null = 0x1fff

// NoVLAN stands for no VLAN id.
const NoVLAN = 0xffff

// Flow identifies a stream.
type Flow struct {
	Src, Dst netip.AddrPort
	// VLAN is the outermost id, NoVLAN without a tag; InnerVLAN that behind it.
	VLAN, InnerVLAN uint16
}

// Compare orders flows by where they go.
func (f *Flow) Compare(g *Flow) int {
	return cmp.Or(f.Dst.Compare(g.Dst), f.Src.Compare(g.Src), cmp.Compare(f.VLAN, g.VLAN),
		cmp.Compare(f.InnerVLAN, g.InnerVLAN))
}

// Counts are packets of a PID, or of a stream.
type Counts struct {
	Packets uint64 `json:"packets"`
	// Discontinuities are places where the continuity counter is not the one that comes next, and
	// nothing declares it; a packet that comes for the third time is one, too.
	Discontinuities uint64 `json:"discontinuities"`
	// Missing are the packets that the counters skip. These have 4 bits: 16 that are missing in
	// one place look like none, so that it is the least number.
	Missing    uint64 `json:"missing"`
	Duplicates uint64 `json:"duplicates"` // that came again, which a stream may do once
	Declared   uint64 `json:"declared"`   // with a discontinuity_indicator
	Scrambled  uint64 `json:"scrambled"`
	Errors     uint64 `json:"errors"` // with a transport_error_indicator
}

// PID holds the counters of one PID of a stream.
type PID struct {
	PID uint16 `json:"pid"`
	Counts
	Clear bool `json:"-"` // none of those was scrambled that came between two looks
}

// Rate says where a stream's media rate is from.
type Rate uint8

// The source of a media rate.
const (
	RateUnknown Rate = iota
	RateGiven        // the operator gave it
	RatePCR          // by the stream's own clock, between PCRs of the window before
	RateArrival      // by what came in the window before
)

func (r Rate) String() string { return [...]string{"", "given", "pcr", "arrival"}[r&3] }

// Stream holds the counters of a flow, since its first datagram; times are of the monotonic clock.
type Stream struct {
	Flow
	RTP         bool
	PayloadType uint8
	SSRC        uint32
	First, Last time.Duration

	Datagrams  uint64 // that were followed
	Counts            // sums over PIDs, Packets with null packets
	Nulls      uint64 // of packets, with PID Null
	Unsynced   uint64 // packets without a sync byte, which are not in Packets
	Unfollowed uint64 // of packets, of PIDs for which there is no place

	RTPLost     uint64 // sequence numbers that were skipped
	RTPLate     uint64 // datagrams that came later than the next, which are not followed
	RTPRestarts uint64 // sequences that began anew
	Repeated    uint64 // datagrams that had come before, which are not followed
	Strange     uint64 // datagrams that are not of packets of a stream
	Fragments   uint64 // first fragments of datagrams: what is in them is not followed

	Silences uint64        // pauses of at least the time that was asked for
	Silent   time.Duration // of these
	Longest  time.Duration // pause of any length

	// Delay is the delay factor of the last whole window, Most of any; of no window, there is none.
	Delay, DelayMost time.Duration
	Windows          uint64
	// MediaRate is in bits a second, 0 while it is not known.
	MediaRate float64
	RateBy    Rate

	PIDs []PID // in order
}

// Totals are of no stream that is known.
type Totals struct {
	FEC       uint64 `json:"fec"`             // datagrams with parity of others
	Fragments uint64 `json:"later_fragments"` // of UDP, that are not the first of a datagram
	Unplaced  uint64 `json:"unplaced"`        // datagrams of streams beyond the most
}
