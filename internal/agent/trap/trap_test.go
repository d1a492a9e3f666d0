package trap

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"levee/internal/await"
)

// generous is longer than a busy machine takes for anything here.
const generous = 60 * time.Second

// running is a trap at a loopback address, with what it has recorded.
type running struct {
	*Trap
	address string

	mu      sync.Mutex
	records []Record
}

// signer is the same for all tests.
var signer = sync.OnceValue(func() ssh.Signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		panic(err)
	}
	return s
})

func start(t *testing.T, change func(*Options)) *running {
	t.Helper()
	r := &running{}
	opts := Options{Version: "SSH-2.0-OpenSSH_9.2p1", HostKeys: []ssh.Signer{signer()},
		Connections: 100, PerSource: 100, Timeout: generous, Memory: 1 << 30,
		Record: func(rec Record) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.records = append(r.records, rec)
		}}
	if change != nil {
		change(&opts)
	}
	var err error
	if r.Trap, err = New(opts); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- r.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return r
}

// of waits for n records of an event.
func (r *running) of(t *testing.T, event string, n int) []Record {
	t.Helper()
	var found []Record
	await.OK(t, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		found = nil
		for _, rec := range r.records {
			if rec.Event == event {
				found = append(found, rec)
			}
		}
		if len(found) < n {
			return fmt.Errorf("%d records of %q, want %d", len(found), event, n)
		}
		return nil
	})
	return found
}

func (r *running) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// login tries to log in, which must fail.
func (r *running) login(t *testing.T, user string, auth ...ssh.AuthMethod) {
	t.Helper()
	c, err := ssh.Dial("tcp", r.address, &ssh.ClientConfig{User: user, Auth: auth,
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), ClientVersion: "SSH-2.0-probe"})
	if err == nil {
		c.Close()
		t.Fatal("the trap let somebody in")
	}
}

func TestNobodyIsLetInAndAllIsRecorded(t *testing.T) {
	r := start(t, nil)
	r.login(t, "root", ssh.Password("toor"))
	r.login(t, "admin", ssh.KeyboardInteractive(
		func(_, _ string, questions []string, _ []bool) ([]string, error) {
			return slices.Repeat([]string{"swordfish"}, len(questions)), nil
		}))
	r.login(t, "git", ssh.PublicKeys(signer()))
	r.login(t, "bytes", ssh.Password("\xff\xfe"))

	got := r.of(t, Attempt, 4)
	type told struct{ method, user, password, key string }
	var all []told
	for _, g := range got {
		all = append(all, told{g.Method, g.User, g.Password, g.Key})
		if g.From.String() != "127.0.0.1" || g.Client != "probe" || len(g.HASSH) != 32 {
			t.Errorf("an attempt by %v %q %q, want one by 127.0.0.1 %q with a fingerprint",
				g.From, g.Client, g.HASSH, "probe")
		}
	}
	want := []told{{"password", "root", "toor", ""},
		{"keyboard-interactive", "admin", "swordfish", ""},
		{"publickey", "git", "", ssh.FingerprintSHA256(signer().PublicKey())},
		{"password", "bytes", "\xff\xfe", ""}}
	if !slices.Equal(all, want) {
		t.Errorf("recorded %v, want %v", all, want)
	}
	ends := r.of(t, End, 4) // in any order: each connection is served by itself
	slices.SortFunc(ends, func(a, b Record) int { return strings.Compare(a.User, b.User) })
	for i, e := range ends {
		user := []string{"admin", "bytes", "git", "root"}[i]
		if *e.Attempts != 1 || e.User != user || e.Why != "the client gave up" {
			t.Errorf("an end with %d attempts of %q as %q", *e.Attempts, e.User, e.Why)
		}
		sum := md5.Sum([]byte(e.Algorithms))
		if hex.EncodeToString(sum[:]) != e.HASSH {
			t.Errorf("HASSH %s is not of %q", e.HASSH, e.Algorithms)
		}
	}
}

