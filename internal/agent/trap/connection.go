package trap

import (
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// connection is one client. What it sends first is read along, see opening.
type connection struct {
	net.Conn
	source netip.Prefix
	began  time.Time
	at     *list.Element // in the order of age

	mu      sync.Mutex
	opening opening
	ended   string // why the trap ended it
}

func newConnection(c net.Conn) *connection {
	return &connection{Conn: c, source: source(c.RemoteAddr()), began: time.Now()}
}

func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if bad := c.opening.take(b[:n]); bad != nil {
		c.ended = bad.Error()
		return 0, bad
	}
	return n, err
}

// fill adds what is known of the client.
func (c *connection) fill(r Record) Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, to := addrPort(c.RemoteAddr()), addrPort(c.LocalAddr())
	r.Time = time.Now()
	r.From, r.FromPort, r.To, r.ToPort = from.Addr(), from.Port(), to.Addr(), to.Port()
	r.Client, r.HASSH = c.opening.client, c.opening.hassh
	if r.Event == End { // once a connection: they are some 1,000 bytes
		r.Algorithms = c.opening.algorithms
	}
	return r
}

// why says in words how a connection ended.
func (c *connection) why(err error) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var auth *ssh.ServerAuthError
	var no *ssh.AlgorithmNegotiationError
	switch {
	case c.ended != "":
		return c.ended
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "its time was over"
	case errors.As(err, &no):
		return "no " + no.What + " in common"
	case errors.As(err, &auth):
		return "the client gave up"
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the client closed it"
	case err == nil:
		return ""
	}
	return err.Error()
}

// end closes the connection.
func (c *connection) end(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == "" {
		c.ended = why
	}
	c.Conn.Close()
}

// connections are the open ones, the oldest first.
type connections struct {
	byAge   *list.List // of *connection
	sources map[netip.Prefix]int
}

func newConnections() connections {
	return connections{list.New(), map[netip.Prefix]int{}}
}

func (o *connections) len() int { return o.byAge.Len() }

func (o *connections) of(source netip.Prefix) int { return o.sources[source] }

func (o *connections) add(c *connection) {
	c.at = o.byAge.PushBack(c)
	o.sources[c.source]++
}

// remove forgets a connection, if it is not forgotten.
func (o *connections) remove(c *connection) {
	if c.at == nil {
		return
	}
	o.byAge.Remove(c.at)
	c.at = nil
	if o.sources[c.source]--; o.sources[c.source] == 0 {
		delete(o.sources, c.source)
	}
}

// end closes and forgets the n oldest, and returns how many there were.
func (o *connections) end(n int, why string) int {
	n = min(n, o.len())
	for range n {
		c := o.byAge.Front().Value.(*connection)
		o.remove(c)
		c.end(why)
	}
	return n
}

// memoryInterval is between two looks at the memory, in which 2,000 clients that send at 10 Gbit/s
// in all fill no more than 25 MB.
const memoryInterval = 20 * time.Millisecond

// boundMemory ends the oldest eighth of the connections as long as there is too much memory in
// use. The library keeps packets of up to 256 KiB for each, and more while keys are agreed on.
func (t *Trap) boundMemory(ctx context.Context) {
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if inUse() <= t.opts.Memory {
			continue
		}
		debug.FreeOSMemory() // collects first
		if inUse() <= t.opts.Memory {
			continue
		}
		t.mu.Lock()
		t.counts.Ended += uint64(t.open.end(t.open.len()/8+1, "too much memory was in use"))
		t.mu.Unlock()
	}
}

// inUse returns how many bytes of memory objects and stacks take.
func inUse() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}
