package demo

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"levee/internal/kernel"
)

// Patience is the time that a visitor waits for the whole answer, from the moment at which the
// request was due.
const Patience = time.Second

// page writes the answer of the service: rendered and compressed anew for each visitor, half a
// millisecond or so of work, as much as a shop does that has its data at hand.
func page(w io.Writer, visit int64) error {
	z := gzip.NewWriter(w)
	fmt.Fprintf(z, "<!doctype html><title>A small shop</title><p>Visit %d<ul>\n", visit)
	for i := range int64(articles) {
		fmt.Fprintf(z, "<li>article %d, %d in stock, sent the same day</li>\n", i,
			(visit*7919+i*104729)%997)
	}
	return z.Close()
}

const articles = 450

// serve is the service: HTTP on addr, and answers to datagrams, until ctx ends. ready is called
// once it accepts connections.
func serve(ctx context.Context, addr string, ready func()) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("starting the service: %w", err)
	}
	datagrams, err := net.ListenUDP("udp", &net.UDPAddr{
		IP: l.Addr().(*net.TCPAddr).IP, Port: udpPort})
	if err != nil {
		return errors.Join(fmt.Errorf("starting the service: %w", err), l.Close())
	}
	defer datagrams.Close()
	go answer(datagrams)
	var visits atomic.Int64
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Content-Type", "text/html")
			h.Set("Content-Encoding", "gzip")
			var b bytes.Buffer
			if page(&b, visits.Add(1)) == nil {
				h.Set("Content-Length", strconv.Itoa(b.Len())) // so that half an answer is none
				_, _ = w.Write(b.Bytes())                      // a visitor who has left is no error
			}
		}),
		ReadHeaderTimeout: 5 * time.Second,
	}
	// Each visitor comes once, as after a search: floods aim at the handshake.
	s.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	ready()
	if err := s.Serve(l); err != http.ErrServerClosed {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// answer sends each datagram back, as a service does that asks a client for its address (RFC 9000
// section 8.1.2), until the socket is closed.
func answer(s *net.UDPConn) {
	b := make([]byte, 1500)
	for {
		n, from, err := s.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = s.WriteToUDPAddrPort(b[:n], from) // who does not listen is no error
		}
	}
}

// Request is one request of one visitor, as it is told to the parent process.
type Request struct {
	Due  int64  `json:"due"` // ns of the monotonic clock: when it should have been sent
	NS   int64  `json:"ns"`  // from Due to the last byte of the answer; 0: none within Patience
	What string `json:"what,omitempty"`
}

// teller writes outcomes as lines of JSON. Its methods may be used from several goroutines.
type teller struct {
	mu  sync.Mutex
	enc *json.Encoder
	// spread has each request be due at a drawn moment of its interval. Limits count by the
	// kernel's ticks, so that requests at a fixed rate would all meet the same part of one: the
	// first packets of each tick pass, or none.
	spread   bool
	patience time.Duration
}

func newTeller(out io.Writer) *teller {
	return &teller{enc: json.NewEncoder(out), patience: Patience}
}

func (t *teller) tell(r Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.enc.Encode(r) // the parent that does not read any more ends this process
}

// openLoop calls ask at a fixed rate until ctx ends, whatever becomes of the requests before, and
// tells each outcome; i counts them, and due is when one should have been sent.
func (t *teller) openLoop(ctx context.Context, what string, perSecond float64,
	ask func(ctx context.Context, i int, due time.Time) error) {
	var all sync.WaitGroup
	defer all.Wait()
	interval := time.Duration(float64(time.Second) / perSecond)
	start, origin := time.Now(), int64(kernel.Monotonic())
	for i := 0; ; i++ {
		offset := time.Duration(i) * interval
		if t.spread {
			offset += rand.N(interval)
		}
		due := start.Add(offset)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		all.Go(func() {
			patient, cancel := context.WithDeadline(ctx, due.Add(t.patience))
			defer cancel()
			r := Request{Due: origin + offset.Nanoseconds(), What: what}
			if ask(patient, i, due) == nil {
				r.NS = time.Since(due).Nanoseconds()
			}
			if ctx.Err() == nil {
				t.tell(r)
			}
		})
	}
}

// visitors sends requests to addr at a fixed rate, and writes each outcome to out.
func visitors(ctx context.Context, addr string, from []netip.Addr, perSecond float64,
	out io.Writer) error {
	clients := webClients(from)
	newTeller(out).openLoop(ctx, "", perSecond,
		func(ctx context.Context, i int, _ time.Time) error {
			return ask(ctx, clients[i%len(clients)], "http://"+addr+"/")
		})
	return nil
}

// webClients are clients that come from addresses, with a connection for each request.
func webClients(from []netip.Addr) (clients []*http.Client) {
	for _, a := range from {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: a.AsSlice()}}
		clients = append(
			clients, &http.Client{Transport: &http.Transport{DialContext: d.DialContext,
				DisableKeepAlives: true, DisableCompression: true}})
	}
	return clients
}

// ask is one request, which waits as long as ctx does.
func ask(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	return answered(c, req)
}

// answered tells whether a request gets a whole answer.
func answered(c *http.Client, req *http.Request) error {
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("answer %s", res.Status)
	}
	return nil
}
