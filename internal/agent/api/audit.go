package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"levee/internal/lang/diag"
)

// Record is a line of the audit log: a request that changed something, or was refused.
type Record struct {
	At     time.Time       `json:"at"`
	Who    string          `json:"who"` // name of the token, root, or ""
	Role   Role            `json:"role"`
	From   string          `json:"from"`
	Method string          `json:"method"`
	Path   string          `json:"path"` // with its query, at most 500 bytes
	Route  string          `json:"route,omitempty"`
	What   json.RawMessage `json:"what,omitempty"` // body of the request, at most 1 KiB
	Bytes  int             `json:"bytes"`          // of the body
	Status int             `json:"status"`
	Why    string          `json:"why,omitempty"` // of a panic
	Millis float64         `json:"ms"`
}

// Bounds of the log: the file and three old ones, of 4 MiB each.
const (
	maxAuditBytes = 4 << 20
	auditOld      = 3
	maxWhat       = 1 << 10
	maxPath       = 500
	// most records a minute of unknown callers and of refusals: more would turn all else out of the
	// log
	maxRefused = 60
	maxOwed    = 64 << 10 // of lines that could not be written
)

// Audit is the log of who changed what.
type Audit struct {
	path string
	max  int64
	told func(error)

	mu      sync.Mutex
	file    *os.File // nil: it is opened with the next line
	size    int64
	owed    []byte // whole lines that could not be written yet
	minute  time.Time
	refused int
}

// OpenAudit opens the log, or makes it. told hears each time whether the log could be opened or
// written; what cannot be written is written later, and does not keep the request from being
// answered.
func OpenAudit(path string, told func(error)) *Audit {
	a := &Audit{path: path, max: maxAuditBytes, told: told}
	told(a.open())
	return a
}

func (a *Audit) open() error {
	if err := os.MkdirAll(filepath.Dir(a.path), 0o700); err != nil {
		return fmt.Errorf("make the directory of the audit log: %w", err)
	}
	f, err := os.OpenFile(a.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, fileMode)
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("open the audit log: %w", err), f.Close())
	}
	a.file, a.size = f, st.Size()
	return nil
}

// Close ends the use of the file.
func (a *Audit) Close() error {
	if a.file == nil {
		return nil
	}
	return a.file.Close()
}

func (a *Audit) rotate() error {
	err := a.file.Close()
	if a.file = nil; err != nil {
		return err
	}
	for n := auditOld; n > 0; n-- {
		from := fmt.Sprintf("%s.%d", a.path, n-1)
		if n == 1 {
			from = a.path
		}
		err := os.Rename(from, fmt.Sprintf("%s.%d", a.path, n))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, a.open())
		}
	}
	return a.open()
}

// Check opens the log where that has failed, and writes what is owed to it.
func (a *Audit) Check() {
	a.mu.Lock()
	due := a.file == nil || len(a.owed) > 0
	var err error
	if due {
		err = a.flush()
	}
	a.mu.Unlock()
	if due {
		a.told(err)
	}
}

// errSkipped is that a line is one too many of its kind.
var errSkipped = errors.New("too many lines of its kind")

// write appends a record as one line. Records of refused requests and of unknown callers are
// limited to a number a minute.
func (a *Audit) write(r *Record, refused bool) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	line = append(diag.EscapedJSON(line), '\n')
	a.mu.Lock()
	defer a.mu.Unlock()
	if refused {
		if minute := r.At.Truncate(time.Minute); !minute.Equal(a.minute) {
			a.minute, a.refused = minute, 0
		}
		if a.refused++; a.refused > maxRefused {
			return errSkipped
		}
	}
	if len(a.owed) > 0 && len(a.owed)+len(line) > maxOwed {
		return errors.Join(errors.New("a line of the audit log is lost"), a.flush())
	}
	a.owed = append(a.owed, line...)
	return a.flush()
}

// flush writes what is owed. Of lines that did not fit, no part stays.
func (a *Audit) flush() error {
	if a.file == nil {
		if err := a.open(); err != nil {
			return err
		}
	}
	if a.size > 0 && a.size+int64(len(a.owed)) > a.max {
		if err := a.rotate(); err != nil {
			return err
		}
	}
	if _, err := a.file.Write(a.owed); err != nil {
		return fmt.Errorf("write the audit log: %w", errors.Join(err, a.file.Truncate(a.size)))
	}
	a.size += int64(len(a.owed))
	a.owed = nil
	return nil
}

// audit notes a request that changed something, or was refused for who asked.
func (s *Server) audit(r *http.Request, a *answer, route *Route, c Caller, body []byte,
	begun time.Time, why string) {
	if s.opts.Audit == nil {
		return
	}
	changes := route != nil && !route.Quiet && r.Method != http.MethodGet &&
		r.Method != http.MethodHead
	session := route != nil && route.Quiet && route.Role == Anybody
	refused := a.status == http.StatusUnauthorized || a.status == http.StatusForbidden ||
		a.status == http.StatusMisdirectedRequest
	if !refused && !changes && !session && why == "" {
		return
	}
	if c.Role <= Anybody && (a.status != http.StatusOK || r.URL.Path != loginPath) {
		refused = true // anybody could send it
	}
	rec := Record{At: begun.UTC(), Who: c.Name, Role: c.Role, From: c.From, Method: cut(r.Method,
		20),
		Path: cut(r.URL.RequestURI(), maxPath), Bytes: len(body), Status: a.status, Why: why,
		Millis: float64(time.Since(begun).Microseconds()) / 1000}
	if rec.From == "" {
		rec.From = r.RemoteAddr
	}
	if route != nil {
		rec.Route = route.name()
	}
	if changes {
		rec.What = what(body)
	}
	if err := s.opts.Audit.write(&rec, refused); err != errSkipped {
		s.opts.Audit.told(err)
	}
}

// what returns a body in one line: as it is, or its beginning as a text.
func what(body []byte) json.RawMessage {
	var b bytes.Buffer
	if len(body) <= maxWhat && json.Compact(&b, body) == nil {
		return b.Bytes()
	}
	text, err := json.Marshal(cut(string(body), maxWhat))
	if err != nil || len(body) == 0 {
		return nil
	}
	return text
}

// cut returns the beginning of a text.
func cut(s string, most int) string {
	return strings.ToValidUTF8(s[:min(len(s), most)], "\uFFFD")
}
