package demo

import (
	"bufio"
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
	const rate, stall = 100, 400 * time.Millisecond
	var n atomic.Int32
	var until atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 20 {
			until.Store(time.Now().Add(stall).UnixNano())
		}
		time.Sleep(time.Until(time.Unix(0, until.Load())))
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
	// 40 were due while it stalled, 35 of them more than 50 ms before its end.
	if slow < 30 {
		t.Errorf("%d requests were slow, want 35 or so", slow)
	}
}

func TestAnAnswerAfterPatienceIsAFailure(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		io.WriteString(w, "page")
	}))
	defer s.Close()
	addr := strings.TrimPrefix(s.URL, "http://")
	if err := ask(t.Context(), http.DefaultClient, addr, time.Now()); err != nil {
		t.Error(err)
	}
	if err := ask(t.Context(), http.DefaultClient, addr, time.Now().Add(-Patience)); err == nil {
		t.Error("a request that was due too long ago was answered")
	}
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
	if err := ask(t.Context(), http.DefaultClient, addr, time.Now()); err != nil {
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
	if !retarget(frame, to) {
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
		if retarget(spoil(synFrame(t)), to) {
			t.Errorf("%s: taken for TCP", name)
		}
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
