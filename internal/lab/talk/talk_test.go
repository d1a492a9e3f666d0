package talk

import (
	"bytes"
	"context"
	"net/netip"
	"testing"
	"time"

	"levee/internal/packet/a2s"
)

// patience is for what hangs.
const patience = 10 * time.Second

// served starts a service at an address of the loopback device of its own.
func served(t *testing.T, s *Service, at string) netip.Addr {
	t.Helper()
	addr := netip.MustParseAddr(at)
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Serve(ctx, addr, func() { close(ready) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Skipf("no port %d here: %v", s.Port, err)
	}
	return addr
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// TestClientsAreServed: each service serves a client of its own, over and over.
func TestClientsAreServed(t *testing.T) {
	for _, s := range All {
		t.Run(s.Name, func(t *testing.T) {
			to := served(t, s, "127.9.9.1")
			c, err := s.Dial(netip.MustParseAddr("127.0.0.1"), to)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.Join(patient(t)); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if s.GoesOn() {
					if err := c.GoOn(patient(t)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if s.tcp {
				if err := c.JoinByTCP(patient(t)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestPacketsOfASessionDoNotWait: one that nobody answers does not hold up the next.
func TestPacketsOfASessionDoNotWait(t *testing.T) {
	lost := make(chan struct{})
	s := *games
	s.answer = func(k key, from netip.AddrPort, msg []byte) []byte {
		if at(msg, 16, []byte{0, 0, 0, 1}) { // the first of its session
			close(lost)
			return nil
		}
		return games.answer(k, from, msg)
	}
	c, err := s.Dial(netip.MustParseAddr("127.0.0.1"), served(t, &s, "127.9.9.2"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	first := make(chan error, 1)
	go func() { first <- c.GoOn(ctx) }()
	<-lost
	if err := c.GoOn(patient(t)); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-first; err == nil {
		t.Error("a packet is answered that the server has lost")
	}
}

// TestWhatAServerSaysIsOfItsClient: what one client was told is of no use to another, nor to the
// same one at another port.
func TestWhatAServerSaysIsOfItsClient(t *testing.T) {
	k := key{1, 2}
	one := netip.MustParseAddrPort("192.0.2.1:1000")
	other := netip.MustParseAddrPort("192.0.2.1:1001")
	if bytes.Equal(k.value(one, 4), k.value(other, 4)) || len(k.value(one, 16)) != 16 {
		t.Error("two ports have the same value")
	}
	for _, s := range All {
		for _, line := range s.Forged {
			if line == "" {
				t.Errorf("%s has an empty line", s.Name)
			}
		}
		if (len(s.Stray) > 0) != s.GoesOn() {
			t.Errorf("%s goes on: %v; packets of no session: %q", s.Name, s.GoesOn(), s.Stray)
		}
	}
	for of, answer := range a2sAnswers {
		number, ok := a2s.Number(games.answer(k, one, a2s.Query(of, 0)))
		if !ok {
			t.Fatalf("a query %x is given no number", of)
		}
		if got := games.answer(k, one, a2s.Query(of, number)); !bytes.Equal(got, answer) {
			t.Errorf("who sends the number back gets %x", got)
		}
		got := games.answer(k, other, a2s.Query(of, number))
		if n, ok := a2s.Number(got); !ok || n == number {
			t.Errorf("who sends another's number gets %x", got)
		}
	}
}

// TestHostileMessagesAreNoAnswer: each prefix of each message, and bytes of no meaning.
func TestHostileMessagesAreNoAnswer(t *testing.T) {
	from := netip.MustParseAddrPort("192.0.2.1:1000")
	for _, s := range All {
		for _, msg := range [][]byte{a2s.Query(a2s.Info), goldFirst, rakPing(0), rakFirst,
			quicInitial(drawn(8)),
			wgHandshake(drawn(4)), query(1, existing), hexed("3801020304050607080000000000"),
			bytes.Repeat([]byte{0xff}, 64)} {
			for n := range len(msg) {
				s.answer(key{}, from, msg[:n])
			}
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte("\x05\x00"))
	from := netip.MustParseAddrPort("192.0.2.1:1000")
	f.Fuzz(func(t *testing.T, msg []byte) {
		msg = msg[:min(len(msg), largest)] // what a server reads
		for _, s := range All {
			if len(s.answer(key{}, from, msg)) > largest {
				t.Errorf("%s answers with more than a packet", s.Name)
			}
		}
	})
}
