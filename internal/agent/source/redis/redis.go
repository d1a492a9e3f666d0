// Package redis reads a list of Redis'. In goes an address and a key, out come the elements of the
// list. It takes away nothing that is not on the disk.
package redis

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"levee/internal/agent/follow"
	"levee/internal/agent/source/inlet"
	"levee/internal/host/secret"
)

// Times and bounds of reading a list.
const (
	redisWait  = 5 * time.Second // for the server
	redisPause = 100 * time.Millisecond
	redisDelay = 30 * time.Second // the longest between two attempts to reach the server
	maxRange   = 10_000           // elements that are asked for together
)

// redis reads a list of Redis'. It takes the whole list away under another name (RENAMENX), in one
// step that loses nothing, whichever end others push to. From that it cuts off what is on the disk
// (LTRIM), and only then: whoever is killed in between reads again what he had not leased.
type redis struct {
	*inlet.Queue
	place *inlet.Place
	list  string
	taken string        // the name under which the list is taken away
	wait  time.Duration // for the server
	ctx   context.Context
	stop  context.CancelFunc
	ended chan struct{}

	put     int64         // elements that were put into the queue
	handed  int64         // of these, handed on
	kept    atomic.Int64  // of these, on the disk
	changed chan struct{} // kept has
	waiting atomic.Int64  // elements in Redis
}

func newRedis(p *inlet.Place, wait time.Duration) *redis {
	list := p.Options[listWord]
	r := &redis{Queue: inlet.NewQueue(), place: p, list: list, taken: list + ":levee", wait: wait,
		ended: make(chan struct{}), changed: make(chan struct{}, 1)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	if !strings.Contains(list, "{") { // the same slot of a cluster
		r.taken = "{" + list + "}:levee"
	}
	r.Change(func(s *inlet.State) { s.Waits = fmt.Errorf("connecting to Redis at %s", p.At) })
	go r.run()
	return r
}

// Poll hands on what has come.
func (r *redis) Poll(most int64, line func([]byte)) (more bool, err error) {
	return r.Queue.Poll(most, func(b []byte) {
		r.handed++
		line(b)
	})
}

// Kept lets what was handed on be cut off the list.
func (r *redis) Kept() {
	r.kept.Store(r.handed)
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// State returns what there is to tell. What is in the queue is in Redis, too.
func (r *redis) State() inlet.State {
	s := r.Queue.State()
	s.LagLines, s.LagBytes = r.waiting.Load(), 0
	return s
}

// Close ends the connection, and waits for no answer. What was not kept stays in Redis.
func (r *redis) Close() {
	r.stop()
	r.End()
	<-r.ended
}

// run reads until the end, and reaches the server anew after errors.
func (r *redis) run() {
	defer close(r.ended)
	for delay := redisPause; ; delay = min(2*delay, redisDelay) {
		reached, err := r.session()
		select {
		case <-r.ctx.Done():
			return
		default:
		}
		r.Fail(fmt.Errorf("read list %s of Redis at %s: %w; the next attempt is in %s at most",
			r.list, r.place.At, err, redisDelay))
		if reached {
			delay = redisPause
		}
		select {
		case <-r.ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

// dial reaches the server, unless it is closed before. Over TLS the server has to have a
// certificate for the name or the address by which the policy calls it.
func (r *redis) dial() (net.Conn, error) {
	d := &net.Dialer{Timeout: r.wait}
	address, encrypted := strings.CutPrefix(r.place.At, overTLS)
	if !encrypted {
		network := "tcp"
		if filepath.IsAbs(address) {
			network = "unix"
		}
		return d.DialContext(r.ctx, network, address)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.place.Options[caWord] != "" { // read each time: it may be renewed
		text, err := os.ReadFile(r.place.Options[caWord])
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate (PEM)", r.place.Options[caWord])
		}
	}
	return (&tls.Dialer{NetDialer: d, Config: config}).DialContext(r.ctx, "tcp", address)
}

// greet says who asks.
func (r *redis) greet(c *respConn) error {
	if r.place.Options[passwordWord] == "" {
		return nil
	}
	password, err := secret.Read(r.place.Options[passwordWord])
	if err != nil {
		return err
	}
	args := []string{"AUTH", password}
	if r.place.Options[userWord] != "" {
		args = []string{"AUTH", r.place.Options[userWord], password}
	}
	_, err = c.do(args...)
	return err
}

// session reads from one connection until it fails; reached says that the server had answered.
func (r *redis) session() (reached bool, err error) {
	conn, err := r.dial()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer context.AfterFunc(r.ctx, func() { conn.Close() })()
	c := &respConn{c: conn, r: bufio.NewReaderSize(conn, 64<<10), wait: r.wait}
	if err := r.greet(c); err != nil {
		return false, err
	}
	for {
		n, err := r.length(c, r.taken)
		if err == nil && n == 0 {
			n, err = r.take(c)
		}
		if err != nil {
			return reached, err
		}
		more, err := r.length(c, r.list)
		if err != nil {
			return reached, err
		}
		r.waiting.Store(int64(n + more))
		r.Fail(nil)
		if n > 0 {
			if err := r.drain(c, n); err != nil {
				return reached, err
			}
			reached = true
			continue
		}
		reached = true
		select {
		case <-r.ctx.Done():
			return true, nil
		case <-time.After(redisPause):
		}
	}
}

func (r *redis) length(c *respConn, key string) (int, error) {
	v, err := c.do("LLEN", key)
	n, ok := v.(int64)
	if err == nil && !ok {
		err = errors.New("LLEN gave no number")
	}
	return int(n), err
}

// take takes the list away, and says how many elements it has.
func (r *redis) take(c *respConn) (int, error) {
	_, err := c.do("RENAMENX", r.list, r.taken)
	var refused redisError
	if errors.As(err, &refused) && strings.Contains(string(refused), "no such key") {
		return 0, nil // there is nothing in it
	}
	if err != nil {
		return 0, err
	}
	return r.length(c, r.taken)
}

// errVanished is that somebody else has taken elements away.
var errVanished = errors.New("what was taken away is there no more: does anybody else change " +
	"this list?")

// drain hands on what was taken away, and cuts off what is kept. Suricata pushes to the head, so
// that the end is the oldest.
func (r *redis) drain(c *respConn, n int) error {
	for n > 0 {
		some, err := c.elements(follow.MaxLine, func(b []byte) bool {
			if b = bytes.TrimRight(b, "\r\n"); len(b) == 0 {
				r.Change(func(s *inlet.State) { s.TooLong++ })
				return true
			}
			r.put++
			return r.Queue.Put(b, nil)
		}, "LRANGE", r.taken, strconv.Itoa(-min(n, maxRange)), "-1")
		if err != nil {
			return err
		}
		if some == 0 {
			return errVanished
		}
		for r.kept.Load() < r.put {
			select {
			case <-r.changed:
			case <-r.ctx.Done():
				return nil
			}
		}
		if _, err := c.do("LTRIM", r.taken, "0", strconv.Itoa(-some-1)); err != nil {
			return err
		}
		n -= some
		r.waiting.Add(-int64(some))
	}
	return nil
}
