package event

import (
	"net/http"
	"net/http/httptest"
	"sync"

	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"levee/internal/await"
)

// TestAddressesOfConditionsWereTexts: Suricata writes all zeros of an IPv6 address, so that no
// condition on a short one ever held, and its negation always did.
func TestAddressesOfConditionsWereTexts(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "mine")
	if err := os.WriteFile(mine, []byte("2001:DB8:0::1\n198.51.100.7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const long = "2001:0db8:0000:0000:0000:0000:0000:0001"
	eve := fmt.Sprintf(`{"src_ip":%q,"dest_ip":"198.51.100.7","http":{"url":%q}}`, long, long)
	object := fmt.Sprintf(`{"ip":%q,"path":"1.2.3"}`, long)
	for where, want := range map[string]bool{
		`src_ip = "2001:db8::1"`:                     true,
		`src_ip != "2001:db8::1"`:                    false,
		`src_ip = "2001:0DB8:0:0::1"`:                true,
		`src_ip { "192.0.2.1", "2001:db8::1" }`:      true,
		`src_ip begins "2001:db8:"`:                  true,
		`src_ip ends "::1"`:                          true,
		`src_ip matches /^2001:db8::1$/`:             true,
		fmt.Sprintf("src_ip in file(%q)", mine):      true,
		fmt.Sprintf("not dest_ip in file(%q)", mine): false,
		`dest_ip = "198.51.100.7"`:                   true,
		`http.url = "` + long + `"`:                  true,
		`http.url = "2001:db8::1"`:                   false,
	} {
		_, r, err := New(source(t, "where "+where), nil, nil).Match([]byte(eve), time.Now())
		if err != nil || (r == Matched) != want {
			t.Errorf("%s: %d, want %v, %v", where, r, want, err)
		}
	}
	for where, want := range map[string]bool{
		`ip = "2001:db8::1"`:                    true,
		`ip begins "2001:0db8:0000"`:            true,
		`path = "1.2.3"`:                        true,
		fmt.Sprintf("not ip in file(%q)", mine): false,
	} {
		s := parse(t, `source "s" json file "/j" where `+where+` add ip to s`)
		_, r, err := New(s, nil, nil).Match([]byte(object), time.Now())
		if err != nil || (r == Matched) != want {
			t.Errorf("json: %s: %d, want %v, %v", where, r, want, err)
		}
	}
}

func TestTextsInConditions(t *testing.T) {
	names := filepath.Join(t.TempDir(), "names")
	if err := os.WriteFile(names, []byte("# known\nSSH-2.0-libssh_0.9.6\r\n\n  a.example \n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	const record = `{"event_type":"ssh","src_ip":"192.0.2.1","proto":"TCP","dest_port":22,` +
		`"ssh":{"client":{"software_version":"SSH-2.0-libssh_0.9.6"}},"http":{"url":"\/a\/b"},` +
		`"alert":{"metadata":{"cve":["CVE_1","CVE_2"]}}}`
	const version = "ssh.client.software_version "
	for where, want := range map[string]bool{
		version + `contains "libssh"`:                          true,
		version + `contains "LIBSSH"`:                          false,
		version + `contains "LIBSSH" any case`:                 true,
		version + `contains { "x", "lib" }`:                    true,
		"not " + version + `contains "libssh"`:                 false,
		version + `begins "SSH-2.0-lib"`:                       true,
		version + `begins "libssh"`:                            false,
		version + `ends { "0.9.5", "0.9.6" }`:                  true,
		version + `ends "libssh"`:                              false,
		version + `= "ssh-2.0-LIBSSH_0.9.6" any case`:          true,
		version + `= "ssh-2.0-LIBSSH_0.9.6"`:                   false,
		version + `matches /libssh[-_][0-9]/`:                  true,
		version + `matches /^libssh/`:                          false,
		version + `matches /^ssh.*LIBSSH|x/ any case`:          true,
		version + fmt.Sprintf("in file(%q)", names):            true,
		"not " + version + fmt.Sprintf("in file(%q)", names):   false,
		fmt.Sprintf("tls.sni in file(%q)", names):              false, // which it lacks
		fmt.Sprintf("not tls.sni in file(%q)", names):          false,
		`http.url matches /^\/a\/b$/`:                          true,
		`alert.metadata.cve ends "_2"`:                         true,
		`not alert.metadata.cve ends "_3"`:                     true,
		version + `contains "libssh" and proto = "TCP"`:        true,
		version + `contains "libssh" and not proto begins "T"`: false,
	} {
		_, r, err := New(source(t, "where "+where), nil, nil).Match([]byte(record), time.Now())
		if err != nil || (r == Matched) != want {
			t.Errorf("%s: %d, want %v, %v", where, r, want, err)
		}
	}
	line := []byte("Nov 25 01:31:58 h postfix/smtpd[1]: x from 192.0.2.1")
	for where, want := range map[string]bool{
		`program begins "postfix/"`:           true,
		`program matches /smtpd$/`:            true,
		`not program ends "smtpd"`:            false,
		`program { "POSTFIX/", "a" }`:         false,
		`program = "Postfix/SMTPD" any case`:  true,
		`program != "Postfix/SMTPD" any case`: false,
	} {
		m := New(parse(t, `source "a" lines file "/a" where `+where+
			` match "x from <addr>" add addr to s`), nil, nil)
		if _, r, err := m.Match(line, time.Now()); err != nil || (r == Matched) != want {
			t.Errorf("%s: %d, want %v, %v", where, r, want, err)
		}
	}
}

// TestListOfACondition: it is read again when it has changed, and what it held last holds while it
// cannot be read, which is told.
func TestListOfACondition(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "list")
	m := New(source(t, fmt.Sprintf("where tls.sni in file(%q) any case", path)), nil, nil)
	l := m.judge.(*objects).conds[0].texts.list.(*list)
	if l.most != maxListed {
		t.Errorf("it may have %d texts", l.most)
	}
	l.most = 100 // a million take seconds of a busy machine
	asked := func(name string) bool {
		t.Helper()
		l.looked = time.Time{}
		_, r, err := m.Match([]byte(`{"src_ip":"192.0.2.1","tls":{"sni":"`+name+`"}}`),
			time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return r == Matched
	}
	write := func(text string) {
		t.Helper()
		tmp := filepath.Join(dir, "new")
		if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, path); err != nil {
			t.Fatal(err)
		}
	}
	if asked("a.example") || m.Trouble() == nil {
		t.Error("a list that is missing is no trouble")
	}
	write("A.example\n")
	if !asked("a.Example") || m.Trouble() != nil {
		t.Errorf("a list that has come: %v", m.Trouble())
	}
	write("b.example\n")
	if asked("a.example") || !asked("b.example") {
		t.Error("a list that has changed")
	}
	write("\ufeffc.example\rb.example\r# x\r")
	if !asked("c.example") || !asked("b.example") || m.Trouble() != nil {
		t.Errorf("lines that end by CR behind a mark: %v", m.Trouble())
	}
	for what, spoil := range map[string]func() error{
		"removed":  func() error { return nil },
		"a FIFO":   func() error { return syscall.Mkfifo(path, 0o600) },
		"a folder": func() error { return os.Mkdir(path, 0o700) },
		"UTF-16": func() error {
			return os.WriteFile(path, []byte("\xff\xfeb\x00\n\x00"), 0o600)
		},
		"long lines": func() error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) },
		"too many": func() error {
			var b strings.Builder
			for i := range l.most + 1 {
				fmt.Fprintln(&b, i)
			}
			return os.WriteFile(path, []byte(b.String()), 0o600)
		},
	} {
		os.RemoveAll(path)
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if !asked("b.example") || m.Trouble() == nil ||
			!strings.Contains(m.Trouble().Error(), path) {
			t.Errorf("%s: %v", what, m.Trouble())
		}
	}
	os.RemoveAll(path)
	write("c.example\n")
	if !asked("c.example") || asked("b.example") || m.Trouble() != nil {
		t.Errorf("a list that is back: %v", m.Trouble())
	}
}

