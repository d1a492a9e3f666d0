//go:build proof

package live

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lab"
	"levee/internal/lab/broadcast"
	"levee/internal/lab/gen"
	"levee/internal/lab/labtest"
	"levee/internal/monitor/mpegts"
)

// TestProofADay: each fault of a day is counted, and none of a day without faults is invented. The
// clock goes as fast as frames can be made; it passes the 26.5 hours after which a PCR begins anew.
func TestProofADay(t *testing.T) {
	for _, c := range []struct {
		name   string
		rtp    bool
		faults bool
	}{{"udp", false, false}, {"rtp", true, false}, {"udp with faults", false, true},
		{"rtp with faults", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			f := sending(c.rtp, false, 1)
			f.Rate, f.Duration = 60_000, 27*time.Hour
			if !c.faults {
				f.Faults = nil
			}
			o := options
			s, r := broadcast.New(f), newRunner(t, &o, true)
			for x, ok := s.Next(); ok; x, ok = s.Next() {
				r.frame(t, epoch+x.At, x.Bytes)
			}
			got, _, err := r.Read()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(s.Expected(), got, exact); d != "" {
				t.Error(d)
			}
			var sum mpegts.Counts
			var silences, windows uint64
			for _, g := range got {
				sum.Packets += g.Packets
				sum.Discontinuities += g.Discontinuities
				sum.Missing += g.Missing
				silences += g.Silences
				windows += g.Windows
				if g.RateBy != mpegts.RatePCR || !c.faults && g.DelayMost > time.Second {
					t.Errorf("media rate by %s, delay factor up to %s", g.RateBy, g.DelayMost)
				}
			}
			if !c.faults && (sum.Discontinuities != 0 || silences != 0) {
				t.Errorf("invented: %+v, %d silences", sum, silences)
			}
			t.Logf("%d frames, %d packets: %d discontinuities, %d missing, %d pauses, %d windows; "+
				"made: %v", s.Frames, sum.Packets, sum.Discontinuities, sum.Missing, silences,
				windows, s.Made)
		})
	}
}

// thousand are frames of a thousand streams, seven packets of seven PIDs each: sent again and again
// they are continuous, as 16 datagrams take each counter around once.
func thousand(t *testing.T) (frames [][]byte) {
	t.Helper()
	c := sending(false, false, 1)
	c.Streams, c.Rate, c.Faults, c.Duration = 1000, 10e6, nil, 16*1053*time.Microsecond
	s := broadcast.New(c)
	for f, ok := s.Next(); ok; f, ok = s.Next() {
		b := bytes.Clone(f.Bytes)
		round := len(frames) / c.Streams
		for i, at := 0, len(b)-7*mpegts.Bytes; at < len(b); i, at = i+1, at+mpegts.Bytes {
			b[at], b[at+1], b[at+2], b[at+3] = 0x47, 1, byte(i), 0x10|byte(round)
		}
		frames = append(frames, b)
	}
	return frames[:16*c.Streams]
}

// onCPU returns the time for which a thread has run: the first number of its schedstat.
func onCPU(t *testing.T, pid int) (ran time.Duration) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err == nil {
		_, err = fmt.Sscan(string(text), &ran)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ran
}

// TestProofAThousandStreamsOnACore: a thousand streams of 10 Mbit/s are 949,668 datagrams a second.
// What counts is the time that the thread has run which receives them: driver, program and, at tcx,
// what the stack does with datagrams that nobody wants. Others take time of its core, and do not
// make it receive more.
func TestProofAThousandStreamsOnACore(t *testing.T) {
	frames := thousand(t)
	const wanted = 1000 * 10e6 / (7 * mpegts.Bytes * 8)
	for _, c := range []struct {
		mode    string
		discard bool
	}{{XDP, true}, {TCX, false}} {
		l := labtest.New(t)
		o := options
		o.Streams, o.Discard = 1024, c.discard
		var m *Monitor
		err := l.Host(lab.Server).Do(func() (err error) {
			m, err = Open(l.Host(lab.Server).Devices[0].Name, c.mode, o)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		world := l.Host(lab.World)
		ended := make(chan error, 1)
		go func() {
			_, err := gen.Run(t.Context(), gen.Config{Namespace: world.Namespace,
				Device: world.Devices[0].Name, CPU: 0, Frames: &gen.Frames{Frames: frames},
				Duration: 8 * time.Second, Dropped: c.discard})
			ended <- err
		}()
		var rates []float64
		var before uint64
		var at time.Duration
		napi := l.Host(lab.Server).Devices[0].NAPI
		for tick := time.NewTicker(time.Second); len(rates) < 6; <-tick.C {
			all, _, err := m.Read()
			if err != nil {
				t.Fatal(err)
			}
			now, sum := onCPU(t, napi), uint64(0)
			for i := range all {
				sum += all[i].Datagrams
			}
			if before > 0 {
				rates = append(rates, float64(sum-before)/(now-at).Seconds())
			}
			before, at = sum, now
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		all, totals, err := m.Read()
		if err != nil || len(all) != 1000 || totals.Unplaced > 0 {
			t.Errorf("%d streams, %+v, %v", len(all), totals, err)
		}
		slices.Sort(rates)
		median := rates[len(rates)/2]
		t.Logf("%s: %.0f ns of a core for a datagram (median of %d windows; %.0f to %.0f): a core "+
			"receives %.2f thousand streams of 10 Mbit/s", m.Mode, 1e9/median, len(rates),
			1e9/rates[len(rates)-1], 1e9/rates[0], median/wanted)
		if c.discard && median < wanted {
			t.Errorf("less than %.0f", wanted)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
