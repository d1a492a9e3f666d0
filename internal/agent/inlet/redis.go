package inlet

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
	"levee/internal/host/secret"
	"levee/internal/lang/policy"
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
	*queue
	source *policy.Source
	taken  string        // the name under which the list is taken away
	wait   time.Duration // for the server
	ctx    context.Context
	stop   context.CancelFunc
	ended  chan struct{}

	put     int64         // elements that were put into the queue
	handed  int64         // of these, handed on
	kept    atomic.Int64  // of these, on the disk
	changed chan struct{} // kept has
	waiting atomic.Int64  // elements in Redis
}

func newRedis(s *policy.Source, wait time.Duration) *redis {
	r := &redis{queue: newQueue(), source: s, taken: s.List + ":levee", wait: wait,
		ended: make(chan struct{}), changed: make(chan struct{}, 1)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	if !strings.Contains(s.List, "{") { // the same slot of a cluster
		r.taken = "{" + s.List + "}:levee"
	}
	r.state.Waits = fmt.Errorf("connecting to Redis at %s", s.Path)
	go r.run()
	return r
}

// Poll hands on what has come.
func (r *redis) Poll(most int64, line func([]byte)) (more bool, err error) {
	return r.queue.Poll(most, func(b []byte) {
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

// State is what there is to tell. What is in the queue is in Redis, too.
func (r *redis) State() State {
	s := r.queue.State()
	s.LagLines, s.LagBytes = r.waiting.Load(), 0
	return s
}

// Close ends the connection, and waits for no answer. What was not kept stays in Redis.
func (r *redis) Close() {
	r.stop()
	r.end()
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
		r.fail(fmt.Errorf("read list %s of Redis at %s: %w; the next attempt is in %s at most",
			r.source.List, r.source.Path, err, redisDelay))
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
	address, encrypted := strings.CutPrefix(r.source.Path, policy.TLSRedis)
	if !encrypted {
		network := "tcp"
		if filepath.IsAbs(address) {
			network = "unix"
		}
		return d.DialContext(r.ctx, network, address)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.source.CA != "" { // read each time: it may be renewed
		text, err := os.ReadFile(r.source.CA)
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate (PEM)", r.source.CA)
		}
	}
	return (&tls.Dialer{NetDialer: d, Config: config}).DialContext(r.ctx, "tcp", address)
}

// greet says who asks.
func (r *redis) greet(c *respConn) error {
	if r.source.Password == "" {
		return nil
	}
	password, err := secret.Read(r.source.Password)
	if err != nil {
		return err
	}
	args := []string{"AUTH", password}
	if r.source.User != "" {
		args = []string{"AUTH", r.source.User, password}
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
		more, err := r.length(c, r.source.List)
		if err != nil {
			return reached, err
		}
		r.waiting.Store(int64(n + more))
		r.fail(nil)
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
	_, err := c.do("RENAMENX", r.source.List, r.taken)
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
				r.change(func(s *State) { s.TooLong++ })
				return true
			}
			r.put++
			return r.queue.put(b, nil)
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