// TestNegatedConditionOfAListThatIsMissing: `not ... in file` held for everybody while the file was
// not there, and each client was banned.
func TestNegatedConditionOfAListThatIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	m := New(source(t, fmt.Sprintf("where not tls.sni in file(%q)", path)), nil, nil)
	record := []byte(`{"src_ip":"192.0.2.1","tls":{"sni":"a.example"}}`)
	if _, r, err := m.Match(record, time.Now()); r == Matched || err != nil {
		t.Errorf("matched without its list: %v, %v", r, err)
	}
}

// TestFetchedListOfACondition: nothing holds before it was read, nor does the contrary; it is read
// again in its time, and what it held last holds while it cannot be read, which is told. A source
// that is changed goes on with what it had.
func TestFetchedListOfACondition(t *testing.T) {
	var mu sync.Mutex
	status, text := http.StatusServiceUnavailable, ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	}))
	defer srv.Close()
	answer := func(s int, t string) {
		mu.Lock()
		defer mu.Unlock()
		status, text = s, t
	}
	of := source(t, fmt.Sprintf("where tls.sni in feed(url %q every 1s column 2) any case",
		srv.URL))
	m := New(of, nil, nil)
	held := func() *fetched { return m.judge.(*objects).conds[0].texts.list.(*fetched) }
	asked := func(name string) bool {
		_, r, err := m.Match([]byte(`{"src_ip":"192.0.2.1","tls":{"sni":"`+name+`"}}`),
			time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return r == Matched
	}
	again := func(until func() bool) {
		t.Helper()
		await.True(t, "the list is fetched", func() bool {
			f := held()
			f.mu.Lock()
			f.next = time.Time{}
			f.mu.Unlock()
			f.look()
			return until()
		})
	}
	if m.Trouble() != nil || asked("a.example") {
		t.Error("a list that was not asked for yet")
	}
	again(func() bool { return m.Trouble() != nil })
	if !strings.Contains(m.Trouble().Error(), srv.URL) {
		t.Errorf("which list is it? %v", m.Trouble())
	}
	m.judge.(*objects).conds[0].not = true
	if asked("a.example") {
		t.Error("the contrary of a list that was never read held")
	}
	m.judge.(*objects).conds[0].not = false
	answer(http.StatusOK, "# comment\n1,A.example\n2,b.example\n")
	again(func() bool { return asked("a.Example") })
	if asked("c.example") || m.Trouble() != nil {
		t.Errorf("what it does not hold, or %v", m.Trouble())
	}
	answer(http.StatusNotFound, "")
	again(func() bool { return m.Trouble() != nil })
	if !asked("b.example") {
		t.Error("what it held last is gone")
	}
	for _, is := range []string{"", "# no entries\n",
		"<!DOCTYPE html>\n<html>log in, please</html>\n"} {
		answer(http.StatusOK, "1,a.example\n2,b.example\n")
		again(func() bool { return m.Trouble() == nil })
		answer(http.StatusOK, is)
		again(func() bool { return m.Trouble() != nil })
		if !asked("b.example") {
			t.Errorf("what it held before %q came is gone", is)
		}
	}
	before := held()
	m = New(of, m, nil)
	if held() != before || !asked("b.example") {
		t.Error("a source that is changed begins without its list")
	}
	answer(http.StatusOK, "1,c.example\n")
	again(func() bool { return asked("c.example") })
	if asked("b.example") {
		t.Error("what the list no longer has")
	}
}
