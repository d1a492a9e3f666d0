package trap

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"levee/internal/lang/diag"
)

// Events that are recorded.
const (
	Attempt = "attempt" // a password or a key was tried
	End     = "end"     // a connection has ended
	Lost    = "lost"    // records that found no place
)

// Record is one line of a trap's log.
type Record struct {
	Time     time.Time  `json:"time"`
	Event    string     `json:"event"`
	From     netip.Addr `json:"from,omitzero"`
	FromPort uint16     `json:"from_port,omitempty"`
	To       netip.Addr `json:"to,omitzero"`
	ToPort   uint16     `json:"to_port,omitempty"`

	Client     string `json:"client,omitempty"`     // what it says that it is, behind "SSH-2.0-"
	HASSH      string `json:"hassh,omitempty"`      // fingerprint of the algorithms that it offers
	Algorithms string `json:"algorithms,omitempty"` // the text below that MD5

	Method      string `json:"method,omitempty"`
	User        string `json:"user,omitempty"`
	Password    string `json:"password,omitempty"`
	PasswordHex string `json:"password_hex,omitempty"` // instead, if it is no UTF-8
	KeyType     string `json:"key_type,omitempty"`
	Key         string `json:"key,omitempty"` // fingerprint, SHA256

	Attempts *int     `json:"attempts,omitempty"` // of the connection that has ended
	Seconds  *float64 `json:"seconds,omitempty"`
	Why      string   `json:"why,omitempty"`

	Lost uint64 `json:"lost,omitempty"` // records, since the last such line
}

// maxText is the number of bytes kept of a user, a password or a reason.
const maxText = 256

// bounded returns the record with its texts cut.
func (r Record) bounded() Record {
	if !utf8.ValidString(r.Password) {
		r.PasswordHex, r.Password = hex.EncodeToString([]byte(cut(r.Password))), ""
	}
	for _, s := range []*string{&r.Client, &r.User, &r.Password, &r.KeyType, &r.Why} {
		*s = strings.Clone(cut(*s)) // the whole may be a packet of 256 KiB
	}
	return r
}

// line returns the record as JSON.
func (r Record) line() ([]byte, error) {
	line, err := json.Marshal(r)
	return append(diag.EscapedJSON(line), '\n'), err
}

// cut ends a text between two runes, where it has runes.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for i := range utf8.UTFMax {
		if utf8.RuneStart(s[maxText-i]) {
			end = maxText - i
			break
		}
	}
	return s[:end]
}

// Log writes records in the order in which they come, and waits for none: what its reader is too
// slow for is counted, and told of in a line.
type Log struct {
	queue chan Record
	lost  atomic.Uint64
	done  chan error
	ended chan struct{}
}

// queued is the largest number of records that wait, of some 2 kB each.
const queued = 4096

// NewLog begins to write to w.
func NewLog(w io.Writer) *Log {
	l := &Log{queue: make(chan Record, queued), done: make(chan error, 1),
		ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		defer close(l.done)
		if err := l.write(w); err != nil {
			l.done <- err
		}
	}()
	return l
}

// Add records, or counts what finds no place. It must not be called after Close.
func (l *Log) Add(r Record) {
	select {
	case l.queue <- r.bounded():
	default:
		l.lost.Add(1)
	}
}

// Failed yields the first failure to write, after which nothing is written, and is closed by Close.
func (l *Log) Failed() <-chan error { return l.done }

// Close writes what waits.
func (l *Log) Close() {
	close(l.queue)
	<-l.ended
}

func (l *Log) write(w io.Writer) error {
	put := func(r Record) error {
		line, err := r.line()
		if err != nil {
			return err
		}
		_, err = w.Write(line)
		return err
	}
	for r := range l.queue {
		if n := l.lost.Swap(0); n > 0 {
			if err := put(Record{Time: r.Time, Event: Lost, Lost: n}); err != nil {
				return err
			}
		}
		if err := put(r); err != nil {
			return err
		}
	}
	if n := l.lost.Swap(0); n > 0 {
		return put(Record{Time: time.Now(), Event: Lost, Lost: n})
	}
	return nil
}

// File is a log on disk of bounded size: when it is full, it becomes PATH.1 in place of the one
// before, and a new one begins.
type File struct {
	path string
	max  int64
	f    *os.File
	size int64
}

// OpenFile continues the log at path, or begins it.
func OpenFile(path string, max int64) (*File, error) {
	f := &File{path: path, max: max}
	return f, f.open()
}

func (f *File) open() (err error) {
	if f.f, err = os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640); err != nil {
		return err
	}
	info, err := f.f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file: without --log records go to standard output",
			f.path)
	}
	if err != nil {
		f.f.Close()
		return err
	}
	f.size = info.Size()
	return nil
}

// Write appends a line, whole.
func (f *File) Write(line []byte) (int, error) {
	if f.size > 0 && f.size+int64(len(line)) > f.max {
		if err := errors.Join(f.f.Close(), os.Rename(f.path, f.path+".1")); err != nil {
			return 0, err
		}
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	n, err := f.f.Write(line)
	f.size += int64(n)
	return n, err
}

// Close ends the log.
func (f *File) Close() error { return f.f.Close() }
