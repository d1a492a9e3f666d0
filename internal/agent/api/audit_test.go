package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"levee/internal/await"
)

// lines are the records of an audit log, of which there are at least so many: they are written when
// the answer is.
func lines(t *testing.T, path string, least int) (out []Record) {
	t.Helper()
	await.True(t, fmt.Sprint(least, " records"), func() bool {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out = nil
		for line := range strings.Lines(string(text)) {
			var r struct {
				Record
				Role string `json:"role"`
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			r.Record.Role, _ = ParseRole(r.Role)
			out = append(out, r.Record)
		}
		return len(out) >= least
	})
	return out
}

func TestTheAuditLogSaysWhatWasDoneAndRefused(t *testing.T) {
	_, url, _, tokens, audit := start(t)
	operator := "Bearer " + add(t, tokens, "ops", Operator)
	viewer := "Bearer " + add(t, tokens, "look", Viewer)
	ask(t, "GET", url+"/api/v1/sets/a", "", "Authorization", viewer) // no line
	ask(t, "POST", url+"/api/v1/sets/a", `{"entries":["1"]}`, "Authorization", operator)
	ask(t, "POST", url+"/api/v1/sets/a", `{"entries":["1"]}`, "Authorization", viewer)
	ask(t, "POST", url+"/api/v1/sets/a", `{"entries":["`+strings.Repeat("ä", 2000)+`"]}`,
		"Authorization", operator)
	ask(t, "POST", url+"/api/v1/login", `{"token":"levee_guess"}`)
	all := lines(t, audit, 4)
	if len(all) != 4 {
		t.Fatalf("%+v", all)
	}
	if r := all[0]; r.Who != "ops" || r.Role != Operator || r.Status != 200 ||
		!strings.HasPrefix(r.From, "127.0.0.1:") {
		t.Errorf("%+v", r)
	}
	if r := all[1]; r.Who != "look" || r.Status != 403 {
		t.Errorf("%+v", r)
	}
	if r := all[2]; len(r.What) > 3*maxWhat || r.Bytes < 4000 {
		t.Errorf("%+v", r)
	}
	if r := all[3]; r.Status != 401 || r.What != nil {
		t.Errorf("%+v", r)
	}
	if text, _ := os.ReadFile(audit); strings.Contains(string(text), "levee_guess") {
		t.Error("a token stands in the log")
	}
}

// TestTheAuditLogIsWrittenWhenThereIsRoomAgain: a line that met a full disk was lost, half of it
// spoiled the next, and the alarm stayed until somebody changed something.
func TestTheAuditLogIsWrittenWhenThereIsRoomAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var told error
	a := OpenAudit(path, func(err error) { told = err })
	defer a.Close()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	works := a.file
	a.file = full
	for i := range 2000 {
		r := &Record{Who: strconv.Itoa(i), Route: strings.Repeat("x", 100)}
		if err := a.write(r, false); err == nil {
			t.Fatal("a full disk took a line")
		}
	}
	if a.Check(); !errors.Is(told, syscall.ENOSPC) {
		t.Errorf("told %v", told)
	}
	if len(a.owed) > maxOwed {
		t.Errorf("%d bytes are kept", len(a.owed))
	}
	a.file = works
	if a.Check(); told != nil {
		t.Errorf("told %v", told)
	}
	if err := a.write(&Record{Who: "after"}, false); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(lines) < 100 || !strings.Contains(lines[0], `"0"`) ||
		!strings.Contains(lines[len(lines)-1], `"after"`) {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Fatalf("half a line: %q", line)
		}
	}
}

func TestTheAuditLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a := OpenAudit(path, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	defer a.Close()
	a.max = 2000
	now := time.Now()
	for n := range 200 {
		if err := a.write(&Record{At: now, Who: fmt.Sprint(n), Status: 200}, false); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != auditOld+1 {
		t.Errorf("%v %v", files, err)
	}
	for _, f := range files {
		if st, err := os.Stat(f); err != nil || st.Size() > a.max || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f, st, err)
		}
	}
	if last := lines(t, path, 1); last[len(last)-1].Who != "199" {
		t.Errorf("%+v", last)
	}
	// who is refused again and again does not turn the others out
	for range 1000 {
		err := a.write(&Record{At: now.Truncate(time.Minute), Status: 401}, true)
		if err != nil && err != errSkipped {
			t.Fatal(err)
		}
	}
	if a.refused != 1000 || a.size > a.max {
		t.Error(a.refused, a.size)
	}
}

// Who has no token turns nothing out of the audit log, whatever is sent: what a thief of a token
// did would be gone from it after some 60,000 requests to log out.
func TestAnybodyFillsTheAuditLogSlowly(t *testing.T) {
	for path, body := range map[string]string{"/api/v1/logout": "", loginPath: `{"token":`} {
		_, url, _, tokens, audit := start(t)
		for range 3 * maxRefused {
			ask(t, "POST", url+path, body)
		}
		token := add(t, tokens, "ops", Operator)
		ask(t, "POST", url+loginPath, `{"token":"`+token+`"}`)
		ask(t, "POST", url+"/api/v1/sets/a", `{"entries":["1"]}`, "Authorization", "Bearer "+token)
		var all []Record
		known := 0
		for end := time.Now().Add(time.Minute); known < 2 && time.Now().Before(end); {
			known, all = 0, lines(t, audit, 1)
			for _, r := range all {
				if r.Who == "ops" || r.Status == 200 && r.Path == loginPath {
					known++
				}
			}
		}
		if n := len(all); known != 2 || n > 2*maxRefused+2 { // the minute may end meanwhile
			t.Errorf("%d records, %d of them of who has a token, after %s", n, known, path)
		}
	}
}

// A terminal that shows the audit log obeys no control characters of a request.
func TestTheAuditLogHoldsNothingThatATerminalObeys(t *testing.T) {
	_, url, _, _, audit := start(t)
	address := strings.TrimPrefix(url, "http://")
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const query = "\u009b2J\u202e\U000e0001ä"
	fmt.Fprintf(c, "GET /api/v1/sets/a?%s HTTP/1.1\r\nHost: %s\r\n\r\n", query, address)
	if r := lines(t, audit, 1)[0]; r.Status != 401 || !strings.HasSuffix(r.Path, "?"+query) {
		t.Errorf("%+v", r)
	}
	text, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	if at := strings.IndexFunc(strings.TrimSpace(string(text)),
		func(r rune) bool { return !unicode.IsPrint(r) }); at >= 0 {
		t.Errorf("%q", text[at:])
	}
}
