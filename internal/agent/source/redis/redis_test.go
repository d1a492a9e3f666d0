package redis

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"levee/internal/agent/follow"
	"levee/internal/agent/source/inlet"
	"levee/internal/agent/source/inlet/inlettest"
	"levee/internal/await"
)

// server is a small Redis: the commands that are used here.
type server struct {
	mu     sync.Mutex
	lists  map[string][]string
	secret string
	broken string // what is answered to LRANGE
	vanish bool   // what LRANGE is asked for is gone by then
	l      net.Listener
	conns  map[net.Conn]bool
}

// place is a list "k" at an address, with the values of other words.
func place(at string, options ...string) *inlet.Place {
	p := &inlet.Place{At: at, Options: map[string]string{"list": "k"}}
	for i := 0; i < len(options); i += 2 {
		p.Options[options[i]] = options[i+1]
	}
	return p
}

func serve(t *testing.T, path string) *server {
	t.Helper()
	s := &server{lists: map[string][]string{}, conns: map[net.Conn]bool{}}
	s.listen(t, path)
	return s
}

func (s *server) listen(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s.serve(t, l)
}

func (s *server) serve(t *testing.T, l net.Listener) {
	s.l = l
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			go s.talk(c)
		}
	}()
}

// drop ends all connections.
func (s *server) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
	clear(s.conns)
}

func (s *server) talk(c net.Conn) {
	r := bufio.NewReader(c)
	line := func() string {
		b, _ := r.ReadString('\n')
		return strings.TrimRight(b, "\r\n")
	}
	in := s.secret == ""
	for {
		head := line()
		if head == "" {
			c.Close()
			return
		}
		n, _ := strconv.Atoi(head[1:])
		var args []string
		for range n {
			line()
			args = append(args, line())
		}
		if args[0] == "AUTH" {
			if in = args[len(args)-1] == s.secret; in {
				fmt.Fprint(c, "+OK\r\n")
			} else {
				fmt.Fprint(c, "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
			}
			continue
		}
		if !in {
			fmt.Fprint(c, "-NOAUTH Authentication required.\r\n")
			continue
		}
		fmt.Fprint(c, s.answer(args))
	}
}

func (s *server) answer(args []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.lists[args[1]]
	at := func(i int) int {
		n, _ := strconv.Atoi(args[i])
		if n < 0 {
			n += len(list)
		}
		return n
	}
	switch args[0] {
	case "LPUSH":
		s.lists[args[1]] = append([]string{args[2]}, list...)
		return ":1\r\n"
	case "LLEN":
		return fmt.Sprintf(":%d\r\n", len(list))
	case "RENAMENX":
		if len(list) == 0 {
			return "-ERR no such key\r\n"
		}
		if len(s.lists[args[2]]) > 0 {
			return ":0\r\n"
		}
		s.lists[args[2]], s.lists[args[1]] = list, nil
		return ":1\r\n"
	case "LRANGE":
		if s.broken != "" {
			return s.broken
		}
		if s.vanish {
			s.vanish, list = false, nil
			delete(s.lists, args[1])
		}
		some := list[max(0, at(2)) : at(3)+1]
		out := fmt.Sprintf("*%d\r\n", len(some))
		for _, e := range some {
			out += fmt.Sprintf("$%d\r\n%s\r\n", len(e), e)
		}
		return out
	case "LTRIM":
		s.lists[args[1]] = list[max(0, at(2)) : at(3)+1]
		return "+OK\r\n"
	}
	return "-ERR unknown command\r\n"
}

func (s *server) push(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range lines {
		s.lists["k"] = append([]string{l}, s.lists["k"]...)
	}
}

func (s *server) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lists["k"]) + len(s.lists["{k}:levee"])
}

