package api

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// piped is a listener whose connections are pipes of this process, so that time can be a test's.
type piped struct{ conns chan net.Conn }

func (p *piped) Accept() (net.Conn, error) {
	c, open := <-p.conns
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p *piped) Close() error   { return nil }
func (p *piped) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7443} }

// TestAHalfRequestHasSecondsToBecomeOne: 200 connections that had sent the half of a head kept
// others out for as long as they liked. A head has five seconds, however slowly it goes on; what
// follows it has twenty in all.
func TestAHalfRequestHasSecondsToBecomeOne(t *testing.T) {
	for _, c := range []struct {
		name, sent, more string
		most             time.Duration
	}{
		{"nothing", "", "", headerTimeout},
		{"a line", "GET /api/v1/ticks HTTP/1.1\r\n", "", headerTimeout},
		{"a head that goes on", "GET /api/v1/ticks HTTP/1.1\r\n", "x", headerTimeout},
		{"a body that goes on", "POST /api/v1/echo HTTP/1.1\r\nHost: 127.0.0.1\r\n" +
			"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", " ", readTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				type echo struct {
					Body struct {
						Text string `json:"text"`
					}
				}
				s, err := New(Options{Log: t.Logf, Routes: []Route{Post("/api/v1/echo", Anybody,
					"Echo.", func(context.Context, *echo) (*echo, error) { return nil, nil })}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				l := &piped{make(chan net.Conn)}
				ended := make(chan error)
				go func() { ended <- s.Serve(ctx, &Listener{Listener: l}) }()
				near, far := net.Pipe()
				l.conns <- far
				begun := time.Now()
				var client sync.WaitGroup
				client.Go(func() {
					_, err := io.WriteString(near, c.sent)
					for c.more != "" && err == nil {
						time.Sleep(time.Second)
						_, err = io.WriteString(near, c.more)
					}
				})
				_, _ = io.Copy(io.Discard, near) // until the server lets it go
				if took := time.Since(begun); took > c.most+time.Second || took < c.most {
					t.Errorf("it had %v, want %v", took, c.most)
				}
				near.Close()
				client.Wait()
				stop()
				close(l.conns)
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestWhoReadsNothingKeepsNobodyOut: 128 connections, which asked for a file of the page or a
// document and took none of it, had all the room there is for a minute, again and again. They need
// no token for that, or one.
func TestWhoReadsNothingKeepsNobodyOut(t *testing.T) {
	tokens := OpenTokens(filepath.Join(t.TempDir(), "tokens.json"))
	token, err := tokens.Add("one", Viewer, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range []string{"", "Authorization: Bearer " + token + "\r\n"} {
		keepsNobodyOut(t, tokens, header)
	}
}

// keepsNobodyOut has as many connections as there may be ask with a header, and read nothing.
func keepsNobodyOut(t *testing.T, tokens *Tokens, header string) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Log: t.Logf, Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		l := &piped{make(chan net.Conn)}
		ended := make(chan error)
		go func() { ended <- s.Serve(ctx, &Listener{Listener: l}) }()
		var all []net.Conn
		ask := func(path string) net.Conn {
			near, far := net.Pipe()
			l.conns <- far
			all = append(all, near)
			_, _ = io.WriteString(near, "GET "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\n"+header+
				"\r\n")
			synctest.Wait()
			return near
		}
		for range maxConnections {
			ask("/api/v1/openapi.json")
		}
		head := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(ask("/api/v1/me"), head); err != nil || string(head[9:]) != "200" {
			t.Errorf("with %q one more is answered %q, %v", header, head, err)
		}
		for _, c := range all {
			c.Close()
		}
		stop()
		close(l.conns)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
