package oracle

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"net/netip"

	"levee/internal/lab/broadcast"
	"levee/internal/monitor/mpegts"
	"levee/internal/packet"
)

// TestTSDuckFindsTheSameDiscontinuities has the scenario and the results of TSDuck's own test of
// its analyser of continuity (src/utest/utestContinuity.cpp, "Analyze", 2024): packets with payload
// of two PIDs, of which it reports the eighth, "missing 2 packets", and the eleventh, "3 duplicate
// packets".
func TestTSDuckFindsTheSameDiscontinuities(t *testing.T) {
	var m Monitor
	frame := stream(t)
	for i, p := range []struct {
		pid                    uint16
		cc                     byte
		discontinuous, missing uint64
	}{
		{100, 5, 0, 0}, {101, 13, 0, 0}, {100, 6, 0, 0}, {101, 14, 0, 0}, {101, 14, 0, 0},
		{101, 15, 0, 0}, {101, 0, 0, 0}, {101, 3, 1, 2}, {101, 4, 1, 2}, {101, 4, 1, 2},
		{101, 4, 2, 2}, {101, 5, 2, 2},
	} {
		m.Frame(time.Second+time.Duration(i), frame(p.pid, p.cc))
		s := m.Streams()[0]
		if s.Discontinuities != p.discontinuous || s.Missing != p.missing {
			t.Errorf("packet %d: %d discontinuities, %d missing, want %d and %d", i,
				s.Discontinuities, s.Missing, p.discontinuous, p.missing)
		}
	}
}

// stream makes frames with one packet each, which differ by PID and counter alone.
func stream(t *testing.T) func(pid uint16, cc byte) []byte {
	t.Helper()
	s := broadcast.New(config(time.Second))
	f, ok := s.Next()
	if !ok {
		t.Fatal("no frame")
	}
	one := bytes.Clone(f.Bytes)
	const at = 14 + 20 + 8
	return func(pid uint16, cc byte) []byte {
		b := bytes.Clone(one)
		b[at], b[at+1], b[at+2], b[at+3] = sync, byte(pid>>8), byte(pid), 0x10|cc
		return b
	}
}

func config(d time.Duration) broadcast.Config {
	return broadcast.Config{Streams: 1, Rate: 4e6, Packets: 1, Duration: d, Seed: 1,
		From: netip.MustParseAddrPort("192.0.2.1:5000"),
		To:   netip.MustParseAddrPort("239.1.1.1:5004")}
}

// peer is a capture with faults, what a peer is given of it, and what it has to find.
type peer struct {
	pcap, ts        string
	events, missing uint64
	seen, skipped   uint64 // what Wireshark finds of these
}

// wireshark notes what Wireshark finds where packets are missing before one with payload or
// without. It takes a counter that stands still for a duplicate, whatever is in the packet, and one
// that goes on by one for the next, also of a packet with an adaptation field alone.
func (p *peer) wireshark(missing uint64, payload bool) {
	if !payload {
		missing--
	}
	if missing > 0 && missing < 15 {
		p.seen++
		p.skipped += missing
	}
}

// faulty makes a capture in which nothing is but what peers look at: losses, packets left out,
// legal duplicates, damaged and scrambled packets.
func faulty(t *testing.T, rtp bool) (p peer) {
	t.Helper()
	c := config(10 * time.Second)
	c.Packets, c.RTP = 7, rtp
	c.Faults = map[broadcast.Fault]float64{broadcast.Loss: .01, broadcast.Skip: .005,
		broadcast.Duplicate: .005, broadcast.Error: .001, broadcast.Scrambled: .01}
	dir := t.TempDir()
	p.pcap, p.ts = filepath.Join(dir, "x.pcap"), filepath.Join(dir, "x.ts")
	capture, ts := create(t, p.pcap), create(t, p.ts)
	w, err := packet.NewWriter(capture)
	if err != nil {
		t.Fatal(err)
	}
	var m Monitor
	var before mpegts.Counts
	s := broadcast.New(c)
	for f, ok := s.Next(); ok; f, ok = s.Next() {
		if err := w.Write(f.Bytes, 0, time.Unix(1_700_000_000, 0).Add(f.At)); err != nil {
			t.Fatal(err)
		}
		_, payload, _ := decode(f.Bytes)
		_, data := rtpOf(payload)
		if _, err := ts.Write(data); err != nil {
			t.Fatal(err)
		}
		// Packet by packet, to see at which the oracle finds something.
		for len(data) > 0 {
			one := data[:mpegts.Bytes]
			data = data[mpegts.Bytes:]
			m.feed(one)
			now := m.Streams()[0].Counts
			if missing := now.Missing - before.Missing; missing > 0 {
				p.wireshark(missing, one[3]&0x10 != 0)
			}
			before = now
		}
	}
	p.events, p.missing = before.Discontinuities, before.Missing
	if err := capture.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := ts.Flush(); err != nil {
		t.Fatal(err)
	}
	e := s.Expected()[0]
	if p.events == 0 || p.events != e.Discontinuities || p.missing != e.Missing {
		t.Fatalf("%d discontinuities, %d missing, want %d and %d", p.events, p.missing,
			e.Discontinuities, e.Missing)
	}
	return p
}

var rtpOf = rtp

// feed follows a packet by itself.
func (m *Monitor) feed(p []byte) { m.flow(mpegts.Flow{}).packet(p) }

func create(t *testing.T, path string) *bufio.Writer {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return bufio.NewWriter(f)
}

func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed", program)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, errs.Bytes())
	}
	return out.String() + errs.String()
}

// TestWiresharkFindsTheSameDiscontinuities: all but those that its own rules cannot tell.
func TestWiresharkFindsTheSameDiscontinuities(t *testing.T) {
	for _, kind := range []string{"mp2t", "rtp"} {
		p := faulty(t, kind == "rtp")
		out := run(t, "tshark", "-n", "-r", p.pcap, "-d", "udp.port==5004,"+kind, "-T", "fields",
			"-e", "mp2t.analysis.skips")
		var events, skipped uint64
		for word := range strings.FieldsFuncSeq(out, func(r rune) bool {
			return r < '0' || r > '9'
		}) {
			n, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			events++
			skipped += n
		}
		if events != p.seen || skipped != p.skipped {
			t.Errorf("%s: tshark finds %d discontinuities, %d packets skipped; the oracle %d "+
				"and %d", kind, events, skipped, p.seen, p.skipped)
		}
	}
}

// TestAnInstalledTSDuckAgrees: Debian has no package of it.
func TestAnInstalledTSDuckAgrees(t *testing.T) {
	if _, err := exec.LookPath("tsp"); err != nil {
		t.Skip("TSDuck is not at hand")
	}
	p := faulty(t, false)
	out := run(t, "tsp", "-I", "file", p.ts, "-P", "continuity", "-O", "drop")
	if n := strings.Count(out, "PID: 0x"); uint64(n) != p.events {
		t.Errorf("TSDuck finds %d discontinuities, the oracle %d:\n%s", n, p.events, out)
	}
}
