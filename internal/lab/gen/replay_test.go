package gen

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/lab"
	"levee/internal/lab/labtest"
	"levee/internal/packet"
)

const (
	testEtherType = 0x88b5 // local experimental (IEEE 802)
	testEtherHigh = 0x88
	testEtherLow  = 0xb5
)

// someFrames makes frames of random content and length.
func someFrames(r *rand.Rand, n int) [][]byte {
	frames := make([][]byte, n)
	for i := range frames {
		b := make([]byte, 14+r.IntN(1501))
		for k := range b {
			b[k] = byte(r.Uint32())
		}
		copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, testEtherHigh, testEtherLow})
		frames[i] = b
	}
	return frames
}

// capture makes a file of frames that are step apart.
func capture(t *testing.T, frames [][]byte, step time.Duration) func() (io.ReadCloser, error) {
	t.Helper()
	var buf bytes.Buffer
	w, err := packet.NewWriter(&buf)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_700_000_000, 0)
	for _, f := range frames {
		if err := w.Write(f, len(f), at); err != nil {
			t.Fatal(err)
		}
		at = at.Add(step)
	}
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }
}

// listen opens a packet socket on the server's device that sees the test's frames only.
func listen(t *testing.T, l *lab.Lab) int {
	t.Helper()
	server := l.Host(lab.Server)
	fd := -1
	err := server.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
			int(htons(testEtherType)))
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
			&unix.Timeval{Sec: 180}); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(testEtherType),
			Ifindex: server.Devices[0].Index})
	})
	if fd >= 0 {
		t.Cleanup(func() { unix.Close(fd) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// hear reads n frames.
func hear(t *testing.T, fd, n int) [][]byte {
	t.Helper()
	buf := make([]byte, 2048)
	var got [][]byte
	for len(got) < n {
		k, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatalf("%d of %d frames came: %v", len(got), n, err)
		}
		got = append(got, bytes.Clone(buf[:k]))
	}
	return got
}

// hearSome reads frames and compares them with those that were sent, of which some were refused.
func hearSome(t *testing.T, fd int, sent [][]byte, refused int) {
	t.Helper()
	i := 0
	for _, got := range hear(t, fd, len(sent)-refused) {
		for refused > 0 && !bytes.Equal(got, sent[i]) {
			i, refused = i+1, refused-1
		}
		if !bytes.Equal(got, sent[i]) {
			t.Fatalf("frame %d differs:\n%x\n%x", i, got, sent[i])
		}
		i++
	}
}

func TestReplayArrivesByteForByte(t *testing.T) {
	l := labtest.New(t)
	const seed = 11
	r := rand.New(rand.NewPCG(seed, 0))
	for _, c := range []struct {
		name   string
		frames int
		step   time.Duration
		replay Replay
		rate   float64
		least  time.Duration
	}{
		{"as fast as possible", 2000, time.Hour, Replay{Fast: true}, 0, 0},
		{"at its own times", 100, time.Millisecond, Replay{}, 0, 99 * time.Millisecond},
		{"at a rate", aRing, time.Hour, Replay{}, 2000, 99 * time.Millisecond},
		{"with lab addresses", 50, 0, Replay{Rewrite: true}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Logf("seed %d", seed)
			frames := someFrames(r, c.frames)
			fd := listen(t, l)
			c.replay.Open = capture(t, frames, c.step)
			var size uint64
			for _, f := range frames {
				size += uint64(len(f))
				if c.replay.Rewrite {
					copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2})
				}
			}
			// The sender waits for room for a while. Where that was too short, it sends again.
			await.OK(t, func() error {
				rep, err := Run(t.Context(), into(l, Config{Replay: &c.replay, Rate: c.rate}))
				if err != nil {
					t.Fatal(err)
				}
				if rep.Sent != uint64(c.frames) || rep.Bytes != size || rep.Errors != 0 {
					t.Fatalf("report %+v, want %d frames of %d bytes", rep, c.frames, size)
				}
				if rep.Duration < c.least {
					t.Errorf("took %s, want at least %s", rep.Duration, c.least)
				}
				hearSome(t, fd, frames, int(rep.Refused))
				if rep.Refused > 0 {
					return fmt.Errorf("%d of %d frames were refused", rep.Refused, rep.Sent)
				}
				return nil
			})
		})
	}
}

