// Package exporter serves metrics over HTTP. In go a place to listen at and what makes the text,
// out come answers at /metrics. It must never make two texts at once, nor wait for a reader without
// a bound.
package exporter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"levee/internal/openmetrics"
)

// Address reads PORT, ADDRESS:PORT or unix:PATH. Where no address stands before the port, it is the
// loopback's.
func Address(v string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(v, "unix:"); ok {
		if path == "" {
			return "", "", errors.New("behind \"unix:\" a path is missing")
		}
		return "unix", path, nil
	}
	if !strings.Contains(v, ":") {
		v = ":" + v
	}
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		return "", "", fmt.Errorf("%q is no PORT, ADDRESS:PORT or unix:PATH", v)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", "", fmt.Errorf("%q is no port, 1 to 65535", port)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if net.ParseIP(host) == nil {
		return "", "", fmt.Errorf("%q is no address, such as 127.0.0.1 or [::1]", host)
	}
	return "tcp", net.JoinHostPort(host, port), nil
}

// Listen returns a listener. The socket of a process that is gone is taken over; one that answers
// stays, and so does a file that is no socket: it refuses who connects, too.
func Listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if network != "unix" || !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if st, serr := os.Lstat(address); serr == nil && st.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s is there already, and is no socket: remove it, or name another "+
			"path", address)
	}
	c, dialled := net.DialTimeout(network, address, time.Second)
	if dialled == nil {
		c.Close()
		return nil, err
	}
	if !errors.Is(dialled, syscall.ECONNREFUSED) {
		return nil, err
	}
	if err := os.Remove(address); err != nil {
		return nil, err
	}
	return net.Listen(network, address)
}

// Serve answers until ctx ends.
func Serve(ctx context.Context, l net.Listener,
	text func(openmetrics.Format) ([]byte, error)) error {
	server := &http.Server{
		Handler:           handler(text),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(&bounded{Listener: l}) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		return server.Close() // somebody reads too slowly
	}
	return nil
}

// mostConnections are open at a time: readers of metrics are few, and anybody may connect.
const mostConnections = 64

// bounded is a listener with so many connections at a time: one more lets the oldest go.
type bounded struct {
	net.Listener
	mu   sync.Mutex
	open []*held // in the order in which they came
}

type held struct {
	net.Conn
	of *bounded
}

func (b *bounded) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	own := &held{c, b}
	var gone *held
	b.mu.Lock()
	if b.open = append(b.open, own); len(b.open) > mostConnections {
		gone = b.open[0]
	}
	b.mu.Unlock()
	if gone != nil {
		gone.Close()
	}
	return own, nil
}

func (h *held) Close() error {
	h.of.mu.Lock()
	if i := slices.Index(h.of.open, h); i >= 0 {
		h.of.open = slices.Delete(h.of.open, i, i+1)
	}
	h.of.mu.Unlock()
	return h.Conn.Close()
}

// handler answers one request at a time: to ask is cheap, to read all counters is not.
func handler(text func(openmetrics.Format) ([]byte, error)) http.Handler {
	var one sync.Mutex
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		format := openmetrics.Text
		if strings.Contains(r.Header.Get("Accept"), "application/openmetrics-text") {
			format = openmetrics.OpenMetrics
		}
		one.Lock()
		out, err := text(format)
		one.Unlock()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", format.ContentType())
		_, _ = w.Write(out) // who asked may be gone
	})
	return mux
}
