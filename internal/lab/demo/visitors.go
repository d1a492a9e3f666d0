package demo

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"levee/internal/kernel"
)

// Patience is how long a visitor waits for the whole answer, from the moment at which the request
// was due.
const Patience = time.Second

// page writes what the service answers with: rendered and compressed anew for each visitor, half a
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
		IP: l.Addr().(*net.TCPAddr).IP, Port: UDPPort})
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
	// Each visitor comes once, as after a search: the handshake is what floods are aimed at.
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
	Due int64 `json:"due"` // ns of the monotonic clock: when it should have been sent
	NS  int64 `json:"ns"`  // from Due to the last byte of the answer; 0: none within Patience
}

// visitors sends requests to addr at a fixed rate, whatever becomes of those before (an open loop),
// and writes each outcome to out as a line of JSON.
func visitors(ctx context.Context, addr string, from []netip.Addr, perSecond float64,
	out io.Writer) error {
	var clients []*http.Client
	for _, a := range from {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: a.AsSlice()}}
		clients = append(
			clients, &http.Client{Transport: &http.Transport{DialContext: d.DialContext,
				DisableKeepAlives: true, DisableCompression: true}})
	}
	var mu sync.Mutex
	enc := json.NewEncoder(out)
	var all sync.WaitGroup
	defer all.Wait()
	interval := time.Duration(float64(time.Second) / perSecond)
	start, origin := time.Now(), int64(kernel.Monotonic())
	for i := 0; ; i++ {
		offset := time.Duration(i) * interval
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(start.Add(offset))):
		}
		all.Go(func() {
			r := Request{Due: origin + offset.Nanoseconds()}
			if ask(ctx, clients[i%len(clients)], addr, start.Add(offset)) == nil {
				r.NS = time.Since(start.Add(offset)).Nanoseconds()
			}
			if ctx.Err() != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			_ = enc.Encode(r) // the parent that does not read any more ends this process
		})
	}
}

// ask is one request that was due at a time.
func ask(ctx context.Context, c *http.Client, addr string, due time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, due.Add(Patience))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return err
	}
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
