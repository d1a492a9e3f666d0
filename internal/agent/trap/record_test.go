package trap

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"
)

// gate is a writer that waits until it is opened.
type gate struct {
	bytes.Buffer
	open chan struct{}
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	return g.Buffer.Write(b)
}

// A reader that is too slow loses records, which are counted exactly.
func TestWhatFindsNoPlaceIsCounted(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	l := NewLog(g)
	const n = queued + 1000
	for range n {
		l.Add(Record{Event: Attempt})
	}
	close(g.open)
	l.Close()
	if err := <-l.Failed(); err != nil {
		t.Fatal(err)
	}
	var written, lost uint64
	for line := range bytes.Lines(g.Bytes()) {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if r.Event == Lost {
			lost += r.Lost
		} else {
			written++
		}
	}
	if written+lost != n || lost == 0 {
		t.Errorf("%d written and %d lost of %d", written, lost, n)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestAFailureToWriteIsTold(t *testing.T) {
	l := NewLog(broken{})
	l.Add(Record{Event: Attempt})
	if err := <-l.Failed(); err == nil {
		t.Error("no failure was told")
	}
	l.Add(Record{Event: Attempt})
	l.Close()
}

func TestLinesAreBounded(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 1<<20), strings.Repeat("ä", 1<<19),
		strings.Repeat("\xff", 1<<20), strings.Repeat("\x00", 1<<20)} {
		r := Record{Event: Attempt, User: text, Password: text, Client: text}
		line, err := r.bounded().line()
		if err != nil {
			t.Fatal(err)
		}
		var back Record
		if err := json.Unmarshal(line, &back); err != nil || !utf8.Valid(line) {
			t.Fatalf("%v: %q", err, line)
		}
		if len(line) > 6*4*maxText {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

// JSON allows them in a text, and a terminal that shows the log would obey: CSI is one character,
// and others turn the direction of what follows.
func TestLinesHoldNothingThatATerminalObeys(t *testing.T) {
	const text = "root\u009b31m\x7f\u202e\u2066\x1b[2J\U000e0041ä"
	line, err := Record{Event: Attempt, User: text, Password: text, Client: text,
		Algorithms: text}.bounded().line()
	if err != nil {
		t.Fatal(err)
	}
	var back Record
	if err := json.Unmarshal(line, &back); err != nil || back.User != text ||
		back.Algorithms != text {
		t.Errorf("%v: %q", err, back.User)
	}
	for _, r := range strings.TrimSuffix(string(line), "\n") {
		if !unicode.IsPrint(r) {
			t.Errorf("%U in %q", r, line)
		}
	}
}

func TestLogsOnDiskAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trap.json")
	f, err := OpenFile(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(strings.Repeat("x", 29) + "\n")
	for range 10 {
		if _, err := f.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{path: 30, path + ".1": 90} {
		info, err := os.Stat(name)
		if err != nil || info.Size() != want || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, %v, want %d bytes", name, info, err, want)
		}
	}
	// The next run goes on where this one ended.
	if f, err = OpenFile(path, 100); err != nil || f.size != 30 {
		t.Fatalf("%v, at %d", err, f.size)
	}
	f.Close()
	if _, err := OpenFile(filepath.Dir(path), 100); err == nil {
		t.Error("a directory was opened")
	}
	if _, err := OpenFile(os.DevNull, 100); err == nil {
		t.Error("a device was opened")
	}
}

func TestHostKeysStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	first, err := HostKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := HostKeys(path)
	if err != nil || len(first) != 2 || len(again) != 2 {
		t.Fatalf("%d keys, then %d: %v", len(first), len(again), err)
	}
	for i := range first {
		if !bytes.Equal(first[i].PublicKey().Marshal(), again[i].PublicKey().Marshal()) {
			t.Errorf("key %d has changed", i)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for name, text := range map[string]string{"empty": "", "text": "no key\n",
		"cut": "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"} {
		bad := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := HostKeys(bad); err == nil {
			t.Errorf("%s: keys were read", name)
		}
	}
}

// TestEndsHaveOneReasonEach: a reset and a line that is too long were told in words of the library,
// one with the ports of the connection, so that a log could not be counted by reason.
func TestEndsHaveOneReasonEach(t *testing.T) {
	for err, want := range map[error]string{
		&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read",
			syscall.ECONNRESET)}: "the client closed it",
		&net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write",
			syscall.EPIPE)}: "the client closed it",
		io.EOF: "the client closed it",
	} {
		if got := (&connection{}).why(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	var o opening
	if err := o.take(bytes.Repeat([]byte("x"), maxIdentification)); err != errNotSSH {
		t.Errorf("%d bytes without an end of line: %v", maxIdentification, err)
	}
}

// TestRecordsThatWaitAreShort: they were cut when they were written, so that passwords of 256 KiB
// filled a gigabyte while a disk was slow.
func TestRecordsThatWaitAreShort(t *testing.T) {
	l := &Log{queue: make(chan Record, 2)}
	l.Add(Record{User: strings.Repeat("u", 100_000), Password: strings.Repeat("p", 200_000)})
	l.Add(Record{Password: strings.Repeat("\xff", 200_000)})
	one, two := <-l.queue, <-l.queue
	if len(one.User) != maxText || len(one.Password) != maxText || two.Password != "" ||
		len(two.PasswordHex) != 2*maxText {
		t.Errorf("%d and %d bytes wait, and %d", len(one.User), len(one.Password),
			len(two.PasswordHex))
	}
}
