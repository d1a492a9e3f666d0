// Package live has the kernel follow the MPEG transport streams that come to an interface. In go an
// interface and what is followed, out come streams and their counters. The program lets every
// packet go on, unless it is told that they are copies; it and its maps go with the process.
//
// The package must never pin anything, take the place of another program, or hold up a packet.
package live

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/filter/assembler"
	"levee/internal/monitor/mpegts"
)

//go:generate ../../../../bpf/compile -type mpegts_key -type mpegts_group -type mpegts_pids -type mpegts_flow -type mpegts_totals follow ../../../../bpf/mpegts.bpf.c

// Options say what is followed, and how.
type Options struct {
	// Groups are the destinations of streams that are followed; port 0 is every port. None: all
	// are.
	Groups  []netip.AddrPort
	Streams int           // at most; 28 KB each
	Window  time.Duration // of the delay factor
	Silence time.Duration // a pause of so long is one in which nothing came
	Rate    float64       // media rate of every stream in bits a second; 0: by PCR or arrival
	Discard bool          // with XDP: datagrams of streams go no further
}

// Bounds of options.
const (
	MostStreams = 16 << 10
	MostGroups  = 4096
)

// spec returns the program for a hook, with maps of their sizes.
func spec(o *Options, xdp, ether bool) (*ebpf.CollectionSpec, *ebpf.ProgramSpec, error) {
	s, err := loadFollow()
	if err != nil {
		return nil, nil, fmt.Errorf("read the program that follows streams: %w", err)
	}
	p, other := followProgMpegtsTc, followProgMpegtsXdp
	if xdp {
		p, other = other, p
	}
	delete(s.Programs, other)
	prog := s.Programs[p]
	if prog.AttachType = ebpf.AttachTCXIngress; xdp {
		prog.AttachType = ebpf.AttachXDP
		prog.Flags |= unix.BPF_F_XDP_HAS_FRAGS
	}
	prog.Instructions = assembler.Older(prog.Instructions)
	for _, name := range []string{followMapStreams, followMapPlaces, followMapFlows,
		followMapPids} {
		s.Maps[name].MaxEntries = uint32(o.Streams)
	}
	s.Maps[followMapGroups].MaxEntries = uint32(max(1, len(o.Groups)))
	values := map[string]any{followVarEther: number(ether),
		followVarChosen: number(o.Groups != nil), followVarDiscard: number(o.Discard),
		followVarWindow:  uint64(o.Window),
		followVarSilence: uint64(o.Silence), followVarGivenByteTime: byteTime(o.Rate)}
	for name, v := range values {
		if err := s.Variables[name].Set(v); err != nil {
			return nil, nil, fmt.Errorf("set up the program that follows streams: %w", err)
		}
	}
	return s, prog, nil
}

func number(is bool) uint32 {
	if is {
		return 1
	}
	return 0
}

// byteTime is ns for a byte, times 2^16, at so many bits a second.
func byteTime(rate float64) uint64 {
	if rate == 0 {
		return 0
	}
	return uint64(8e9 * (1 << 16) / rate)
}

// fill says which groups are followed, and that all places are free.
func fill(c *ebpf.Collection, o *Options) error {
	for i := range uint32(o.Streams) {
		if err := c.Maps[followMapPlaces].Put(nil, i); err != nil {
			return fmt.Errorf("make room for streams: %w", err)
		}
	}
	for _, g := range o.Groups {
		k := followMpegtsGroup{Port: wire(g.Port())}
		k.Dst, k.Six = address(g.Addr())
		if err := c.Maps[followMapGroups].Put(k, uint8(1)); err != nil {
			return fmt.Errorf("name the group %s: %w", g, err)
		}
	}
	return nil
}

// wire returns a port as it is on the wire.
func wire(port uint16) uint16 { return port<<8 | port>>8 }

// address is one as keys have it.
func address(a netip.Addr) (b [16]byte, six uint16) {
	if a.Is4() {
		copy(b[:], a.AsSlice())
		return b, 0
	}
	return a.As16(), 1
}

func addressOf(b [16]byte, six bool) netip.Addr {
	if six {
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte(b[:4]))
}

// flowOf returns the flow of a key.
func flowOf(k *followMpegtsKey) mpegts.Flow {
	at := func(b [16]byte, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(addressOf(b, k.Six != 0), wire(port))
	}
	return mpegts.Flow{Src: at(k.Src, k.SrcPort), Dst: at(k.Dst, k.DstPort), VLAN: k.Vlan,
		InnerVLAN: k.InnerVlan}
}

// streamOf returns a stream as the program has counted it, without its PIDs.
func streamOf(k *followMpegtsKey, f *followMpegtsFlow) mpegts.Stream {
	s := mpegts.Stream{Flow: flowOf(k), RTP: f.Rtp != 0, PayloadType: f.Type, SSRC: f.Ssrc,
		First: time.Duration(f.First), Last: time.Duration(f.Last), Datagrams: f.Datagrams,
		Counts: mpegts.Counts{Packets: f.Packets, Discontinuities: f.Discontinuities,
			Missing: f.Missing, Duplicates: f.Duplicates, Declared: f.Declared,
			Scrambled: f.Scrambled, Errors: f.Errors},
		Nulls: f.Nulls, Unsynced: f.Unsynced, Unfollowed: f.Unfollowed, RTPLost: f.RtpLost,
		RTPLate: f.RtpLate, RTPRestarts: f.RtpRestarts, Repeated: f.Repeated, Strange: f.Strange,
		Fragments: f.Fragments, Silences: f.Silences, Silent: time.Duration(f.Silent),
		Longest: time.Duration(f.Longest), Delay: time.Duration(f.Delay),
		DelayMost: time.Duration(f.DelayMost), Windows: f.Windows, RateBy: mpegts.Rate(f.RateBy)}
	if f.ByteTime > 0 {
		s.MediaRate = 8e9 * (1 << 16) / float64(f.ByteTime)
	}
	return s
}

// pidsOf returns the PIDs of a stream.
func pidsOf(flow *followMpegtsFlow, p *followMpegtsPids) []mpegts.PID {
	all := make([]mpegts.PID, flow.Pids)
	for i := range all {
		c, f := &p.Pids[i+1], &p.Faults[i+1]
		if i < len(flow.Near) {
			c = &flow.Near[i]
		}
		all[i] = mpegts.PID{PID: c.Pid, Counts: mpegts.Counts{Packets: c.Packets,
			Discontinuities: f.Discontinuities, Missing: f.Missing, Duplicates: f.Duplicates,
			Declared: f.Declared, Scrambled: c.Scrambled, Errors: f.Errors}}
	}
	return all
}
