package api

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Listener is an address or socket at which the server takes requests.
type Listener struct {
	net.Listener
	tls   *certificate
	names []string // names of this machine in the header Host, besides addresses
}

// Listen opens a port. A loopback address needs no TLS; any other needs a certificate and a key.
// Names are those of this machine, as a proxy in front of it may give them in the header Host;
// the names of the certificate need not be told.
func Listen(address, certFile, keyFile string, names []string) (l *Listener, err error) {
	if err := CheckAddress(address, certFile, keyFile); err != nil {
		return nil, err
	}
	l = &Listener{names: names}
	if certFile != "" {
		l.tls = &certificate{certFile: certFile, keyFile: keyFile}
		if _, err := l.tls.get(nil); err != nil {
			return nil, err
		}
	}
	if l.Listener, err = net.Listen("tcp", address); err != nil {
		return nil, fmt.Errorf("listen at %s: %w", address, err)
	}
	return l, nil
}

// CheckAddress refuses what Listen would refuse whatever is on the machine.
func CheckAddress(address, certFile, keyFile string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is no ADDRESS:PORT, such as 127.0.0.1:7443 or [::1]:7443", address)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return fmt.Errorf("%q is no address, such as 127.0.0.1 or [::1]", host)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is no port, 0 to 65535", port)
	}
	switch {
	case (certFile == "") != (keyFile == ""):
		return errors.New("TLS needs both files, the certificate and its key")
	case certFile == "" && !ip.Unmap().IsLoopback():
		return fmt.Errorf("%s is no loopback address, so that tokens would cross the network "+
			"in the clear: give --tls-cert and --tls-key, or listen at 127.0.0.1", host)
	}
	return nil
}

// URL returns where a browser finds it.
func (l *Listener) URL() string {
	scheme := "http"
	if l.tls != nil {
		scheme = "https"
	}
	return scheme + "://" + l.Addr().String() + "/"
}

// listener accepts a bounded number of connections, over TLS where there is a certificate.
func (l *Listener) listener() net.Listener {
	var out net.Listener = &bounded{Listener: l.Listener}
	if l.tls == nil {
		return out
	}
	return tls.NewListener(out, &tls.Config{MinVersion: tls.VersionTLS12,
		GetCertificate: l.tls.get, NextProtos: []string{"http/1.1"}})
}

// hostAllowed refuses names that are not this machine's: a page elsewhere may have its name point
// here (DNS rebinding), but cannot write an address into the header.
func (l *Listener) hostAllowed(host string) error {
	if l.Addr().Network() == "unix" {
		return nil
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if _, err := netip.ParseAddr(name); err == nil || name == "localhost" ||
		slices.ContainsFunc(l.names, func(n string) bool { return strings.EqualFold(n, name) }) ||
		l.tls != nil && l.tls.has(name) {
		return nil
	}
	return fmt.Errorf("%.100q is no name of this machine that the agent knows: ask for its "+
		"address, or start it with --host NAME", name)
}

// certificate is a pair of files that may be renewed.
type certificate struct {
	certFile, keyFile string

	mu     sync.Mutex
	loaded *tls.Certificate
	stamp  time.Time // of the change of the files
	looked time.Time
}

// recheck is the time between two looks at the files.
const recheck = time.Minute

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded != nil && time.Since(c.looked) < recheck {
		return c.loaded, nil
	}
	c.looked = time.Now()
	var stamp time.Time
	for _, name := range []string{c.certFile, c.keyFile} {
		if st, err := os.Stat(name); err == nil && st.ModTime().After(stamp) {
			stamp = st.ModTime()
		}
	}
	if c.loaded != nil && stamp.Equal(c.stamp) {
		return c.loaded, nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		if c.loaded != nil { // half renewed: the next look tries again
			return c.loaded, nil
		}
		return nil, fmt.Errorf("read the certificate %s with its key %s: %w", c.certFile, c.keyFile,
			err)
	}
	c.loaded, c.stamp = &pair, stamp
	return c.loaded, nil
}

func (c *certificate) has(name string) bool {
	pair, err := c.get(nil)
	return err == nil && pair.Leaf != nil && pair.Leaf.VerifyHostname(name) == nil
}

// bounded is a listener with so many connections at a time. One more lets the oldest go that asks
// nothing: requests of which only a half has come keep nobody out, and neither does one caller who
// asks much and reads slowly.
type bounded struct {
	net.Listener
	mu     sync.Mutex
	open   []*conn        // in the order in which they came
	asking map[string]int // connections that ask, by caller
}

// mostOfOne is the number of one caller's connections that count as asking.
const mostOfOne = maxConnections / 4

func (b *bounded) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	own := &conn{Conn: c, of: b}
	b.mu.Lock()
	b.open = append(b.open, own)
	var gone *conn
	if len(b.open) > maxConnections { // the newest at the latest: it asks nothing yet
		gone = b.open[slices.IndexFunc(b.open, func(o *conn) bool { return !o.asks })]
	}
	b.mu.Unlock()
	if gone != nil {
		gone.Close()
	}
	return own, nil
}

type conn struct {
	net.Conn
	once sync.Once
	of   *bounded
	asks bool   // a request is being answered; of.mu guards it
	who  string // for whom
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		if i := slices.Index(c.of.open, c); i >= 0 {
			c.of.open = slices.Delete(c.of.open, i, i+1)
		}
	})
	return c.Conn.Close()
}

// answering notes for whom a request is being answered, "" for nobody who is known.
func (c *conn) answering(who string) {
	if c == nil {
		return
	}
	b := c.of
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.asks {
		if b.asking[c.who]--; b.asking[c.who] == 0 {
			delete(b.asking, c.who)
		}
	}
	if c.asks, c.who = who != "" && b.asking[who] < mostOfOne, who; c.asks {
		if b.asking == nil {
			b.asking = map[string]int{}
		}
		b.asking[who]++
	}
}

// peer is the process at the other end of a unix socket, and the connection.
type peer struct {
	conn  *conn
	local bool
	uid   uint32
	pid   int32
}

type peerKey struct{}

func peerOf(c net.Conn) (p peer) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if own, ok := c.(*conn); ok {
		p.conn, c = own, own.Conn
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return p
	}
	p.local, p.uid = true, ^uint32(0)
	raw, err := u.SyscallConn()
	if err != nil {
		return p
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET,
			unix.SO_PEERCRED); err == nil {
			p.uid, p.pid = cred.Uid, cred.Pid
		}
	})
	return p
}

// quietLog takes what net/http says of clients that go, or speak something else.
func quietLog() *log.Logger { return log.New(io.Discard, "", 0) }
