package live

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/store"
	"levee/internal/filter/assembler"
	"levee/internal/kernel"
	"levee/internal/lab/broadcast"
	"levee/internal/monitor/mpegts"
	"levee/internal/monitor/mpegts/oracle"
)

// runner is the program with a clock of its own, which frames are given to one by one.
type runner struct {
	*maps
	clock *uint64
	xdp   bool
}

func newRunner(t testing.TB, o *Options, xdp bool) *runner {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loads a program: needs root")
	}
	if !xdp {
		if err := kernel.TCX.Check(); errors.Is(err, ebpf.ErrNotSupported) {
			t.Skip(err)
		}
	}
	s, prog, err := spec(o, xdp, true)
	if err != nil {
		t.Fatal(err)
	}
	s.Maps["clock"] = &ebpf.MapSpec{Name: "clock", Type: ebpf.Array, KeySize: 4, ValueSize: 8,
		MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE}
	prog.Instructions, err = assembler.Replace(prog.Instructions, "now", asm.Instructions{
		asm.Mov.Imm(asm.R0, 0), // takes the place of the function's name
		asm.LoadMapValue(asm.R0, 0, 0).WithReference("clock"),
		asm.LoadMem(asm.R0, asm.R0, 0, asm.DWord),
		asm.Return(),
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollection(s)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(c.Close)
	if err := fill(c, o); err != nil {
		t.Fatal(err)
	}
	memory, err := store.MapMemory(c.Maps["clock"], 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	return &runner{&maps{Collection: c, program: c.Programs[prog.Name]},
		(*uint64)(unsafe.Pointer(&memory[0])), xdp}
}

func (r *runner) frame(t testing.TB, at time.Duration, frame []byte) (code uint32) {
	t.Helper()
	atomic.StoreUint64(r.clock, uint64(at))
	code, err := r.program.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// epoch is the time at which streams begin: a time of 0 is that of none.
const epoch = time.Hour

var faults = map[broadcast.Fault]float64{broadcast.Loss: .01, broadcast.Skip: .001,
	broadcast.Duplicate: .002, broadcast.Triple: .001, broadcast.Declared: .001,
	broadcast.Error: .001, broadcast.Unsynced: .001, broadcast.Scrambled: .01,
	broadcast.Repeat: .005, broadcast.Reorder: .005, broadcast.Fragment: .002,
	broadcast.Silence: .001}

func sending(rtp, six bool, seed uint64) broadcast.Config {
	c := broadcast.Config{Streams: 4, Rate: 1e6, RTP: rtp, FEC: rtp, Duration: 30 * time.Second,
		Seed: seed, Faults: map[broadcast.Fault]float64{},
		From: netip.MustParseAddrPort("192.0.2.1:5000"),
		To:   netip.MustParseAddrPort("239.1.1.1:5004")}
	for f, p := range faults {
		c.Faults[f] = p
	}
	if rtp {
		c.Faults[broadcast.Restart] = .002
	}
	if six {
		c.From = netip.MustParseAddrPort("[2001:db8::1]:5000")
		c.To = netip.MustParseAddrPort("[ff3e::8000:1]:5004")
		c.VLAN = 7
	}
	return c
}

var options = Options{Streams: 64, Window: time.Second, Silence: time.Second}

// exact leaves out the fields that not all three count; the delay factor is compared by itself.
var exact = cmp.Options{cmpopts.IgnoreFields(mpegts.Stream{}, "First", "Last", "PayloadType",
	"SSRC", "Delay", "DelayMost", "Windows", "MediaRate", "RateBy"),
	cmpopts.IgnoreFields(mpegts.PID{}, "Clear"), cmpopts.EquateEmpty(),
	cmpopts.EquateComparable(netip.AddrPort{})}

// TestEachFaultIsCountedAndNoneInvented: what the sender knows that it did, what the oracle makes
// of the frames and what the program has counted are the same.
func TestEachFaultIsCountedAndNoneInvented(t *testing.T) {
	for _, c := range []struct {
		name          string
		rtp, six, xdp bool
	}{
		{"udp at xdp", false, false, true},
		{"rtp at xdp", true, false, true},
		{"udp and ipv6 in a vlan at tc", false, true, false},
		{"rtp and ipv6 in a vlan at tc", true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options
			s := broadcast.New(sending(c.rtp, c.six, 1))
			r := newRunner(t, &o, c.xdp)
			m := oracle.Monitor{Window: o.Window, Silence: o.Silence}
			for f, ok := s.Next(); ok; f, ok = s.Next() {
				r.frame(t, epoch+f.At, f.Bytes)
				m.Frame(epoch+f.At, f.Bytes)
			}
			got, totals, err := r.Read()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(s.Expected(), got, exact); d != "" {
				t.Errorf("the sender's account and the program:\n%s", d)
			}
			if d := cmp.Diff(m.Streams(), got, exact); d != "" {
				t.Errorf("oracle and program:\n%s", d)
			}
			want := mpegts.Totals{FEC: s.Parity, Fragments: s.Later}
			if totals != want || m.Totals != want {
				t.Errorf("of no stream: program %+v, oracle %+v, want %+v", totals, m.Totals, want)
			}
			for _, f := range broadcast.Faults {
				if s.Made[f] == 0 && (c.rtp || f != broadcast.Restart) {
					t.Errorf("no %s was made", f)
				}
			}
			for i, w := range m.Streams() {
				near(t, w.Delay.Seconds(), got[i].Delay.Seconds(), "delay factor")
				near(t, w.DelayMost.Seconds(), got[i].DelayMost.Seconds(), "highest delay factor")
				near(t, w.MediaRate, got[i].MediaRate, "media rate")
				if w.Windows != got[i].Windows || w.RateBy != got[i].RateBy {
					t.Errorf("%d windows by %s, want %d by %s", got[i].Windows, got[i].RateBy,
						w.Windows, w.RateBy)
				}
			}
		})
	}
}

func near(t *testing.T, want, got float64, what string) {
	t.Helper()
	if math.Abs(got-want) > 1e-3*math.Abs(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestAsManyFragmentsAsAByteCountsHideNoGap: each datagram that is not followed begins continuity
// anew, and the 256th was taken for none.
func TestAsManyFragmentsAsAByteCountsHideNoGap(t *testing.T) {
	c := sending(false, false, 3)
	clear(c.Faults)
	s, o := broadcast.New(c), options
	r := newRunner(t, &o, true)
	m := oracle.Monitor{Window: o.Window, Silence: o.Silence}
	at := epoch
	see := func(frame []byte) {
		at += time.Millisecond
		r.frame(t, at, frame)
		m.Frame(at, frame)
	}
	for i := range 40 {
		f, ok := s.Next()
		if !ok {
			t.Fatal("the stream has ended")
		}
		switch {
		case i == 5:
			fragment := bytes.Clone(f.Bytes)
			fragment[14+6] |= 0x20 // more fragments
			for range 256 {
				see(fragment)
			}
		case i < 5 || i > 20:
			see(f.Bytes)
		}
	}
	got, _, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m.Streams(), got, exact); d != "" {
		t.Errorf("oracle and program:\n%s", d)
	}
}

// TestPIDsOfAllPlacesAreFollowed: a flow has more PIDs than its record has places for, then more
// than have any, and many have a hash in common. Counters skip, errors and scrambling come now and
// then.
func TestPIDsOfAllPlacesAreFollowed(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for _, pids := range []int{7, 40, 300} {
		c := sending(false, false, seed)
		c.Faults, c.Streams, c.Rate = nil, 2, 4e6
		s, o := broadcast.New(c), options
		r := newRunner(t, &o, true)
		m := oracle.Monitor{Window: o.Window, Silence: o.Silence}
		chosen := rnd.Perm(mpegts.Null)[:pids]
		var counters [2][mpegts.Null]int
		for i := 0; i < 2*pids+2000; i++ {
			f, ok := s.Next()
			if !ok {
				t.Fatal("the streams have ended")
			}
			b := bytes.Clone(f.Bytes)
			for at := len(b) - 7*mpegts.Bytes; at < len(b); at += mpegts.Bytes {
				pid, which := chosen[rnd.IntN(pids)], rnd.IntN(100)
				cc := &counters[i%2][pid]
				*cc = (*cc + 1) % 16
				b[at+1], b[at+2], b[at+3] = byte(pid>>8), byte(pid), 0x10
				switch which {
				case 0:
					*cc = (*cc + rnd.IntN(16)) % 16
				case 1:
					b[at+1] |= 0x80
				case 2:
					b[at+3] |= 0x80
				}
				b[at+3] |= byte(*cc)
			}
			r.frame(t, epoch+f.At, b)
			m.Frame(epoch+f.At, b)
		}
		got, _, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m.Streams(), got, exact); d != "" {
			t.Errorf("seed %d, %d PIDs, oracle and program:\n%s", seed, pids, d)
		}
		if n := len(got[0].PIDs); n != min(pids, 255) {
			t.Errorf("seed %d: %d PIDs of %d", seed, n, pids)
		}
	}
}

// TestAPlaceHasNothingOfTheStreamBefore: streams with PIDs of all places, and with faults, have the
// one place by turns. What is left of the PIDs of one would be counted in the next.
func TestAPlaceHasNothingOfTheStreamBefore(t *testing.T) {
	o := options
	o.Streams = 1
	r := newRunner(t, &o, true)
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	chosen := rnd.Perm(mpegts.Null)[:300]
	at := epoch
	for n := range 4 {
		c := sending(n%2 == 1, n > 1, seed+uint64(n))
		c.Streams, c.Faults[broadcast.Fragment] = 1, 0.01
		s := broadcast.New(c)
		m := oracle.Monitor{Window: o.Window, Silence: o.Silence}
		pids := chosen[:300-80*n] // in other places each time
		rnd.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
		for f, ok := s.Next(); ok; f, ok = s.Next() {
			b := bytes.Clone(f.Bytes)
			for p := len(b) - mpegts.Bytes; p > 54 && b[p] == 0x47; p -= mpegts.Bytes {
				pid := pids[rnd.IntN(len(pids))]
				b[p+1], b[p+2] = b[p+1]&0xe0|byte(pid>>8), byte(pid)
			}
			r.frame(t, at+f.At, b)
			m.Frame(at+f.At, b)
		}
		at += 2 * c.Duration
		got, _, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m.Streams(), got, exact); d != "" {
			t.Fatalf("seed %d, stream %d, oracle and program:\n%s", seed, n, d)
		}
		if got[0].Discontinuities == 0 || got[0].Scrambled == 0 || len(got[0].PIDs) < 40 {
			t.Errorf("seed %d, stream %d has few faults or PIDs: %+v", seed, n, got[0])
		}
		if err := errors.Join(r.Forget([]mpegts.Flow{got[0].Flow}), r.Forget(nil)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSpoiltFramesAreFollowedAsTheOracleDoes: bytes of frames are changed, and frames cut.
func TestSpoiltFramesAreFollowedAsTheOracleDoes(t *testing.T) {
	for _, xdp := range []bool{true, false} {
		for _, rtp := range []bool{true, false} {
			seed := rand.Uint64()
			rnd := rand.New(rand.NewPCG(seed, 0))
			c := sending(rtp, rnd.IntN(2) == 0, seed)
			c.Duration = 8 * time.Second
			s := broadcast.New(c)
			o := options
			o.Streams = 4096
			r := newRunner(t, &o, xdp)
			m := oracle.Monitor{Window: o.Window, Silence: o.Silence}
			for f, ok := s.Next(); ok; f, ok = s.Next() {
				b := spoil(rnd, f.Bytes)
				r.frame(t, epoch+f.At, b)
				m.Frame(epoch+f.At, b)
			}
			got, totals, err := r.Read()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(m.Streams(), got, exact); d != "" {
				t.Errorf("seed %d, oracle and program:\n%s", seed, d)
			}
			if totals != m.Totals {
				t.Errorf("seed %d: of no stream: %+v, want %+v", seed, totals, m.Totals)
			}
		}
	}
}

// spoil changes some bytes of headers, or cuts a frame, or leaves it.
func spoil(rnd *rand.Rand, frame []byte) []byte {
	b := append([]byte(nil), frame...)
	switch rnd.IntN(8) {
	case 0:
		for range 1 + rnd.IntN(3) {
			b[12+rnd.IntN(min(len(b)-12, 80))] ^= 1 << rnd.IntN(8)
		}
	case 1: // the header of some packet
		at := len(b) - mpegts.Bytes*(1+rnd.IntN(7)) + rnd.IntN(12)
		if at > 12 {
			b[at] ^= 1 << rnd.IntN(8)
		}
	case 2:
		b = b[:max(60, rnd.IntN(len(b)+1))]
	case 3: // another length of UDP, of IPv4 without options
		if len(b) > 42 && binary.BigEndian.Uint16(b[12:]) == 0x0800 {
			binary.BigEndian.PutUint16(b[38:], uint16(rnd.IntN(len(b))))
		}
	}
	return b
}

// TestAllPartsOfRTPAndAClockThatWraps: headers with contributing sources, extension and padding
// (RFC 3550 5.1), each drawn, before a stream whose clock goes over 2^33 in the middle (H.222.0
// 2.4.3.5, after 26.5 hours).
func TestAllPartsOfRTPAndAClockThatWraps(t *testing.T) {
	const headers = 14 + 20 + 8
	const wraps = 1 << 33 * 300
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for _, xdp := range []bool{true, false} {
		c := sending(true, false, seed)
		c.Faults, c.FEC, c.Streams, c.Duration = nil, false, 1, 8*time.Second
		s, o := broadcast.New(c), options
		r := newRunner(t, &o, xdp)
		m := oracle.Monitor{Window: o.Window, Silence: o.Silence}
		for f, ok := s.Next(); ok; f, ok = s.Next() {
			old := f.Bytes[headers:]
			sources, more, padding := rnd.IntN(16), rnd.IntN(4), rnd.IntN(8)
			rtp := append([]byte{2<<6 | byte(sources)}, old[1:12]...)
			rtp = append(rtp, make([]byte, 4*sources)...)
			if more > 0 {
				rtp[0] |= 0x10
				rtp = append(rtp, 0xbe, 0xde, 0, byte(more-1))
				rtp = append(rtp, make([]byte, 4*(more-1))...)
			}
			for p := range slices.Chunk(bytes.Clone(old[12:]), mpegts.Bytes) {
				if p[3]&0x20 != 0 && p[4] >= 7 && p[5]&0x10 != 0 {
					was := uint64(binary.BigEndian.Uint32(p[6:]))<<1 | uint64(p[10]>>7)
					at := (was*300 + uint64(p[10]&1)<<8 + uint64(p[11]) + wraps - 4*27e6) % wraps
					binary.BigEndian.PutUint32(p[6:], uint32(at/300>>1))
					p[10] = byte(at/300&1)<<7 | byte(at%300>>8)
					p[11] = byte(at % 300)
				}
				rtp = append(rtp, p...)
			}
			if padding > 0 {
				rtp[0] |= 0x20
				rtp = append(append(rtp, make([]byte, padding-1)...), byte(padding))
			}
			b := append(bytes.Clone(f.Bytes[:headers]), rtp...)
			binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
			binary.BigEndian.PutUint16(b[38:], uint16(len(b)-34))
			binary.BigEndian.PutUint16(b[40:], 0)
			r.frame(t, epoch+f.At, b)
			m.Frame(epoch+f.At, b)
		}
		got, _, err := r.Read()
		if err != nil || len(got) != 1 {
			t.Fatalf("seed %d: %d streams, %v", seed, len(got), err)
		}
		if d := cmp.Diff(s.Expected(), got, exact); d != "" {
			t.Errorf("seed %d, the sender's account and the program:\n%s", seed, d)
		}
		want := m.Streams()[0]
		if d := cmp.Diff(want, got[0], exact); d != "" {
			t.Errorf("seed %d, oracle and program:\n%s", seed, d)
		}
		near(t, want.MediaRate, got[0].MediaRate, "media rate")
		near(t, want.DelayMost.Seconds(), got[0].DelayMost.Seconds(), "highest delay factor")
		near(t, 1e6, got[0].MediaRate, "media rate that was sent")
		if got[0].RateBy != mpegts.RatePCR || got[0].Windows < 5 {
			t.Errorf("seed %d: %d windows by %s", seed, got[0].Windows, got[0].RateBy)
		}
	}
}
