//go:build proof

package generators

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/lab"
	"levee/internal/lab/gen"
	"levee/internal/lab/labtest"
	"levee/internal/packet"
)

// The tests of this file take minutes, or measure time: `make gen-proof` runs them.

// proofLab is a lab whose receiver, and all that this process does, comes before others on the
// machine.
func proofLab(t *testing.T) *lab.Lab {
	l := labtest.New(t)
	lower, err := first(l.Host(lab.Server).Devices[0].NAPI)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lower)
	return l
}

// TestProofCountsAreExact sends 10,000,000 packets ten times, every other time while the collector
// runs all the time.
func TestProofCountsAreExact(t *testing.T) {
	const count = 10_000_000
	l := proofLab(t)
	for run := range 10 {
		s := withReceiver(t, l, receiverOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		idle := make(chan struct{})
		go func() {
			defer close(idle)
			for run%2 == 1 && ctx.Err() == nil {
				_ = make([]byte, 1<<20)
				runtime.GC()
			}
		}()
		r, v := send(t, l, s, "ipv4 udp from 16.0.0.0/4 permuted port 1024-65535",
			gen.Config{Count: count, Seed: uint64(run)})
		cancel()
		<-idle
		t.Logf("run %d: sent %d, refused %d, received %d, %.2f Mpps, collector %v", run, r.Sent,
			r.Refused, v.Packets, r.Achieved/1e6, run%2 == 1)
		if r.Sent != count || r.Errors != 0 || v.Packets != count-r.Refused {
			t.Errorf("run %d: not exact", run)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestProofSourcesDoNotRepeat looks at the sources of 10,000,000 packets that arrive.
func TestProofSourcesDoNotRepeat(t *testing.T) {
	const count = 10_000_000
	l := proofLab(t)
	s := withReceiver(t, l, receiverOptions{base: 16 << 24, count: 1 << 28})
	var arrived uint64
	var v receiverSeen
	var r gen.Report
	// As many as are needed for that number to arrive: all are of one permutation.
	r, v = send(t, l, s, "ipv4 udp from 16.0.0.0/4 permuted",
		gen.Config{Count: 4 * count, Rate: 700_000, Seed: 3})
	arrived = v.Packets
	t.Logf("sent %d, refused %d, received %d: %d sources came again, %d from elsewhere", r.Sent,
		r.Refused, arrived, v.Repeats, v.Outside)
	if arrived != r.Sent-r.Refused || arrived < count || v.Repeats != 0 || v.Outside != 0 {
		t.Error("not a permutation, or too few arrived")
	}
}

// TestProofReplaysKeepTheirTimes compares the capture with what arrives: bytes, and the time from
// each packet to the next as the receiving kernel notes it (SO_TIMESTAMPNS).
func TestProofReplaysKeepTheirTimes(t *testing.T) {
	const n, seed = 5000, 21
	l := proofLab(t)
	r := rand.New(rand.NewPCG(seed, 0))
	var file bytes.Buffer
	w, err := packet.NewWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_700_000_000, 0)
	var frames [][]byte
	var times []time.Time
	for range n {
		f := make([]byte, 14+r.IntN(1487))
		for i := range f {
			f[i] = byte(r.Uint32())
		}
		copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x88, 0xb5})
		if err := w.Write(f, len(f), at); err != nil {
			t.Fatal(err)
		}
		frames, times = append(frames, f), append(times, at)
		at = at.Add(time.Duration(r.ExpFloat64() * float64(2*time.Millisecond)))
	}
	server, world := l.Host(lab.Server), l.Host(lab.World)
	fd := -1
	err = server.Do(func() (err error) {
		// 0x88b5 in the order of the network
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
			0xb588); err != nil {
			return err
		}
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	rep, err := gen.Run(t.Context(), gen.Config{
		Namespace: world.Namespace, Device: world.Devices[0].Name,
		CPU: max(world.Devices[0].CPU, 0),
		Replay: &gen.Replay{Open: func() (io.ReadCloser,
			error) {
			return io.NopCloser(bytes.NewReader(file.Bytes())), nil
		}},
	})
	if err != nil || rep.Sent != n || rep.Refused+rep.Errors > 0 {
		t.Fatalf("%+v, %v", rep, err)
	}
	buf, oob := make([]byte, 4096), make([]byte, 256)
	var off []time.Duration
	var last time.Time
	for i := range n {
		k, m, _, _, err := unix.Recvmsg(fd, buf, oob, unix.MSG_DONTWAIT)
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if !bytes.Equal(buf[:k], frames[i]) {
			t.Fatalf("frame %d differs", i)
		}
		cs, err := unix.ParseSocketControlMessage(oob[:m])
		if err != nil || len(cs) != 1 {
			t.Fatalf("no time stamp: %v", err)
		}
		word := binary.NativeEndian.Uint64
		now := time.Unix(int64(word(cs[0].Data)), int64(word(cs[0].Data[8:])))
		if i > 0 {
			off = append(off, (now.Sub(last) - times[i].Sub(times[i-1])).Abs())
		}
		last = now
	}
	slices.Sort(off)
	t.Logf("%d frames over %s (seed %d): gaps off by %s at the median, %s at 90 %%, %s at 99 %%, "+
		"%s at most", n, times[n-1].Sub(times[0]),
		seed, off[len(off)/2], off[len(off)*9/10], off[len(off)*99/100], off[len(off)-1])
	if off[len(off)/2] > 100*time.Microsecond {
		t.Error("more than 100 µs at the median")
	}
}

// TestProofInterruptsEndARun measures from the interrupt to the report.
func TestProofInterruptsEndARun(t *testing.T) {
	l := proofLab(t)
	r := withReceiver(t, l, receiverOptions{})
	world := l.Host(lab.World)
	for _, g := range generators[:4] {
		for _, rate := range []float64{0, 1, 1000, 100_000, 1e6} {
			c := &comparison{lab: l, cpu: max(world.Devices[0].CPU, 0)}
			before, err := r.read()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- g.run(ctx, c, rate) }()
			await.True(t, "the first packet", func() bool {
				seen, err := r.read()
				if err != nil {
					t.Fatal(err)
				}
				return seen.Packets > before.Packets
			})
			began := time.Now()
			cancel()
			err = <-done
			took := time.Since(began)
			t.Logf("%s at %g/s: %s, %d sent", g.name, rate, took.Round(time.Microsecond),
				c.told.Sent)
			if err != nil || took > 100*time.Millisecond || c.told.Sent == 0 {
				t.Errorf("%s at %g/s: %s, sent %d, %v", g.name, rate, took, c.told.Sent, err)
			}
		}
	}
}

// TestProofRatesAreKept holds each path to half a per cent of the rates that are well below what it
// reaches here. The rate is that of the packets that the device was offered, over the time from the
// first to the last.
func TestProofRatesAreKept(t *testing.T) {
	l := proofLab(t)
	const text = "ipv4 udp len 46 port 1024-65535"
	for _, path := range gen.Paths {
		s := withReceiver(t, l, receiverOptions{})
		r, _ := send(t, l, s, text, gen.Config{Path: path, Duration: time.Second})
		most := r.Achieved
		t.Logf("%s: %.0f/s at most", path, most)
		for _, rate := range []float64{1e3, 1e4, 1e5, 5e5, 1e6, 2e6} {
			r, _ := send(t, l, s, text, gen.Config{Path: path, Rate: rate,
				Duration: 2 * time.Second})
			off := (r.Achieved/rate - 1) * 100
			t.Logf("%s at %.0f/s: %.1f/s, %+.3f %%; gaps %s median, %s 99 %%, %s longest; %d "+
				"refused of %d", path, rate, r.Achieved, off,
				r.Gaps.Quantile(.5), r.Gaps.Quantile(.99), r.Gaps.Max, r.Refused, r.Sent)
			if rate < most*0.8 && (off > 0.5 || off < -0.5) {
				t.Errorf("%s at %.0f/s: %+.3f %% off", path, rate, off)
			}
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
}
