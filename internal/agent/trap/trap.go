// Package trap is an SSH server that lets nobody in and records who tried.
//
// Connections go in, records come out: each attempt with its user, password or key, the client's
// name and the fingerprint of its key exchange, and one record when the connection ends. Whoever
// connects is hostile: connections, their time, what a client may send before its keys are agreed
// on, and memory are bounded. It must never open a session, run anything, or connect anywhere.
package trap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// Options say how a trap looks from outside, and what it may cost. All have to be given.
type Options struct {
	Version     string       // what it says that it is: "SSH-2.0-OpenSSH_9.2p1"
	HostKeys    []ssh.Signer // of different types
	Connections int          // at once; for one more the oldest is ended
	PerSource   int          // at once, of an IPv4 address or an IPv6 /64; one more is refused
	Timeout     time.Duration
	Memory      uint64       // bytes of heap and stacks; above it the oldest connections are ended
	Record      func(Record) // is called by many goroutines, and must not wait
}

// Counts are of connections since a trap began.
type Counts struct {
	Accepted uint64
	Refused  uint64 // too many of the same source
	Ended    uint64 // before their time, to make room
}

// Trap is one server, for any number of listeners.
type Trap struct {
	opts Options

	mu     sync.Mutex
	open   connections
	counts Counts
}

// errNobody is the answer to every attempt.
var errNobody = errors.New("nobody is let in")

// New makes a trap, which does nothing until Serve.
func New(opts Options) (*Trap, error) {
	for name, n := range map[string]bool{"host keys": len(opts.HostKeys) > 0,
		"connections": opts.Connections > 0, "connections of a source": opts.PerSource > 0,
		"time": opts.Timeout > 0, "memory": opts.Memory > 0} {
		if !n {
			return nil, fmt.Errorf("a trap needs %s", name)
		}
	}
	if err := CheckVersion(opts.Version); err != nil {
		return nil, err
	}
	return &Trap{opts: opts, open: newConnections()}, nil
}

// CheckVersion holds a version to RFC 4253, 4.2.
func CheckVersion(v string) error {
	if len(v) > 253 || len(v) < 9 || v[:8] != "SSH-2.0-" {
		return fmt.Errorf("%q is no version of SSH: write SSH-2.0-NAME, at most 253 bytes", v)
	}
	for _, c := range []byte(v) {
		if c < ' ' || c > '~' {
			return fmt.Errorf("the version %q holds more than printable ASCII", v)
		}
	}
	return nil
}

// Counts returns those until now.
func (t *Trap) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

// Serve takes connections of the listeners, which it closes, until ctx ends or a listener fails. It
// returns when all connections have ended.
func (t *Trap) Serve(ctx context.Context, listeners ...net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, l := range listeners {
		all.Go(func() { cancel(t.accept(ctx, l, &all)) })
	}
	all.Go(func() { t.boundMemory(ctx) })
	<-ctx.Done()
	for _, l := range listeners {
		l.Close()
	}
	t.mu.Lock()
	t.open.end(t.open.len(), "the trap ended")
	t.mu.Unlock()
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// accept starts a goroutine for each connection.
func (t *Trap) accept(ctx context.Context, l net.Listener, all *sync.WaitGroup) error {
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			// The client has gone, or no descriptors are left: both pass.
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				t.mu.Lock()
				t.counts.Ended += uint64(t.open.end(1, "no descriptors were left"))
				t.mu.Unlock()
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		if one := t.admit(ctx, c); one != nil {
			all.Go(func() { t.handle(one) })
		} else {
			c.Close()
		}
	}
}

// admit finds room for a connection, or returns nil.
func (t *Trap) admit(ctx context.Context, c net.Conn) *connection {
	one := newConnection(c)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil
	case t.open.of(one.source) >= t.opts.PerSource:
		t.counts.Refused++
		return nil
	case t.open.len() >= t.opts.Connections:
		t.counts.Ended += uint64(t.open.end(1, "ended to make room"))
	}
	t.counts.Accepted++
	t.open.add(one)
	return one
}

// handle speaks SSH with one client until it gives up or its time is over.
func (t *Trap) handle(c *connection) {
	defer func() {
		c.Close()
		t.mu.Lock()
		t.open.remove(c)
		t.mu.Unlock()
	}()
	// The deadline is of the connection, not of a read: slow clients get no more time.
	if err := c.SetDeadline(c.began.Add(t.opts.Timeout)); err != nil {
		return
	}
	tries := 0
	tell := func(r Record) {
		tries++
		t.opts.Record(c.fill(r))
	}
	user := ""
	config := &ssh.ServerConfig{
		ServerVersion: t.opts.Version,
		MaxAuthTries:  6, // as OpenSSH
		PasswordCallback: func(m ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			tell(Record{Event: Attempt, Method: "password", User: m.User(),
				Password: string(password)})
			return nil, errNobody
		},
		KeyboardInteractiveCallback: func(m ssh.ConnMetadata,
			ask ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
			answers, err := ask("", "", []string{"Password: "}, []bool{false})
			if err == nil && len(answers) == 1 {
				tell(Record{Event: Attempt, Method: "keyboard-interactive", User: m.User(),
					Password: answers[0]})
			}
			return nil, errNobody
		},
		PublicKeyCallback: func(m ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			tell(Record{Event: Attempt, Method: "publickey", User: m.User(), KeyType: key.Type(),
				Key: ssh.FingerprintSHA256(key)})
			return nil, errNobody
		},
		AuthLogCallback: func(m ssh.ConnMetadata, _ string, _ error) { user = m.User() },
	}
	for _, k := range t.opts.HostKeys {
		config.AddHostKey(k)
	}
	// No callback accepts, so that this always fails; what it might return, c.Close ends.
	_, _, _, err := ssh.NewServerConn(c, config)
	seconds := time.Since(c.began).Seconds()
	t.opts.Record(c.fill(Record{Event: End, User: user, Attempts: &tries, Seconds: &seconds,
		Why: c.why(err)}))
}

// source returns the key by which connections are counted: hosts have an IPv6 /64.
func source(a net.Addr) netip.Prefix {
	from := addrPort(a).Addr()
	bits := 32
	if from.Is6() {
		bits = 64
	}
	p, err := from.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // the zero address of a connection that has already gone
	}
	return p
}

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}
