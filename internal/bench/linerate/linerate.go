// Package linerate converts link speed, frame size, packets a second, time and CPU cycles a packet
// into each other.
//
// In go any two independent quantities, out come all of them. A frame is counted as Ethernet
// standards do (IEEE 802.3, RFC 2544): from the destination address to the end of the frame check
// sequence, 64 to 1518 bytes without a tag. On the wire come 8 bytes of preamble and start
// delimiter in front of it and 12 bytes of gap behind it, so 64 bytes occupy the link for as long
// as 84.
//
// The package is arithmetic alone: it must never touch the machine, and it refuses what no link can
// do rather than rounding it away.
package linerate

import (
	"errors"
	"fmt"
	"math"
)

// Bytes of Ethernet that stand between one packet and the next.
const (
	// 7 preamble, 1 start delimiter, 12 inter-packet gap (IEEE 802.3, 4.2.3.2.2 and 4.4.2)
	Overhead = 20
	FCS      = 4  // frame check sequence, counted in a frame here, and not by Linux
	Header   = 14 // addresses and EtherType

	MinFrame = 64             // with FCS; shorter ones are padded
	MaxFrame = 65535 + 14 + 4 // the largest MTU of Linux
)

// Bounds of what is taken for a quantity and not for a slip of the keyboard.
const (
	maxSpeed = 100e12 // bit/s
	maxRate  = 1e12   // packets/s
	maxTime  = 1e12   // ns
	maxClock = 100    // GHz
	maxCores = 1 << 16
)

// Quantities of packets that follow one another without a pause. Zero is unknown.
type Quantities struct {
	Speed float64 `json:"bits_per_second,omitempty"` // of the link, preamble and gap included
	// with FCS; a fraction where it was computed
	Frame float64 `json:"frame_bytes,omitempty"`
	Rate  float64 `json:"packets_per_second,omitempty"` // of the link
	Time  float64 `json:"ns_per_packet,omitempty"`      // between two packets of the link
	// that all cores together have for a packet
	Cycles float64 `json:"cycles_per_packet,omitempty"`
	Clock  float64 `json:"ghz,omitempty"`   // of a core
	Cores  int     `json:"cores,omitempty"` // that share the packets, 0 for 1
	// Payload is the part of Speed that is left for the bytes from IP on, Wire the share of Speed
	// that frames have.
	Payload float64 `json:"payload_bits_per_second,omitempty"`
	Wire    float64 `json:"frame_share,omitempty"`
}

// errTooFew says that the quantities given determine nothing else.
var errTooFew = errors.New("too few quantities")

// Solve fills in what follows from what is given. The error names quantities that are out of range,
// that contradict each other, or that are missing (errTooFew).
func Solve(q Quantities) (Quantities, error) {
	if err := q.check(); err != nil {
		return q, err
	}
	given := q.count()
	if q.Cores == 0 {
		q.Cores = 1
	}
	if err := q.pace(); err != nil {
		return q, err
	}
	if err := q.derive(); err != nil {
		return q, err
	}
	if err := q.pace(); err != nil { // the rate may have come from the link
		return q, err
	}
	if q.count() == given {
		return q, fmt.Errorf("%w: give two of link speed, frame size and packets a second (or "+
			"ns, or cycles with the clock)", errTooFew)
	}
	if q.Frame > 0 {
		q.Wire = q.Frame / (q.Frame + Overhead)
		if q.Rate > 0 {
			q.Payload = (q.Frame - Header - FCS) * 8 * q.Rate
		}
	}
	if q.Clock == 0 {
		q.Cores = 0 // said nothing about
	}
	return q, nil
}

func (q *Quantities) check() error {
	for _, v := range []struct {
		name      string
		value     float64
		low, most float64
	}{
		{"link speed in bit/s", q.Speed, 1, maxSpeed},
		{"packets a second", q.Rate, 1e-3, maxRate},
		{"ns a packet", q.Time, 1e-3, maxTime},
		{"cycles a packet", q.Cycles, 1e-3, maxTime},
		{"clock in GHz", q.Clock, 1e-3, maxClock},
		{"number of cores", float64(q.Cores), 1, maxCores},
	} {
		if v.value != 0 && !(v.value >= v.low && v.value <= v.most) {
			return fmt.Errorf("%s: %g is not from %g to %g", v.name, v.value, v.low, v.most)
		}
	}
	if q.Frame != 0 && !(q.Frame >= MinFrame && q.Frame <= MaxFrame) {
		return fmt.Errorf("a frame of %g bytes: an Ethernet frame has %d to %d with its check "+
			"sequence of %d, which Linux does not count", q.Frame, MinFrame, MaxFrame, FCS)
	}
	return nil
}

func (q *Quantities) count() int {
	n := 0
	for _, v := range []float64{q.Speed, q.Frame, q.Rate, q.Time, q.Cycles, q.Clock} {
		if v != 0 {
			n++
		}
	}
	return n
}

// pace joins packets a second, ns and cycles.
func (q *Quantities) pace() error {
	cores := float64(q.Cores)
	switch {
	case q.Rate != 0:
		if err := agree("ns a packet", &q.Time, 1e9/q.Rate); err != nil {
			return err
		}
	case q.Time != 0:
		q.Rate = 1e9 / q.Time
	case q.Cycles != 0 && q.Clock != 0:
		q.Time = q.Cycles / (q.Clock * cores)
		q.Rate = 1e9 / q.Time
	}
	switch {
	case q.Time != 0 && q.Clock != 0:
		return agree("cycles a packet", &q.Cycles, q.Time*q.Clock*cores)
	case q.Time != 0 && q.Cycles != 0:
		q.Clock = q.Cycles / (q.Time * cores)
		if q.Clock > maxClock {
			return fmt.Errorf("%g cycles in %g ns are %.4g GHz: no core has more than %d", q.Cycles,
				q.Time, q.Clock, maxClock)
		}
	}
	return nil
}

// derive joins speed, frame and rate.
func (q *Quantities) derive() error {
	switch {
	case q.Speed != 0 && q.Frame != 0:
		return agree("packets a second", &q.Rate, q.Speed/(8*(q.Frame+Overhead)))
	case q.Frame != 0 && q.Rate != 0:
		q.Speed = q.Rate * 8 * (q.Frame + Overhead)
	case q.Speed != 0 && q.Rate != 0:
		q.Frame = q.Speed/(8*q.Rate) - Overhead
		if q.Frame < MinFrame*(1-tolerance) {
			return fmt.Errorf("%.6g packets a second are more than a link of %.4g bit/s carries: "+
				"at %d bytes, the smallest frame, it is %.6g",
				q.Rate, q.Speed, MinFrame, q.Speed/(8*(MinFrame+Overhead)))
		}
		if q.Frame > MaxFrame {
			return fmt.Errorf("%.6g packets a second do not fill a link of %.4g bit/s at any "+
				"frame size: at %d bytes, the largest, %.6g do",
				q.Rate, q.Speed, MaxFrame, q.Speed/(8*(MaxFrame+Overhead)))
		}
		q.Frame = math.Max(q.Frame, MinFrame)
	}
	return nil
}

// tolerance is the largest distance of a given quantity from the computed one: people round to
// three digits.
const tolerance = 0.01

// agree sets a quantity, or checks what was given for it.
func agree(name string, v *float64, computed float64) error {
	if *v != 0 && math.Abs(*v-computed) > tolerance*computed {
		return fmt.Errorf("%s: %.6g was given, but from the other quantities it is %.6g", name, *v,
			computed)
	}
	if *v == 0 {
		*v = computed
	}
	return nil
}