func TestReplayRepeatsUntilItsCount(t *testing.T) {
	l := labtest.New(t)
	frames := someFrames(rand.New(rand.NewPCG(5, 0)), 7)
	fd := listen(t, l)
	rep, err := Run(t.Context(), into(l, Config{
		Replay: &Replay{Open: capture(t, frames, time.Hour), Repeat: true, Fast: true}, Count: 30,
	}))
	if err != nil || rep.Sent != 30 {
		t.Fatalf("sent %d, %v", rep.Sent, err)
	}
	for i, got := range hear(t, fd, 30) {
		if !bytes.Equal(got, frames[i%7]) {
			t.Fatalf("frame %d differs", i)
		}
	}
}

func TestReplayEndsInTime(t *testing.T) {
	l := labtest.New(t)
	open := capture(t, someFrames(rand.New(rand.NewPCG(6, 0)), 3), time.Hour)
	fd := listen(t, l)
	began := time.Now()
	rep, err := Run(t.Context(), into(l,
		Config{Replay: &Replay{Open: open}, Duration: time.Second / 2}))
	if err != nil || rep.Sent != 1 {
		t.Errorf("duration: sent %d, %v", rep.Sent, err)
	}
	hear(t, fd, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // once the first has come
		defer cancel()
		for err := error(unix.EINTR); errors.Is(err, unix.EINTR); {
			_, _, err = unix.Recvfrom(fd, make([]byte, 1), 0)
		}
	}()
	rep, err = Run(ctx, into(l, Config{Replay: &Replay{Open: open}}))
	if err != nil || rep.Sent != 1 {
		t.Errorf("context: sent %d, %v", rep.Sent, err)
	}
	if took := time.Since(began); took > 10*time.Minute {
		t.Errorf("took %s", took)
	}
}

func TestReplayCountsWhatTheDeviceCannotSend(t *testing.T) {
	l := labtest.New(t)
	frames := someFrames(rand.New(rand.NewPCG(7, 0)), 5)
	frames[1] = append(frames[1][:14:14], make([]byte, 1501)...)
	frames[2] = append(frames[2][:14:14], make([]byte, 9000)...)
	frames[3] = frames[3][:13]
	rep, err := Run(t.Context(), into(l, Config{Replay: &Replay{Open: capture(t, frames, 0)}}))
	if err != nil || rep.Sent != 2 || rep.Errors != 3 || rep.TooLong != 2 || rep.TooShort != 1 {
		t.Errorf("sent %d, errors %d, %d too long, %d too short, %v", rep.Sent, rep.Errors,
			rep.TooLong, rep.TooShort, err)
	}
	if why := strings.Join(rep.Unsent(),
		"; "); why != "1 shorter than an Ethernet header; 2 longer than the MTU of the "+
		"device allows" {
		t.Error(why)
	}
}

func TestDamagedCapturesAreErrors(t *testing.T) {
	l := labtest.New(t)
	whole := capture(t, someFrames(rand.New(rand.NewPCG(8, 0)), 3), 0)
	f, _ := whole()
	b, _ := io.ReadAll(f)
	for name, c := range map[string]struct {
		bytes []byte
		sent  uint64
	}{
		"empty":     {nil, 0},
		"no pcap":   {[]byte("this is not a capture file"), 0},
		"cut short": {b[:len(b)-1], 2},
	} {
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.bytes)), nil }
		rep, err := Run(t.Context(), into(l, Config{Replay: &Replay{Open: open}}))
		if err == nil || rep.Sent != c.sent {
			t.Errorf("%s: sent %d, %v", name, rep.Sent, err)
		}
	}
	_, err := Run(t.Context(), into(l,
		Config{Replay: &Replay{Open: Capture("does-not-exist.pcap")}}))
	if err == nil {
		t.Error("a missing file gave no error")
	}
	empty := capture(t, nil, 0)
	_, err = Run(t.Context(), into(l, Config{Replay: &Replay{Open: empty, Repeat: true}}))
	if err == nil {
		t.Error("repeating nothing gave no error")
	}
}

// htons is a number in the order of the network.
func htons(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil,
		v))
}

// Capture is Replay.Open for a file.
func Capture(path string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return os.Open(path) }
}