// TestNoElementIsLostBeforeItIsKept: what was handed on and is not on the disk is had again, over
// broken connections and a new process; what is kept is gone.
func TestNoElementIsLostBeforeItIsKept(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir+"/r")
	of := place(dir + "/r")
	in := inlettest.Open(t, &Row, of, inlet.Opening{})
	s.push("one", "two", "", strings.Repeat("z", follow.MaxLine+1), "three")
	var got []string
	take := func() {
		await.True(t, "three lines", func() bool {
			_, _ = in.Poll(1<<20, func(b []byte) { got = append(got, string(b)) })
			return len(got) >= 3
		})
	}
	take() // not kept
	if len(got) != 3 || s.left() != 5 || in.State().LagLines != 5 {
		t.Errorf("%q, %d left, %+v", got, s.left(), in.State())
	}
	in.Close() // killed
	if s.left() != 5 {
		t.Errorf("%d left", s.left())
	}
	in = inlettest.Open(t, &Row, of, inlet.Opening{})
	got = nil
	take()
	s.drop() // the connection breaks before it is kept: it is read again
	inlettest.Poll(t, in, &got, func() bool { return s.left() == 0 })
	if in.State().TooLong < 2 {
		t.Errorf("%+v", in.State())
	}
	// what comes meanwhile is read, whatever end it is pushed to
	got = nil
	want := 0
	for i := range 25 {
		for j := range 1000 {
			s.push(fmt.Sprint(i, "-", j))
			want++
		}
		if i%7 == 0 {
			s.drop()
		}
		in.Poll(1<<20, func(b []byte) { got = append(got, string(b)) })
		in.Kept()
	}
	inlettest.Poll(t, in, &got, func() bool { return s.left() == 0 })
	seen := map[string]bool{}
	for _, g := range got {
		seen[g] = true
	}
	if len(seen) != want {
		t.Errorf("%d of %d elements", len(seen), want)
	}
	in.Close()
}

func TestAnswersThatAreNone(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir+"/r")
	in := inlettest.Open(t, &Row, place(dir+"/r"), inlet.Opening{})
	defer in.Close()
	var got []string
	for _, bad := range []string{"*99999999999999999999\r\n", "*-5\r\n", "$-1\r\n", "*1\r\n$-1\r\n",
		"*1\r\n$99999999999\r\n", "*1\r\n:1\r\n", "\r\n", strings.Repeat("x", 1<<17), "*1\n",
		"-ERR no\r\n"} {
		s.mu.Lock()
		s.broken = bad
		s.mu.Unlock()
		s.push("x")
		inlettest.Poll(t, in, &got, func() bool {
			_, err := in.Poll(1, func([]byte) {})
			s.drop()
			return err != nil && !strings.Contains(err.Error(), "connecting")
		})
	}
	if len(got) != 0 {
		t.Errorf("%d elements", len(got))
	}
	s.mu.Lock()
	s.broken = ""
	s.mu.Unlock()
	inlettest.Poll(t, in, &got, func() bool { return s.left() == 0 })
}

// TestAListThatVanishes: who empties it, as FLUSHALL does, costs what was in it and nothing that
// comes later.
func TestAListThatVanishes(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir+"/r")
	in := inlettest.Open(t, &Row, place(dir+"/r"), inlet.Opening{})
	defer in.Close()
	s.mu.Lock()
	s.vanish = true
	s.mu.Unlock()
	s.push("gone")
	var got []string
	inlettest.Poll(t, in, &got, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.vanish
	})
	s.push("later")
	inlettest.Poll(t, in, &got, func() bool { return len(got) == 1 && s.left() == 0 })
	if got[0] != "later" {
		t.Errorf("%q", got)
	}
}

func TestPasswordsOfRedis(t *testing.T) {
	dir := t.TempDir()
	s := &server{lists: map[string][]string{}, conns: map[net.Conn]bool{}, secret: "s3cret"}
	s.listen(t, dir+"/r")
	in := inlettest.Open(t, &Row, place(dir+"/r", "user", "levee", "password", dir+"/p"),
		inlet.Opening{})
	defer in.Close()
	s.push("x")
	var got []string
	says := func(what string) func() bool {
		return func() bool {
			_, err := in.Poll(1, func([]byte) {})
			return err != nil && strings.Contains(err.Error(), what)
		}
	}
	inlettest.Poll(t, in, &got, says("no such file"))
	os.WriteFile(dir+"/p", []byte("\n"), 0o600)
	inlettest.Poll(t, in, &got, says("is no secret"))
	os.WriteFile(dir+"/p", []byte("wrong\n"), 0o600)
	inlettest.Poll(t, in, &got, says("WRONGPASS"))
	os.WriteFile(dir+"/p", []byte("s3cret\nmore\n"), 0o600)
	inlettest.Poll(t, in, &got, func() bool { return len(got) == 1 && s.left() == 0 })
}

