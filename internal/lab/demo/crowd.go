package demo

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// What a crowd asks for, as Request.What says.
const (
	Web      = "web"      // a page, over a connection of its own
	Datagram = "datagram" // an answer by UDP
	Lookup   = "lookup"   // asked by the host, answered from port 53
	Ping     = "ping"
	Download = "download" // over connections that stay
	Upload   = "upload"
)

// Whats are all of them.
var Whats = []string{Web, Datagram, Lookup, Ping, Download, Upload}

// Rates of a crowd a second. A host that gets these receives about 800 packets a second.
const (
	webRate, datagramRate, lookupRate, pingRate = 50, 50, 50, 10
	transferRate                                = 20
	downloadSize                                = 50_000 // bytes
	uploadSize                                  = 25_000
)

// transferPort is the port on which a host serves transfers.
const transferPort = 8080

// host is the destination of a crowd: the service, transfers, and a program that looks names up.
func host(ctx context.Context, addr netip.AddrPort, resolvers []netip.Addr, out io.Writer) error {
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr.Addr(), transferPort).String())
	if err != nil {
		return fmt.Errorf("starting the transfers: %w", err)
	}
	s := &http.Server{Handler: transfers(), ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	go s.Serve(l) // ends with Close, and says nothing else
	return serve(ctx, addr.String(), func() {
		fmt.Fprintln(out, "ready")
		go newTeller(out).openLoop(ctx, Lookup, lookupRate,
			func(ctx context.Context, i int, _ time.Time) error {
				return lookup(ctx, addr.Addr(), resolvers[i%len(resolvers)])
			})
	})
}

// transfers gives who asks by GET as many bytes as the query says, and takes what is posted.
func transfers() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body) // what a client does not send is its own loss
			return
		}
		n, err := strconv.Atoi(r.URL.RawQuery)
		if err != nil || n < 0 || n > 1<<20 {
			http.Error(w, "how many bytes?", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(n))
		_, _ = w.Write(make([]byte, n)) // a client who has left is no error
	})
}

// crowd comes to a host from addresses, and has resolvers there.
func crowd(ctx context.Context, to netip.AddrPort, from []netip.Addr, out io.Writer) error {
	for _, a := range from {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, dnsPort)))
		if err != nil {
			return fmt.Errorf("starting a resolver: %w", err)
		}
		defer c.Close()
		go resolve(c)
	}
	one := func(i int) netip.Addr { return from[i%len(from)] }
	visitors := webClients(from)
	persistent := []*http.Client{persist(one(0)), persist(one(1))}
	transfer := "http://" + netip.AddrPortFrom(to.Addr(), transferPort).String() + "/?"
	t := newTeller(out)
	var all sync.WaitGroup
	for _, kind := range []struct {
		what string
		rate float64
		ask  func(ctx context.Context, i int, due time.Time) error
	}{
		{Web, webRate, func(ctx context.Context, i int, _ time.Time) error {
			return ask(ctx, visitors[i%len(visitors)], "http://"+to.String()+"/")
		}},
		{Datagram, datagramRate, func(ctx context.Context, i int, _ time.Time) error {
			return datagram(ctx, one(i), netip.AddrPortFrom(to.Addr(), udpPort), i)
		}},
		{Ping, pingRate, func(ctx context.Context, i int, _ time.Time) error {
			return ping(ctx, one(i), to.Addr(), i)
		}},
		{Download, transferRate, func(ctx context.Context, i int, _ time.Time) error {
			return ask(ctx, persistent[0], transfer+strconv.Itoa(downloadSize))
		}},
		{Upload, transferRate, func(ctx context.Context, i int, _ time.Time) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, transfer,
				bytes.NewReader(make([]byte, uploadSize)))
			if err != nil {
				return err
			}
			return answered(persistent[1], req)
		}},
	} {
		all.Go(func() { t.openLoop(ctx, kind.what, kind.rate, kind.ask) })
	}
	all.Wait()
	return nil
}

// persist returns a client whose connections stay.
func persist(from netip.Addr) *http.Client {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
	return &http.Client{Transport: &http.Transport{DialContext: d.DialContext,
		MaxIdleConnsPerHost: transferRate, DisableCompression: true}}
}

// datagram asks the service by one datagram for another of the same length: QUIC's first is 1,200
// bytes or more, games and calls send small ones.
func datagram(ctx context.Context, from netip.Addr, to netip.AddrPort, i int) error {
	size := 40 + rand.IntN(200)
	if i%3 == 0 {
		size = 1200 + rand.IntN(150)
	}
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: from.AsSlice()}}
	c, err := d.DialContext(ctx, "udp", to.String())
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, size)
	binary.BigEndian.PutUint64(b, rand.Uint64())
	return exchange(ctx, c, b, func(answer []byte) bool { return bytes.Equal(answer, b) })
}

// exchange sends one message and waits for its answer until ctx's deadline.
func exchange(ctx context.Context, c net.Conn, b []byte, is func(answer []byte) bool) error {
	if end, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(end); err != nil {
			return err
		}
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	answer := make([]byte, 1<<16)
	for {
		n, err := c.Read(answer)
		if err != nil {
			return err
		}
		if is(answer[:n]) {
			return nil
		}
	}
}

// Data of pings, in bytes: 56 by ping(8), none by one in 20, as scanners and some monitors send: of
// all packets of a crowd that is one in 1,600.
const (
	pingData   = 56
	barePings  = 20
	echoHeader = 8
	echoReply  = byte(ipv4.ICMPTypeEchoReply)
)

// ping sends an echo request and waits for its reply.
func ping(ctx context.Context, from, to netip.Addr, i int) error {
	c, err := net.DialIP("ip4:icmp", &net.IPAddr{IP: from.AsSlice()}, &net.IPAddr{IP: to.AsSlice()})
	if err != nil {
		return err
	}
	defer c.Close()
	e := &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: i & 0xffff, Data: make([]byte, pingData)}
	if i%barePings == 0 {
		e.Data = nil
	}
	b, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: e}).Marshal(nil)
	if err != nil {
		return err
	}
	return exchange(ctx, c, b, func(answer []byte) bool {
		answer = answer[min(len(answer), ipv4.HeaderLen):] // it comes with its IP header
		return len(answer) >= echoHeader && answer[0] == echoReply &&
			bytes.Equal(answer[4:echoHeader], b[4:echoHeader])
	})
}
