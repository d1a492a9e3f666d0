// Package broadcast makes MPEG transport streams with known faults: frames of UDP, with RTP or
// without, and an account of what whoever follows them has to count. In go how many streams, their
// rate and how often which fault comes; out come frames with their times, and the account.
//
// The account knows which packet each is of those that the sender had, and compares no more than
// that: it shares nothing with what follows streams. The package must never send, nor read a clock.
package broadcast

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"levee/internal/monitor/mpegts"
)

// Fault is a kind of fault of a stream, or of traffic that looks like one.
type Fault string

// Faults.
const (
	Loss      Fault = "loss"      // the network loses one to three datagrams
	Skip      Fault = "skip"      // the sender leaves a packet out
	Duplicate Fault = "duplicate" // a packet comes twice, which is legal
	Triple    Fault = "triple"    // and three times, which is not
	Declared  Fault = "declared"  // a counter jumps, and the stream says so
	Error     Fault = "error"     // a packet has the transport_error_indicator
	Unsynced  Fault = "unsynced"  // a packet has lost its sync byte
	Scrambled Fault = "scrambled" // a packet is scrambled
	Repeat    Fault = "repeat"    // the network brings a datagram twice
	Reorder   Fault = "reorder"   // and two in the other order
	Fragment  Fault = "fragment"  // a datagram comes in two fragments
	Restart   Fault = "restart"   // RTP begins anew, with another source identifier
	Silence   Fault = "silence"   // nothing comes for three times the time that is called silence
)

// Faults are all of them.
var Faults = []Fault{Loss, Skip, Duplicate, Triple, Declared, Error, Unsynced, Scrambled, Repeat,
	Reorder, Fragment, Restart, Silence}

// ParseFaults reads KIND=N: one fault in N datagrams or packets, whichever it is of, on average.
func ParseFaults(words []string) (map[Fault]float64, error) {
	out := map[Fault]float64{}
	for _, w := range words {
		kind, every, ok := strings.Cut(w, "=")
		if !slices.Contains(Faults, Fault(kind)) {
			return nil, fmt.Errorf("%q is no fault: there are %s", kind, names())
		}
		var n int
		if _, err := fmt.Sscanf(every, "%d", &n); !ok || err != nil || n < 2 || n > math.MaxInt32 ||
			fmt.Sprint(n) != every {
			return nil, fmt.Errorf("%q: write %s=1000 for one in 1000, 2 or more", w,
				kind)
		}
		if out[Fault(kind)] != 0 {
			return nil, fmt.Errorf("%s is there twice", kind)
		}
		out[Fault(kind)] = 1 / float64(n)
	}
	return out, nil
}

func names() string {
	var out []string
	for _, f := range Faults {
		out = append(out, string(f))
	}
	return strings.Join(out, ", ")
}

// Config says what is sent.
type Config struct {
	Streams int
	Rate    float64 // bits a second of each stream, of its packets
	// From is the sender; To gets the first stream, and each further one goes to the next
	// address.
	From, To netip.AddrPort
	VLAN     uint16 // 0: none
	RTP      bool
	FEC      bool          // with RTP: parity for 20 datagrams, to the port above the next
	Packets  int           // of a datagram, at most 7; 0 is 7
	Duration time.Duration // after which the streams end
	Silence  time.Duration // what is called silence; 0 is a second
	Seed     uint64
	Faults   map[Fault]float64 // of a datagram or a packet, how likely
}

// Check says what is wrong with it.
func (c *Config) Check() error {
	switch {
	case c.Streams < 1 || c.Streams > MostStreams:
		return fmt.Errorf("%d streams: 1 to %d", c.Streams, MostStreams)
	case !(c.Rate >= 10_000 && c.Rate <= 1e9):
		return errors.New("the rate of a stream is 10k to 1G bits a second")
	case c.Packets < 0 || c.Packets > 7:
		return fmt.Errorf("%d packets in a datagram: 1 to 7", c.Packets)
	case c.Duration <= 0:
		return errors.New("how long the streams last is missing")
	case c.From.Addr().Is4() != c.To.Addr().Is4() || !c.To.IsValid():
		return errors.New("sender and receivers are of one family")
	case c.To.Port() == 0 || c.To.Port() > 65530:
		return errors.New("streams go to a port of 1 to 65530")
	case c.VLAN > 4094:
		return fmt.Errorf("VLAN %d: an id is 1 to 4094", c.VLAN)
	case c.FEC && !c.RTP:
		return errors.New("parity is of RTP: it needs RTP")
	case c.Faults[Restart] > 0 && !c.RTP:
		return errors.New("only RTP can restart: it needs RTP")
	}
	return nil
}

// MostStreams limits those of a sender.
const MostStreams = 10_000

// Frame is an Ethernet frame that is due at a time.
type Frame struct {
	At    time.Duration // since the streams begin
	Bytes []byte        // overwritten by the next
}

// Sender makes the frames of all streams.
type Sender struct {
	Config
	streams []*stream
	period  time.Duration // between two datagrams of a stream
	at, of  int           // the next datagram: its number, and its stream
	out     []Frame       // that wait for Next
	Parity  uint64        // datagrams of it that were sent
	Later   uint64        // fragments that were sent and are not the first of a datagram
	Frames  uint64        // that Next has returned
	Made    map[Fault]uint64
}

// New begins; the configuration has been checked.
func New(c Config) *Sender {
	c.Packets = cmp.Or(c.Packets, 7)
	c.Silence = cmp.Or(c.Silence, time.Second)
	s := &Sender{Config: c, Made: map[Fault]uint64{},
		period: time.Duration(float64(c.Packets*mpegts.Bytes*8) / c.Rate * 1e9)}
	to := c.To.Addr()
	for i := range c.Streams {
		s.streams = append(s.streams, newStream(s, i, netip.AddrPortFrom(to, c.To.Port())))
		to = to.Next()
	}
	return s
}

// Next returns the next frame; the streams end.
func (s *Sender) Next() (Frame, bool) {
	for len(s.out) == 0 {
		at := time.Duration(s.at)*s.period +
			s.period*time.Duration(s.of)/time.Duration(len(s.streams))
		if at >= s.Duration {
			return Frame{}, false
		}
		s.streams[s.of].make(at)
		if s.of++; s.of == len(s.streams) {
			s.of, s.at = 0, s.at+1
		}
	}
	f := s.out[0]
	s.out = s.out[1:]
	s.Frames++
	return f, true
}

// Expected returns what has to be counted of each stream, in the order of flows.
func (s *Sender) Expected() (all []mpegts.Stream) {
	for _, st := range s.streams {
		e := st.expected
		if e.Datagrams == 0 && e.Fragments == 0 {
			continue
		}
		for _, p := range st.pids {
			if p.Packets > 0 && p.number != mpegts.Null {
				e.PIDs = append(e.PIDs, mpegts.PID{PID: p.number, Counts: p.Counts})
			}
		}
		slices.SortFunc(e.PIDs, func(a, b mpegts.PID) int { return int(a.PID) - int(b.PID) })
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b mpegts.Stream) int { return a.Compare(&b.Flow) })
	return all
}

// PIDs of a stream, and how many of 100 packets each has.
var mux = []struct{ pid, share uint16 }{
	{0, 1}, {0x1000, 1}, {0x100, 80}, {0x101, 12}, {mpegts.Null, 6},
}

const (
	pcrPID   = 0x100
	pcrEvery = 30 * time.Millisecond // ISO/IEC 13818-1 allows 100
)
