package lookup

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// server is a resolver that the test asks in the place of those of the system.
type server struct {
	t     *testing.T
	udp   net.PacketConn
	tcp   net.Listener
	serve func(b *dnsmessage.Builder, q dnsmessage.Question) dnsmessage.RCode
	large bool // answers by UDP are cut off
}

func newServer(t *testing.T) *server {
	s := &server{t: t}
	var err error
	if s.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if s.udp, err = net.ListenPacket("udp", s.tcp.Addr().String()); err != nil {
		t.Skipf("the UDP port beside that of TCP is taken: %v", err)
	}
	t.Cleanup(func() { s.tcp.Close(); s.udp.Close() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, from, err := s.udp.ReadFrom(b)
			if err != nil {
				return
			}
			s.udp.WriteTo(s.answer(b[:n], s.large), from)
		}
	}()
	go func() {
		for {
			c, err := s.tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var n [2]byte
				if _, err := io.ReadFull(c, n[:]); err != nil {
					return
				}
				q := make([]byte, binary.BigEndian.Uint16(n[:]))
				if _, err := io.ReadFull(c, q); err != nil {
					return
				}
				a := s.answer(q, false)
				for _, part := range bytes.SplitAfter(append(binary.BigEndian.AppendUint16(nil,
					uint16(len(a))), a...), []byte{0}) {
					c.Write(part)
				}
			}()
		}
	}()
	return s
}

func (s *server) answer(query []byte, cut bool) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		s.t.Error(err)
		return nil
	}
	q, err := p.Question()
	if err != nil {
		s.t.Error(err)
		return nil
	}
	build := func(code dnsmessage.RCode) ([]byte, dnsmessage.RCode) {
		b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: h.ID, Response: true, RCode: code,
			RecursionAvailable: true, Truncated: cut})
		b.StartQuestions()
		b.Question(q)
		b.StartAnswers()
		if !cut {
			code = s.serve(&b, q)
		}
		out, err := b.Finish()
		if err != nil {
			s.t.Error(err)
		}
		return out, code
	}
	out, code := build(0)
	if code != 0 {
		out, _ = build(code)
	}
	return out
}

func (s *server) lookup(family, name string) (Answer, error) {
	d := net.Dialer{Timeout: time.Minute}
	return lookup(s.t.Context(), func(network string) string {
		if strings.HasPrefix(network, "udp") {
			return s.udp.LocalAddr().String()
		}
		return s.tcp.Addr().String()
	}, d, family, name)
}

func head(name string, ttl uint32) dnsmessage.ResourceHeader {
	return dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name),
		Class: dnsmessage.ClassINET, TTL: ttl}
}

func TestAnswers(t *testing.T) {
	s := newServer(t)
	many := func(b *dnsmessage.Builder, n int, ttl uint32) {
		for i := range n {
			a := dnsmessage.AResource{A: [4]byte{192, 0, 2, byte(n - i)}}
			b.AResource(head("a.example.", ttl), a)
		}
	}
	for _, test := range []struct {
		name  string
		serve func(*dnsmessage.Builder, dnsmessage.Question) dnsmessage.RCode
		large bool
		want  string // addresses and time to live
	}{
		{"two addresses", func(b *dnsmessage.Builder, _ dnsmessage.Question) dnsmessage.RCode {
			many(b, 2, 300)
			return 0
		}, false, "192.0.2.1 192.0.2.2 5m0s"},
		{"an alias that lasts less", func(b *dnsmessage.Builder,
			_ dnsmessage.Question) dnsmessage.RCode {
			b.CNAMEResource(head("a.example.", 60), dnsmessage.CNAMEResource{
				CNAME: dnsmessage.MustNewName("b.example.")})
			b.AResource(head("b.example.", 300), dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}})
			return 0
		}, false, "192.0.2.1 1m0s"},
		{"by TCP", func(b *dnsmessage.Builder, _ dnsmessage.Question) dnsmessage.RCode {
			many(b, 2, 120)
			return 0
		}, true, "192.0.2.1 192.0.2.2 2m0s"},
		{"no such name", func(*dnsmessage.Builder, dnsmessage.Question) dnsmessage.RCode {
			return dnsmessage.RCodeNameError
		}, false, "0s"},
		{"no address", func(*dnsmessage.Builder, dnsmessage.Question) dnsmessage.RCode { return 0 },
			false, "0s"},
		{"a server that fails", func(*dnsmessage.Builder, dnsmessage.Question) dnsmessage.RCode {
			return dnsmessage.RCodeServerFailure
		}, false, "error"},
		{"more than are taken", func(b *dnsmessage.Builder,
			_ dnsmessage.Question) dnsmessage.RCode {
			many(b, maxAddresses+3, 0)
			return 0
		}, true, "32 of 35 1s"},
	} {
		s.serve, s.large = test.serve, test.large
		a, err := s.lookup("ip4", "a.example")
		var words []string
		for _, addr := range a.Addresses {
			words = append(words, addr.String())
		}
		if a.Left > 0 {
			words = []string{"32 of 35"}
		}
		got := strings.Join(append(words, a.TTL.String()), " ")
		if err != nil {
			got = "error"
		}
		if got != test.want {
			t.Errorf("%s: %s (%v), wanted %s", test.name, got, err, test.want)
		}
	}
	s.large = false
	s.serve = func(b *dnsmessage.Builder, q dnsmessage.Question) dnsmessage.RCode {
		if q.Type == dnsmessage.TypeAAAA {
			b.AAAAResource(head("a.example.", 90),
				dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("2001:db8::1").As16()})
		}
		return 0
	}
	a, err := s.lookup("ip6", "a.example")
	if want := []netip.Addr{netip.MustParseAddr("2001:db8::1")}; err != nil ||
		!slices.Equal(a.Addresses, want) || a.TTL != 90*time.Second {
		t.Errorf("%+v, %v", a, err)
	}
}

func FuzzMessage(f *testing.F) {
	s := &server{serve: func(b *dnsmessage.Builder, q dnsmessage.Question) dnsmessage.RCode {
		b.AResource(head("a.example.", 300), dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}})
		return 0
	}}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 1})
	b.StartQuestions()
	b.Question(dnsmessage.Question{Name: dnsmessage.MustNewName("a.example."),
		Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET})
	query, err := b.Finish()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.answer(query, false))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := &watch{}
		w.message(b)
		if w.least() < 0 || w.heard && w.ttl == 0 {
			t.Errorf("%+v", w)
		}
	})
}