// OpenSSH prints what it offers: the fingerprint is of that, and its password comes through.
func TestOpenSSHIsRecorded(t *testing.T) {
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("needs ssh")
	}
	r := start(t, nil)
	ask := filepath.Join(t.TempDir(), "ask")
	if err := os.WriteFile(ask, []byte("#!/bin/sh\necho 'pass word'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(r.address)
	cmd := exec.Command("ssh", "-vv", "-F", "none", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "PreferredAuthentications=password",
		"-o", "NumberOfPasswordPrompts=2", "-p", port, "oracle@127.0.0.1", "true")
	cmd.Env = append(os.Environ(), "SSH_ASKPASS="+ask, "SSH_ASKPASS_REQUIRE=force")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("ssh was let in")
	}
	for _, a := range r.of(t, Attempt, 2) {
		if a.User != "oracle" || a.Password != "pass word" || a.Method != "password" ||
			!strings.HasPrefix(a.Client, "OpenSSH_") {
			t.Errorf("recorded %+v\nssh said:\n%s", a, out)
		}
	}
	_, offer, _ := strings.Cut(string(out), "local client KEXINIT proposal")
	offer, _, _ = strings.Cut(offer, "peer server KEXINIT proposal")
	var lists []string
	for _, name := range []string{"KEX algorithms", "ciphers ctos", "MACs ctos",
		"compression ctos"} {
		m := regexp.MustCompile(`debug2: ` + name + `: (\S*)`).FindStringSubmatch(offer)
		if m == nil {
			t.Fatalf("ssh did not say its %s:\n%s", name, out)
		}
		lists = append(lists, m[1])
	}
	sum := md5.Sum([]byte(strings.Join(lists, ";")))
	if e := r.of(t, End, 1)[0]; e.HASSH != hex.EncodeToString(sum[:]) {
		t.Errorf("HASSH %s of %q, want that of %q", e.HASSH, e.Algorithms, lists)
	}
}

const paramiko = `
import paramiko, sys
class Told(paramiko.Transport):
    def _send_message(self, m):
        if m.asbytes()[0] == 20:
            o = paramiko.Message(m.asbytes()[17:])
            lists = [o.get_text() for _ in range(8)]
            print(";".join(lists[0:8:2]))
        super()._send_message(m)
t = Told(("127.0.0.1", int(sys.argv[1])))
t.start_client(timeout=60)
try:
    t.auth_password("pi", "raspberry")
except paramiko.AuthenticationException:
    pass
t.close()
`

// Paramiko tells what it sends.
func TestParamikoIsRecorded(t *testing.T) {
	const python = "/usr/bin/python3" // Debian's, which has Debian's paramiko
	if err := exec.Command(python, "-c", "import paramiko").Run(); err != nil {
		t.Skip("needs python3-paramiko")
	}
	r := start(t, nil)
	_, port, _ := net.SplitHostPort(r.address)
	out, err := exec.Command(python, "-W", "ignore", "-c", paramiko, port).Output()
	if err != nil {
		t.Fatalf("paramiko: %v", err)
	}
	a := r.of(t, Attempt, 1)[0]
	if a.User != "pi" || a.Password != "raspberry" || !strings.HasPrefix(a.Client, "paramiko_") {
		t.Errorf("recorded %+v", a)
	}
	sum := md5.Sum(bytes.TrimSpace(out))
	if a.HASSH != hex.EncodeToString(sum[:]) {
		t.Errorf("HASSH %s of %s, want that of %s", a.HASSH, r.of(t, End, 1)[0].Algorithms, out)
	}
}

func TestWhatIsNoSSHEnds(t *testing.T) {
	for name, sent := range map[string]string{
		"HTTP":             "GET / HTTP/1.0\r\n\r\n",
		"a long line":      strings.Repeat("x", 300),
		"version 1":        "SSH-1.5-old\r\n",
		"a large packet":   "SSH-2.0-x\r\n\xff\xff\xff\xff",
		"an empty packet":  "SSH-2.0-x\r\n\x00\x00\x00\x00\x00\x00\x00\x00",
		"another message":  "SSH-2.0-x\r\n" + packetOf("\x15"),
		"a list cut off":   "SSH-2.0-x\r\n" + packetOf("\x14"+strings.Repeat("c", 16)+"\xff\xff"),
		"cut off":          "SSH-2.0-x\r\n\x00\x00\x10",
		"nothing":          "",
		"bytes of a dozen": "\x00\x01\x02\x03\n\n\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			c := r.dial(t)
			if _, err := c.Write([]byte(sent)); err != nil {
				t.Fatal(err)
			}
			c.(*net.TCPConn).CloseWrite() // fails if the trap has closed it already
			if e := r.of(t, End, 1)[0]; e.Why == "" || *e.Attempts != 0 || e.HASSH != "" {
				t.Errorf("ended as %q after %d attempts", e.Why, *e.Attempts)
			}
		})
	}
}

