// Package journal reads what a unit writes to the journal of systemd. In goes the name of a unit
// and a cursor, out come lines and the cursor behind them. It runs journalctl, and no shell.
package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"levee/internal/agent/source/inlet"
	"levee/internal/host/access"
)

// Row is the row.
var Row = inlet.Row{
	Name: "journal", Others: []string{"journald", "systemd"},
	At:       inlet.Value{What: "a unit, such as ssh.service", Form: `journal "ssh.service"`},
	Check:    check,
	ByFormat: true,
	Advise:   advise,
	Open: func(p *inlet.Place, o inlet.Opening) (inlet.Inlet, error) {
		return newJournal(p, o.Position), nil
	},
}

// unit is the name of a unit (systemd.unit(5)).
var unit = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,254}$`)
})

func check(p *inlet.Place, wrong func(of, hint, text string)) {
	if p.Format == inlet.EVE {
		wrong(p.Input, "let Suricata write a file (filetype: regular of eve-log), and write: "+
			`eve file "/var/log/suricata/eve.json".`,
			"eve is not read from the journal, where lines and json are")
	}
	if !unit().MatchString(p.At) {
		wrong("", `write: journal "ssh.service".`, "%q is no unit of systemd")
	}
}

func advise(p *inlet.Place, err error) string {
	if strings.Contains(err.Error(), "insufficient permissions") {
		return fmt.Sprintf("systemctl edit %s, with [Service] SupplementaryGroups="+
			"systemd-journal; then systemctl restart %[1]s", access.Unit())
	}
	return "type as the agent's user: journalctl --unit=" + p.At + " --lines=1"
}

// Times of reading the journal.
const (
	journalDelay = time.Second      // before journalctl is started anew
	journalEnd   = time.Second      // for it to end
	journalLook  = 10 * time.Second // for it to find one entry
)

// journal reads what a unit writes to the journal of systemd, by journalctl(1). Its position is the
// cursor of the last entry.
type journal struct {
	*inlet.Queue
	place  *inlet.Place
	cursor []byte // of the last entry that was handed on
	stop   chan struct{}
	ended  chan struct{}
}

// newJournal begins behind a cursor. Without one it begins now: the position "@" and the seconds
// since 1970.
func newJournal(p *inlet.Place, cursor []byte) *journal {
	if cursor == nil {
		cursor = fmt.Appendf(nil, "@%d", time.Now().Unix())
	}
	j := &journal{Queue: inlet.NewQueue(), place: p, cursor: cursor, stop: make(chan struct{}),
		ended: make(chan struct{})}
	go j.run(string(cursor))
	return j
}

// Poll hands on what has come.
func (j *journal) Poll(most int64, line func([]byte)) (bool, error) {
	cursor, more, err := j.Take(most, line)
	if cursor != nil {
		j.cursor = cursor
	}
	return more, err
}

// Position returns the cursor of the last entry.
func (j *journal) Position() []byte { return j.cursor }

// Close ends journalctl.
func (j *journal) Close() {
	close(j.stop)
	j.End()
	<-j.ended
}

func (j *journal) run(cursor string) {
	defer close(j.ended)
	for {
		err := j.session(&cursor)
		select {
		case <-j.stop:
			return
		default:
		}
		if err == nil {
			err = errors.New("it has ended")
		}
		j.Fail(fmt.Errorf("read the journal of %s by journalctl: %w", j.place.At, err))
		select {
		case <-j.stop:
			return
		case <-time.After(journalDelay):
		}
	}
}

// session runs journalctl until it ends. The entries of another boot than the cursor's have no
// place before or behind it where the clock was set back in between: journalctl takes them for
// older, and would be silent until the clock is where it was. So what is left of boots that have
// ended is read by itself, and then this boot from its beginning.
func (j *journal) session(cursor *string) error {
	this := thisBoot()
	follow := []string{"--follow", "--no-tail", strings.TrimSuffix("--boot="+this, "=")}
	at, since := strings.CutPrefix(*cursor, "@")
	switch boot := bootOf(*cursor); {
	case since:
		if n, err := strconv.ParseInt(at, 10, 64); err == nil { // not in the future of this clock
			at = strconv.FormatInt(min(n, time.Now().Unix()), 10)
		}
		return j.journalctl(cursor, "", append(follow, "--since=@"+at)...)
	case boot == "" || boot == this:
		return j.journalctl(cursor, "", append(follow, "--after-cursor="+*cursor)...)
	}
	if err := j.journalctl(cursor, this, "--after-cursor="+*cursor); err != nil {
		return err
	}
	return j.journalctl(cursor, "", follow...)
}

// bootOf returns the boot of a cursor, "" if it names none.
func bootOf(cursor string) string {
	for field := range strings.SplitSeq(cursor, ";") {
		if boot, is := strings.CutPrefix(field, "b="); is {
			return boot
		}
	}
	return ""
}

// thisBoot returns how cursors name this boot, "" if nobody knows: as the kernel does, where the
// journal has entries of that. With systemd 252 the sandbox of a unit hides the number that a
// container has of its own, which journalctl then takes --follow for too. The boot is that of the
// newest entry there.
func thisBoot() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	kernel := strings.ReplaceAll(strings.TrimSpace(string(b)), "-", "")
	return cmp.Or(newest("--boot="+kernel), newest(), kernel)
}

// newest returns the boot of the newest entry of those that journalctl finds, "" if there is none.
func newest(which ...string) string {
	ctx, stop := context.WithTimeout(context.Background(), journalLook)
	defer stop()
	out, _ := exec.CommandContext(ctx, "journalctl", append(which, "--quiet", "--no-pager",
		"--output=json", "--lines=1", "--output-fields=_BOOT_ID")...).Output()
	var e entry
	_ = json.Unmarshal(out, &e) // nothing, where it finds none
	return bootOf(e.Cursor)
}

// journalctl runs journalctl until it ends, and leaves out the entries of a boot.
func (j *journal) journalctl(cursor *string, but string, which ...string) error {
	args := append([]string{"--quiet", "--no-pager", "--all", "--output=json",
		"--unit=" + j.place.At}, which...)
	if j.place.Format == inlet.Lines {
		args = append(args, "--output-fields=MESSAGE,SYSLOG_IDENTIFIER,_COMM")
	}
	cmd := exec.Command("journalctl", args...)
	cmd.WaitDelay = journalEnd
	var said bytes.Buffer
	cmd.Stderr = &firstBytesOf{&said, 1000}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		select {
		case <-j.stop:
		case <-gone:
		}
		_ = cmd.Process.Kill()
	}()
	err = j.entries(out, cursor, but)
	close(gone)
	if wait := cmd.Wait(); err == nil {
		err = wait
	}
	if text := strings.TrimSpace(said.String()); text != "" {
		err = fmt.Errorf("%s (%w)", text, err)
	}
	return err
}

// entry holds the fields that are read of a journal entry.
type entry struct {
	Cursor  string          `json:"__CURSOR"`
	Time    string          `json:"__REALTIME_TIMESTAMP"` // µs since 1970
	Message json.RawMessage `json:"MESSAGE"`
	Program string          `json:"SYSLOG_IDENTIFIER"`
	Command string          `json:"_COMM"`
}

// entries reads what journalctl writes, one object a line, and leaves out a boot.
func (j *journal) entries(from io.Reader, cursor *string, but string) error {
	tooLong := func() { j.Change(func(s *inlet.State) { s.TooLong++ }) }
	return inlet.ReadLines(from, tooLong, func(line []byte) bool {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil || e.Cursor == "" {
			tooLong()
			return true
		}
		if but != "" && bootOf(e.Cursor) == but {
			return true
		}
		j.Fail(nil)
		if j.place.Format == inlet.Lines {
			if line = e.line(); line == nil {
				return true
			}
		}
		*cursor = e.Cursor
		return j.Put(line, []byte(e.Cursor))
	})
}

// line returns an entry as a line of a log, with its time and its program. A message with an end of
// a line in it is not one line, and is cut there.
func (e *entry) line() []byte {
	var text string
	if json.Unmarshal(e.Message, &text) != nil {
		var b []byte // a list of numbers, of what is no UTF-8
		if json.Unmarshal(e.Message, &b) != nil {
			return nil
		}
		text = string(b)
	}
	if text, _, _ = strings.Cut(text, "\n"); text == "" {
		return nil
	}
	var at time.Time
	var us int64
	if _, err := fmt.Sscan(e.Time, &us); err == nil {
		at = time.UnixMicro(us)
	}
	program := e.Program
	if program == "" {
		program = e.Command
	}
	program = strings.Map(func(c rune) rune {
		if c <= ' ' || c == ':' || c == '"' || c == '[' || c == ']' {
			return '_'
		}
		return c
	}, program)
	return fmt.Appendf(nil, "%s - %s: %s", at.Format(time.RFC3339Nano), program, text)
}

// firstBytesOf keeps the first bytes of what is written.
type firstBytesOf struct {
	b    *bytes.Buffer
	most int
}

func (w *firstBytesOf) Write(p []byte) (int, error) {
	w.b.Write(p[:min(len(p), max(0, w.most-w.b.Len()))])
	return len(p), nil
}
