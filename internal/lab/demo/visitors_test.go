package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"levee/internal/packet"
)

func TestVisitorsDoNotWaitForEachOther(t *testing.T) {
	// The service stalls for a while: requests that are due meanwhile must show it, though a
	// visitor that waited for the answer before would never have sent them.
	const rate, stalled, ends = 100, 20, 60 // requests a second, first and last of those that wait
	var n atomic.Int32
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch i := n.Add(1); {
		case i == ends:
			close(over)
		case i >= stalled && i < ends:
			select {
			case <-over:
			case <-time.After(time.Minute):
				t.Error("a visitor waits for the answer of another one")
			}
		}
		io.WriteString(w, "page")
	}))
	defer s.Close()
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := visitors(ctx, strings.TrimPrefix(s.URL, "http://"),
			[]netip.Addr{netip.MustParseAddr("127.0.0.1")}, rate, w)
		w.Close()
		done <- err
	}()
	slow := 0
	lines := bufio.NewScanner(r)
	for i := 0; i < 80 && lines.Scan(); i++ {
		var q Request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			t.Fatal(err)
		}
		if q.NS == 0 || q.NS > int64(50*time.Millisecond) {
			slow++
		}
	}
	cancel()
	go io.Copy(io.Discard, r)
	if err := <-done; err != nil {
		t.Error(err)
	}
	// 40 come while it stalls, within 400 ms: 35 of them more than 50 ms before its end.
	if slow < 30 {
		t.Errorf("%d requests were slow, want 35 or so", slow)
	}
}

func TestAnAnswerAfterPatienceIsAFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		newTeller(w).openLoop(ctx, "web", 1, func(ctx context.Context, _ int, due time.Time) error {
			end, ok := ctx.Deadline()
			if !ok || end.Sub(due) != Patience {
				t.Errorf("a visitor waits from %v until %v", due, end)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		w.Close()
	}()
	var q Request
	if err := json.NewDecoder(r).Decode(&q); err != nil || q.NS != 0 || q.What != "web" {
		t.Errorf("a request without an answer: %+v, %v", q, err)
	}
	cancel()
	go io.Copy(io.Discard, r)
	<-done
}

func TestServiceEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- serve(ctx, addr, func() { close(ready) }) }()
	<-ready
	if err := ask(t.Context(), http.DefaultClient, "http://"+addr+"/"); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRetargetKeepsChecksumsRight(t *testing.T) {
	to := netip.MustParseAddrPort("198.18.0.1:80")
	frame := synFrame(t)
	if !retargetTCP(to)(frame) {
		t.Fatal("a SYN was refused")
	}
	ip, tcp := frame[14:34], frame[34:]
	if got := fold(ip); got != 0 {
		t.Errorf("IPv4 checksum is off by %#x", got)
	}
	pseudo := append(append([]byte(nil), ip[12:20]...), 0, 6, 0, byte(len(tcp)))
	if got := fold(append(pseudo, tcp...)); got != 0 {
		t.Errorf("TCP checksum is off by %#x", got)
	}
	if netip.AddrFrom4([4]byte(ip[16:20])) != to.Addr() ||
		binary.BigEndian.Uint16(tcp[2:]) != to.Port() {
		t.Errorf("destination of % x", frame)
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"cut":                        func(f []byte) []byte { return f[:40] },
		"UDP":                        func(f []byte) []byte { f[23] = 17; return f },
		"fragment":                   func(f []byte) []byte { f[21] = 1; return f },
		"IPv6":                       func(f []byte) []byte { f[12], f[13] = 0x86, 0xdd; return f },
		"options that end beyond it": func(f []byte) []byte { f[14] = 0x4f; return f },
	} {
		if retargetTCP(to)(spoil(synFrame(t))) {
			t.Errorf("%s: taken for TCP", name)
		}
	}
}

func TestACaptureOfUDPIsAimed(t *testing.T) {
	to := netip.MustParseAddr("198.18.0.1")
	whole, err := packet.Build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)),
		Payload: make([]byte, 3000)})
	if err != nil {
		t.Fatal(err)
	}
	frames, err := packet.Cut(whole, 1480)
	if err != nil {
		t.Fatal(err)
	}
	var in bytes.Buffer
	w, err := packet.NewWriter(&in)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(frames, synFrame(t), frames[0][:30]) {
		if err := w.Write(f, len(f), time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := AimUDP(&in, to)
	if err != nil {
		t.Fatal(err)
	}
	r, err := packet.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var joined []byte
	for range frames {
		rec, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		ip := rec.Data[14:]
		if fold(ip[:20]) != 0 || netip.AddrFrom4([4]byte(ip[16:20])) != to {
			t.Errorf("header % x", ip[:20])
		}
		joined = append(joined, ip[20:]...)
	}
	pseudo := append(append([]byte(nil), whole[26:30]...), to.AsSlice()...)
	pseudo = append(pseudo, 0, packet.ProtoUDP, joined[4], joined[5])
	if got := fold(append(pseudo, joined...)); got != 0 {
		t.Errorf("the UDP checksum is off by %#x", got)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("what is no whole UDP was taken: %v", err)
	}
}

// fold is the checksum over bytes that hold one: 0 if it is right (RFC 1071).
func fold(b []byte) uint16 {
	var sum uint32
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	sum = sum&0xffff + sum>>16
	return ^uint16(sum&0xffff + sum>>16)
}

func synFrame(t *testing.T) []byte {
	t.Helper()
	f, err := packet.Build(packet.Spec{Flags: new(uint8(2))})
	if err != nil {
		t.Fatal(err)
	}
	return f
}
