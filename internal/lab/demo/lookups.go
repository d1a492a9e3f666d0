package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	dnsPort   = 53
	dnsBuffer = 4096 // what a resolver may send (RFC 6891 section 6.2.5)
	// what an answer has besides the text that is asked for: header, question, record, OPT
	dnsOverhead = 80
	textPiece   = 255 // bytes of a string in a TXT record
)

// answerSize draws how long the text of an answer is, in bytes: most answers have an address or
// two, some are long, and one in two hundred comes in fragments.
func answerSize(r *rand.Rand) int {
	switch n := r.IntN(1000); {
	case n < 800:
		return 10 + r.IntN(200)
	case n < 950:
		return 200 + r.IntN(600)
	case n < 995:
		return 800 + r.IntN(550)
	}
	return 1500 + r.IntN(1500)
}

// lookup asks a resolver for a name, and wants an answer of a size that it draws.
func lookup(ctx context.Context, from, resolver netip.Addr) error {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	size := answerSize(r)
	name, err := dnsmessage.NewName(fmt.Sprintf("%x.%d.example.", r.Uint32(), size))
	if err != nil {
		return err
	}
	id := uint16(r.Uint32())
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, RecursionDesired: true})
	err = errors.Join(b.StartQuestions(), b.Question(dnsmessage.Question{Name: name,
		Type: dnsmessage.TypeTXT, Class: dnsmessage.ClassINET}), options(&b))
	if err != nil {
		return err
	}
	query, err := b.Finish()
	if err != nil {
		return err
	}
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: from.AsSlice()}}
	c, err := d.DialContext(ctx, "udp", netip.AddrPortFrom(resolver, dnsPort).String())
	if err != nil {
		return err
	}
	defer c.Close()
	return exchange(ctx, c, query, func(answer []byte) bool {
		var p dnsmessage.Parser
		h, err := p.Start(answer)
		return err == nil && h.ID == id && h.Response && len(answer) >= size
	})
}

// options adds the size of the buffer to a message.
func options(b *dnsmessage.Builder) error {
	var h dnsmessage.ResourceHeader
	err := h.SetEDNS0(dnsBuffer, dnsmessage.RCodeSuccess, false)
	return errors.Join(err, b.StartAdditionals(), b.OPTResource(h, dnsmessage.OPTResource{}))
}

// resolve answers questions until the socket is closed.
func resolve(c *net.UDPConn) {
	b := make([]byte, 1500)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if answer, err := answerTo(b[:n]); err == nil {
			_, _ = c.WriteToUDPAddrPort(answer, from) // who does not listen is no error
		}
	}
}

// answerTo returns the answer to a question: text of the length that its name says.
func answerTo(question []byte) ([]byte, error) {
	var p dnsmessage.Parser
	h, err := p.Start(question)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(q.Name.String(), ".")
	word, _, _ := strings.Cut(rest, ".")
	size, err := strconv.Atoi(word)
	if err != nil || size < 1 || size > dnsBuffer-dnsOverhead {
		return nil, fmt.Errorf("a name without a size: %v", q.Name)
	}
	var text []string
	for left := size; left > 0; left -= textPiece {
		text = append(text, strings.Repeat("v", min(left, textPiece)))
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: h.ID, Response: true,
		RecursionDesired: true, RecursionAvailable: true})
	b.EnableCompression()
	err = errors.Join(b.StartQuestions(), b.Question(q), b.StartAnswers(),
		b.TXTResource(dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 300},
			dnsmessage.TXTResource{TXT: text}), options(&b))
	if err != nil {
		return nil, err
	}
	return b.Finish()
}