// certificate is one for names and addresses, which vouches for itself, and its PEM.
func certificate(t *testing.T, names ...string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			of.IPAddresses = append(of.IPAddresses, ip)
		} else {
			of.DNSNames = append(of.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// plain answers as Redis without TLS does to a handshake.
func plain(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprint(c, "-ERR Protocol error\r\n")
		io.Copy(io.Discard, c)
		c.Close()
	}
}

// TestRedisOverTLS: only a server with a certificate of its name, from whom the policy says, is
// told the password.
func TestRedisOverTLS(t *testing.T) {
	own, ownPEM := certificate(t, "127.0.0.1")
	foreign, foreignPEM := certificate(t, "redis.example")
	for _, test := range []struct {
		name string
		of   *tls.Certificate // of the server; nil: it has no TLS
		ca   []byte
		want string // of the error
	}{
		{"right", &own, ownPEM, ""},
		{"nobody vouches", &own, foreignPEM, "unknown authority"},
		{"the machine does not", &own, nil, "unknown authority"},
		{"another name", &foreign, foreignPEM, "certificate"},
		{"no TLS", nil, ownPEM, "tls"},
		{"no certificate", &own, []byte("none"), "holds no certificate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			s := &server{lists: map[string][]string{}, conns: map[net.Conn]bool{}, secret: "s3cret"}
			of := place("rediss://"+l.Addr().String(), "password", dir+"/p")
			if test.of != nil {
				s.serve(t, tls.NewListener(l,
					&tls.Config{Certificates: []tls.Certificate{*test.of}}))
			} else {
				go plain(l)
			}
			if test.ca != nil {
				of.Options["ca"] = dir + "/ca"
			}
			for name, text := range map[string][]byte{"p": []byte("s3cret"), "ca": test.ca} {
				if err := os.WriteFile(dir+"/"+name, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			in := inlettest.Open(t, &Row, of, inlet.Opening{})
			defer in.Close()
			s.push("x")
			var got []string
			inlettest.Poll(t, in, &got, func() bool {
				_, err := in.Poll(1, func([]byte) {})
				if test.want == "" {
					return len(got) == 1 && s.left() == 0
				}
				return err != nil && strings.Contains(err.Error(), test.want)
			})
		})
	}
}

// TestAServerThatDoesNotAnswerHoldsNobody: to close a list, as at each change of a source, waited
// for the server's answer, and the agent's loop with it.
func TestAServerThatDoesNotAnswerHoldsNobody(t *testing.T) {
	for _, scheme := range []string{"", "rediss://"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{})
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if _, err := c.Read(make([]byte, 1)); err == nil {
				close(asked)
			}
			io.Copy(io.Discard, c)
		}()
		r := newRedis(place(scheme+l.Addr().String()), time.Hour)
		<-asked
		done := make(chan struct{})
		go func() { r.Close(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Errorf("%sredis: closing waits for the server", scheme)
		}
		l.Close()
	}
}

// TestARealRedis is the same with the real one, where it is installed.
func TestARealRedis(t *testing.T) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not at hand")
	}
	dir := t.TempDir()
	cmd := exec.Command(bin, "--port", "0", "--unixsocket", dir+"/r", "--dir", dir, "--save", "",
		"--requirepass", "s3cret")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	os.WriteFile(dir+"/p", []byte("s3cret\n"), 0o600)
	of := place(dir+"/r", "password", dir+"/p")
	in := inlettest.Open(t, &Row, of, inlet.Opening{})
	var got []string
	inlettest.Poll(t, in, &got, func() bool {
		_, err := in.Poll(1, func([]byte) {})
		return err == nil
	})
	conn, err := net.Dial("unix", dir+"/r")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := &respConn{c: conn, r: bufio.NewReader(conn), wait: time.Minute}
	if _, err := c.do("AUTH", "s3cret"); err != nil {
		t.Fatal(err)
	}
	const all = 20_000
	for i := 0; i < all; i += 100 {
		args := []string{"LPUSH", "k"}
		if i%200 == 0 {
			args[0] = "RPUSH"
		}
		for j := range 100 {
			args = append(args, fmt.Sprint(i+j))
		}
		if _, err := c.do(args...); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	inlettest.Poll(t, in, &got, func() bool {
		for _, g := range got {
			seen[g] = true
		}
		got = got[:0]
		n, _ := c.do("EXISTS", "k", "{k}:levee")
		return len(seen) == all && n == int64(0)
	})
	in.Close()
}
