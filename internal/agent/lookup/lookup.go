// Package lookup asks the resolvers of the system for the addresses of names, and how long these
// last.
//
// In go names, out come addresses of one family with their time to live. Go's resolver does all of
// it: hosts, search order, retries, TCP, CNAMEs. It does not tell times to live, so that answers
// are read along as they pass. It keeps nothing.
package lookup

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// maxAddresses is the largest number of addresses of a family for a name; the others are left out.
const maxAddresses = 32

// Answer lists the addresses of a name.
type Answer struct {
	Addresses []netip.Addr  // sorted; none: of this family, or there is no such name
	TTL       time.Duration // 0: nobody said one, as for a name in /etc/hosts
	Left      int           // addresses beyond maxAddresses
}

// Lookup asks for the addresses of a whole name, of family "ip4" or "ip6". An error means that
// nobody knows.
func Lookup(ctx context.Context, dial net.Dialer, family, name string) (Answer, error) {
	return lookup(ctx, nil, dial, family, name)
}

// lookup asks the server that at names for a network, in the place of those of the system.
func lookup(ctx context.Context, at func(network string) string, dial net.Dialer, family,
	name string) (Answer, error) {
	w := &watch{}
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (
		net.Conn, error) {
		if at != nil {
			address = at(network)
		}
		c, err := dial.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if u, ok := c.(*net.UDPConn); ok {
			return &datagrams{u, w}, nil
		}
		return &stream{Conn: c, to: w}, nil
	}}
	all, err := r.LookupNetIP(ctx, family, name+".")
	// /etc/hosts has the name, and no address of the family.
	other := errors.As(err, new(*net.AddrError))
	var dns *net.DNSError
	if other || errors.As(err, &dns) && dns.IsNotFound {
		return Answer{TTL: w.least()}, nil
	}
	if err != nil {
		return Answer{}, err
	}
	for i := range all {
		all[i] = all[i].Unmap().WithZone("")
	}
	slices.SortFunc(all, netip.Addr.Compare)
	all = slices.Compact(all)
	out := Answer{Addresses: all, TTL: w.least()}
	if len(all) > maxAddresses {
		out.Addresses, out.Left = all[:maxAddresses], len(all)-maxAddresses
	}
	return out, nil
}

// watch notes the shortest time to live of all answers.
type watch struct {
	mu    sync.Mutex // answers of several servers may come at once
	ttl   uint32
	heard bool
}

func (w *watch) least() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.ttl) * time.Second
}

// message reads one message along. What is no answer the resolver throws away too.
func (w *watch) message(b []byte) {
	var p dnsmessage.Parser
	if h, err := p.Start(b); err != nil || !h.Response || p.SkipAllQuestions() != nil {
		return
	}
	for {
		h, err := p.AnswerHeader()
		if err != nil {
			return
		}
		switch h.Type {
		case dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeCNAME:
			w.mu.Lock()
			if ttl := max(h.TTL, 1); !w.heard || ttl < w.ttl {
				w.ttl, w.heard = ttl, true
			}
			w.mu.Unlock()
		}
		if p.SkipAnswer() != nil {
			return
		}
	}
}

// datagrams are answers by UDP.
type datagrams struct {
	*net.UDPConn
	to *watch
}

func (d *datagrams) Read(b []byte) (int, error) {
	n, err := d.UDPConn.Read(b)
	if err == nil {
		d.to.message(b[:n])
	}
	return n, err
}

// stream are answers by TCP, each with its length before it (RFC 1035, 4.2.2).
type stream struct {
	net.Conn
	to  *watch
	got []byte
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.got = append(s.got, b[:n]...)
	for len(s.got) >= 2 {
		end := 2 + int(binary.BigEndian.Uint16(s.got))
		if len(s.got) < end {
			break
		}
		s.to.message(s.got[2:end])
		s.got = s.got[end:]
	}
	return n, err
}
