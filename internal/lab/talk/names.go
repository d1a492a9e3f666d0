package talk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// The zone that the name server serves, and a name that it has.
const (
	zone     = "example."
	existing = "www." + zone
)

// names is a name server. A client whose answer is cut short asks again over TCP.
var names = &Service{
	Name: "dns-authoritative", What: "look a name up", Port: 53,
	Forged: forgedQueries(), AddressIsProof: true,
	again:  500 * time.Millisecond,
	tcp:    true,
	answer: func(_ key, _ netip.AddrPort, msg []byte) []byte { return resolved(msg) },
	join: func(c *talk) error {
		q := query(uint16(rand.Uint32()), existing)
		answer, err := c.ask(q, func(b []byte) bool { return at(b, 0, q[:2]) && len(b) >= 12 })
		if err != nil {
			return err
		}
		if truncated := answer[2]&2 != 0; !truncated {
			return hasAddress(answer)
		}
		return c.overTCP(q)
	},
	goOn: nil,
}

// forgedQueries are queries for the name that there is and for drawn ones, in turn.
func forgedQueries() (lines []string) {
	r := rand.New(rand.NewPCG(1, 0))
	for i := range 16 {
		name := existing
		if i%2 == 1 {
			name = fmt.Sprintf("%03x.%s", r.Uint32()&0xfff, zone)
		}
		lines = append(lines, forged(query(uint16(r.Uint32()), name), ""))
	}
	return lines
}

// query returns a query for the address of a name.
func query(id uint16, name string) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: id},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name),
			Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b, err := m.Pack()
	if err != nil {
		panic(err) // the name is valid
	}
	return b
}

// resolved returns the answer to a query, nil if msg is no query.
func resolved(msg []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || h.Response {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true,
		Authoritative: true}, Questions: []dnsmessage.Question{q}}
	if q.Name.String() == existing {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name,
			Class: q.Class, TTL: 300}, Body: &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}}}}
	} else {
		m.RCode = dnsmessage.RCodeNameError
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

// hasAddress returns an error if an answer lacks the address of the query.
func hasAddress(answer []byte) error {
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		return err
	}
	if len(m.Answers) == 0 {
		return errors.New("an answer without an address")
	}
	return nil
}

// JoinByTCP looks a name up over TCP, as who was told before to come so.
func (c *Client) JoinByTCP(ctx context.Context) error {
	return c.do(ctx, func(c *talk) error {
		return c.overTCP(query(uint16(rand.Uint32()), existing))
	})
}

// overTCP asks over TCP.
func (c *talk) overTCP(q []byte) error {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: c.from.AsSlice()}}
	conn, err := d.DialContext(c.ctx, "tcp", c.to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	end, _ := c.ctx.Deadline()
	if err := errors.Join(conn.SetDeadline(end), writeMessage(conn, q)); err != nil {
		return err
	}
	answer, err := readMessage(conn)
	if err != nil {
		return err
	}
	return hasAddress(answer)
}

// readMessage reads a message behind its length.
func readMessage(r io.Reader) ([]byte, error) {
	var n [2]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(n[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

// writeMessage writes a message behind its length.
func writeMessage(w io.Writer, msg []byte) error {
	_, err := w.Write(slices.Concat(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg))
	return err
}