// packetOf is a packet as before keys are agreed on (RFC 4253, 6).
func packetOf(payload string) string {
	padding := 8 - (5+len(payload))%8 + 8
	n := 1 + len(payload) + padding
	return string([]byte{0, 0, byte(n >> 8), byte(n), byte(padding)}) + payload +
		strings.Repeat("\x00", padding)
}

func TestSlowClientsGetNoMoreTime(t *testing.T) {
	r := start(t, func(o *Options) { o.Timeout = 300 * time.Millisecond })
	c := r.dial(t)
	go func() { // a byte now and then, until it is closed
		for {
			if _, err := c.Write([]byte("S")); err != nil {
				return
			}
			await.Pass(20*time.Millisecond, "the pace of a slow client")
		}
	}()
	if e := r.of(t, End, 1)[0]; e.Why != "its time was over" {
		t.Errorf("ended as %q", e.Why)
	}
}

func TestTheOldestMakesRoom(t *testing.T) {
	r := start(t, func(o *Options) { o.Connections = 10 })
	for range 15 {
		c := r.dial(t)
		if _, err := c.Read(make([]byte, 1)); err != nil { // it is admitted
			t.Fatal(err)
		}
	}
	for _, e := range r.of(t, End, 5) {
		if e.Why != "ended to make room" {
			t.Errorf("ended as %q", e.Why)
		}
	}
	r.login(t, "root", ssh.Password("x"))
	if e := r.of(t, End, 7); len(e) != 7 { // one more made room, and the login has ended
		t.Errorf("%d ends", len(e))
	}
	if c := r.Counts(); c != (Counts{Accepted: 16, Ended: 6}) {
		t.Errorf("counted %+v", c)
	}
}

func TestASourceHasABound(t *testing.T) {
	r := start(t, func(o *Options) { o.PerSource = 3 })
	for range 3 {
		if _, err := r.dial(t).Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := r.dial(t).Read(make([]byte, 1)); err == nil || n > 0 {
		t.Fatal("a fourth connection was taken")
	}
	if c := r.Counts(); c.Refused != 1 || c.Accepted != 3 {
		t.Errorf("counted %+v", c)
	}
}

func TestSourcesOfIPv6AreNetworks(t *testing.T) {
	for from, want := range map[string]string{
		"[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64", "192.0.2.1:5": "192.0.2.1/32",
		"[::ffff:192.0.2.1]:5": "192.0.2.1/32", "[fe80::1%lo]:5": "fe80::/64",
	} {
		a, err := net.ResolveTCPAddr("tcp", from)
		if err != nil {
			t.Fatal(err)
		}
		if got := source(a); got.String() != want {
			t.Errorf("%s is of %s, want %s", from, got, want)
		}
	}
}

func FuzzOpening(f *testing.F) {
	f.Add([]byte("SSH-2.0-OpenSSH_9.2\r\n"+packetOf("\x14"+strings.Repeat("c", 16)+
		strings.Repeat("\x00\x00\x00\x01a", 10))), 7)
	f.Add([]byte("GET / HTTP/1.0\r\n"), 1)
	f.Fuzz(func(t *testing.T, sent []byte, step int) {
		if step < 1 {
			step = 1
		}
		var whole, pieces opening
		want := whole.take(sent)
		var got error
		for chunk := range slices.Chunk(sent, step) {
			if got = pieces.take(chunk); got != nil {
				break
			}
			if len(pieces.buf) > maxIdentification+maxPacket+step+8 {
				t.Fatalf("%d bytes are kept", len(pieces.buf))
			}
		}
		if got != want || whole.hassh != pieces.hassh || whole.client != pieces.client {
			t.Errorf("in one piece %v %+v, in pieces of %d %v %+v", want, whole, step, got, pieces)
		}
		if len(whole.algorithms) > maxAlgorithms || !bytes.HasPrefix(sent, []byte("SSH-")) &&
			whole.client != "" {
			t.Errorf("%+v", whole)
		}
	})
}

func TestVersionsAreHeldToTheRFC(t *testing.T) {
	for _, v := range []string{"", "OpenSSH", "SSH-1.5-x", "SSH-2.0-", "SSH-2.0-a\r\nb",
		"SSH-2.0-" + strings.Repeat("x", 300)} {
		_, err := New(Options{Version: v, HostKeys: []ssh.Signer{signer()}, Connections: 1,
			PerSource: 1, Timeout: 1, Memory: 1})
		if err == nil || !strings.Contains(fmt.Sprint(err), "version") {
			t.Errorf("%q: %v", v, err)
		}
	}
}
