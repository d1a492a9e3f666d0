package agent

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// log is a log of sshd that is written to and anew.
type log struct {
	t    *testing.T
	path string
	text string
}

func (l *log) fail(n int, addr string, ago time.Duration) {
	l.t.Helper()
	for range n {
		l.text += time.Now().Add(-ago).Format("2006-01-02T15:04:05-07:00") +
			" host sshd[7]: Failed password for root from " + addr + " port 4242 ssh2\n"
	}
	l.put(l.path, l.text)
}

// put writes a whole file in its place.
func (l *log) put(path, text string) {
	l.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// replace puts another file in the place of the log, as sed -i does.
func (l *log) replace(text string) {
	l.t.Helper()
	l.text = text
	l.put(l.path+"~new", text)
	if err := os.Rename(l.path+"~new", l.path); err != nil {
		l.t.Fatal(err)
	}
}

// TestALogThatIsWrittenAnewBansNobodyAgain: after sed -i, or mv of a copy, what was in the log was
// read again, and whoever had failed hours ago was banned, who was let in by hand, too.
func TestALogThatIsWrittenAnewBansNobodyAgain(t *testing.T) {
	const ssh = `source "ssh" lines file "DIR/auth.log" match sshd-failed after 5 within 10m ` +
		`add addr to s lease 1h` + "\n"
	for name, anew := range map[string]func(l *log){
		"sed -i":  func(l *log) { l.replace(strings.ReplaceAll(l.text, "root", "admin")) },
		"deleted": func(l *log) { l.replace(l.text[strings.Index(l.text, "\n")+1:]) },
		"copied":  func(l *log) { l.replace(l.text) },
		"in place": func(l *log) {
			l.text = strings.ReplaceAll(l.text, "root", "me")
			l.put(l.path, l.text)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
			l := &log{t: t, path: dir + "/auth.log"}
			l.fail(5, "198.51.100.1", 2*time.Hour)
			l.fail(4, "198.51.100.2", time.Minute)
			l.fail(3, "198.51.100.9", 10*time.Second)
			a := start(t, dir, k, ssh)
			read := func(want string) {
				t.Helper()
				clear(k.sets["s"])
				for a.poll(t.Context()) {
				}
				if got := banned(k); got != want {
					t.Errorf("banned %q, want %q", got, want)
				}
			}
			read("198.51.100.1/32")
			anew(l)
			read("")
			anew(l)
			read("")
			a.closeSources()
			a.ledger.Close()
			anew(l)
			a = start(t, dir, k, ssh) // a new process
			read("")
			l.fail(5, "198.51.100.4", 0)
			read("198.51.100.4/32")
		})
	}
}

// TestARotationInTheMiddleOfASecondLosesNothing: lines of a new file that are of the time of the
// last one before count on, as do those that are a copy.
func TestARotationInTheMiddleOfASecondLosesNothing(t *testing.T) {
	dir := t.TempDir()
	k := &fake{sets: map[string]map[netip.Prefix]time.Duration{}}
	a := start(t, dir, k, `source "x" eve file "DIR/eve.json" after 5 within 10m add src_ip to s`+"\n")
	event := func(n int, at time.Time) string {
		return fmt.Sprintf(`{"timestamp":%q,"n":%d,"src_ip":"198.51.100.1"}`+"\n",
			at.Format("2006-01-02T15:04:05.000000-0700"), n)
	}
	now := time.Now().Truncate(time.Second)
	l := &log{t: t, path: dir + "/eve.json"}
	l.put(l.path, event(1, now)+event(2, now)+event(3, now))
	for a.poll(t.Context()) {
	}
	if err := os.Rename(l.path, l.path+".1"); err != nil {
		t.Fatal(err)
	}
	l.put(l.path, event(4, now)+event(5, now))
	for a.poll(t.Context()) {
	}
	if got := banned(k); got != "198.51.100.1/32" {
		t.Errorf("banned %q", got)
	}
}

// banned are the entries of the set s.
func banned(k *fake) string {
	var out []string
	for p := range k.sets["s"] {
		out = append(out, p.String())
	}
	return strings.Join(out, " ")
}
