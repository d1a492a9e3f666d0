package gen

import (
	"bytes"
	"testing"
	"time"

	"levee/internal/lab/labtest"
	"levee/internal/packet"
)

func TestFramesOfATraceArriveInTurn(t *testing.T) {
	l := labtest.New(t)
	var frames [][]byte
	for i := range 5 {
		port := uint16(1000 + i)
		f, err := packet.Build(packet.Spec{From: prefixes("10.0.0.0/8")[0].Addr(), To: server4,
			FromPort: &port})
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, f)
	}
	const count = 99_999
	rx := receive(t, l, 23, 17, 34, 8) // notes source ports
	r, err := Run(t.Context(), into(l, Config{Frames: &Frames{Frames: frames}, Count: count}))
	if err != nil {
		t.Fatal(err)
	}
	if r.Sent != count || r.Bytes != count*64 || r.Errors != 0 {
		t.Errorf("%+v", r)
	}
	if got := rx.received(t, count-r.Refused); got != count-r.Refused {
		t.Errorf("%d arrived of %d, %d refused", got, count, r.Refused)
	}
	// The first fill the ring before it can refuse any.
	for i, note := range rx.noted(t, 8) {
		if want := uint32(1000 + i%5); note>>16 != want {
			t.Errorf("packet %d: port %d, want %d", i, note>>16, want)
		}
	}
}

func TestATraceTakesTheAddressesOfTheLab(t *testing.T) {
	f := Frames{Frames: [][]byte{bytes.Repeat([]byte{9}, 70), bytes.Repeat([]byte{8}, 14)}}
	b := f.memory(device{mac: [6]byte{1, 1, 1, 1, 1, 1}, dst: [6]byte{2, 2, 2, 2, 2, 2}})
	if f.stride() != 72 || len(b) != 144 {
		t.Fatalf("stride %d, %d bytes", f.stride(), len(b))
	}
	want := append([]byte{2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1}, 9)
	if !bytes.Equal(b[:13], want) || b[69] != 9 || b[70] != 0 || b[72+13] != 8 || b[72+14] != 0 {
		t.Errorf("%x", b)
	}
}

func TestTracesThatMakeNoSenseAreRefused(t *testing.T) {
	frame := make([]byte, 60)
	for name, c := range map[string]Config{
		"no frames": {Frames: &Frames{}},
		"short":     {Frames: &Frames{Frames: [][]byte{frame[:13]}}},
		"long":      {Frames: &Frames{Frames: [][]byte{make([]byte, MaxFrame+1)}}},
		"two kinds": {Frames: &Frames{Frames: [][]byte{frame}}, Floods: []Flood{{}}},
	} {
		c.Device = "eth0"
		if err := c.check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	c := Config{Device: "eth0", Frames: &Frames{Frames: [][]byte{frame}}}
	if err := c.check(); err != nil || c.Duration != defaultDuration {
		t.Errorf("%v, %v", c.Duration, err)
	}
	l := labtest.New(t)
	if _, err := Run(t.Context(), into(l,
		Config{Frames: &Frames{Frames: [][]byte{frame}}, Rate: 10, Count: 1})); err == nil {
		t.Error("a rate was accepted")
	}
	if _, err := Run(t.Context(), Config{Device: "lo", OwnNetwork: true,
		Frames: &Frames{Frames: [][]byte{frame}}, Duration: time.Second}); err == nil {
		t.Error("a device outside labs was accepted")
	}
}
