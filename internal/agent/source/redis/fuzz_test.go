package redis

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// answers is a connection to a server that says something, and takes whatever it is told.
type answers struct {
	net.Conn // nil: what is not below is not used
	io.Reader
}

func (a *answers) Read(b []byte) (int, error)  { return a.Reader.Read(b) }
func (a *answers) Write(b []byte) (int, error) { return len(b), nil }
func (a *answers) SetDeadline(time.Time) error { return nil }

// FuzzAnswers: whatever a server answers, elements are no longer than was asked for, there are no
// more than were counted, and they stand in what the server said.
func FuzzAnswers(f *testing.F) {
	f.Add("+OK\r\n:5\r\n*2\r\n$1\r\na\r\n$3\r\nbcd\r\n")
	f.Add("-ERR no\r\n")
	f.Add("*1\r\n$-1\r\n")
	f.Add("*3\r\n$536870913\r\n")
	f.Add("*1000000000000000000\r\n$0\r\n\r\n")
	f.Fuzz(func(t *testing.T, says string) {
		c := &answers{Reader: strings.NewReader(says)}
		r := &respConn{c: c, r: bufio.NewReader(c)}
		_, _ = r.do("PING")
		const most = 16
		all := 0
		n, err := r.elements(most, func(line []byte) bool {
			if len(line) > most || !bytes.Contains([]byte(says), line) {
				t.Fatalf("%q has the element %q", says, line)
			}
			all++
			return all < 100
		}, "LRANGE", "k", "0", "9")
		if all < n || all > n+1 || all == 100 && err == nil {
			t.Fatalf("%d elements were handed on, and %d counted: %v", all, n, err)
		}
	})
}
