package journal

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/source/inlet"
	"levee/internal/agent/source/inlet/inlettest"
)

// TestAClockThatIsSetBackOverABootSilencesNoJournal: to journalctl the entries of the new boot were
// older than the cursor, and a source read nothing until the clock was where it had been.
func TestAClockThatIsSetBackOverABootSilencesNoJournal(t *testing.T) {
	dir := t.TempDir()
	here := thisBoot()
	entry := func(boot, text string) string {
		return `'{"__CURSOR":"s=1;i=2;b=` + boot + `;m=3;t=4;x=5","__REALTIME_TIMESTAMP":"1",` +
			`"MESSAGE":"` + text + `","SYSLOG_IDENTIFIER":"sshd"}'`
	}
	script := `#!/bin/sh
case "$*" in
*--follow*--after-cursor=*b=` + here + `*)
	printf '%s\n' ` + entry(here, "third") + `
	exec sleep 60;;
*--follow*--since=@*)
	at="$*"; at="${at##*--since=@}"
	[ "${at%% *}" -gt 9000000000 ] || printf '%s\n' ` + entry(here, "now") + `
	exec sleep 60;;
*--follow*--after-cursor*) exec sleep 60;; # older than the cursor
*--follow*--boot=` + here + `*)
	printf '%s\n' ` + entry(here, "first") + ` ` + entry(here, "second") + `
	exec sleep 60;;
*--after-cursor=*b=ended*)
	printf '%s\n' ` + entry("ended", "left") + ` ` + entry(here, "first") + `;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	at := &inlet.Place{At: "ssh.service", Format: inlet.Lines}
	for cursor, want := range map[string]string{
		"s=1;i=1;b=ended;m=3;t=4;x=5":        "left first second",
		"s=1;i=1;b=" + here + ";m=3;t=4;x=5": "third",
		"@9999999999":                        "now",
	} {
		in := inlettest.Open(t, &Row, at, inlet.Opening{Position: []byte(cursor)})
		var got []string
		inlettest.Poll(t, in, &got, func() bool { return len(got) == len(strings.Fields(want)) })
		for i, text := range strings.Fields(want) {
			if !strings.HasSuffix(got[i], ": "+text) {
				t.Errorf("behind %s: %q, want %s", cursor, got, want)
			}
		}
		if p := string(in.Position()); bootOf(p) != here {
			t.Errorf("goes on at %q", p)
		}
		in.Close()
	}
}

// TestAContainersJournalWasNotRead: Debian 12's systemd shows a unit in a container the boot of the
// machine, journalctl --follow took that for this one, and the source read nothing for ever.
func TestAContainersJournalWasNotRead(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
entry() { printf '{"__CURSOR":"b=container;i=%s","__REALTIME_TIMESTAMP":"1","MESSAGE":"%s"}\n' "$1" "$2"; }
case "$*" in
*--follow*--boot=container*--after-cursor=*) entry 2 next; exec sleep 60;;
*--follow*--boot=container*) entry 1 first; exec sleep 60;;
*--follow*) exec sleep 60;;
*--boot=*) exit 1;;
*--lines=1*) entry 1 newest;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	at := &inlet.Place{At: "ssh.service", Format: inlet.Lines}
	for cursor, want := range map[string]string{
		"@1": "first", "b=ended;i=9": "first", "b=container;i=1": "next"} {
		in := inlettest.Open(t, &Row, at, inlet.Opening{Position: []byte(cursor)})
		var got []string
		inlettest.Poll(t, in, &got, func() bool { return len(got) == 1 })
		if !strings.HasSuffix(got[0], ": "+want) {
			t.Errorf("behind %q: %q, want %s", cursor, got, want)
		}
		in.Close()
	}
}

// TestTheJournalIsReadOnFromItsCursor has a journalctl of its own, which answers as the real one.
func TestTheJournalIsReadOnFromItsCursor(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
echo "$@" >> ` + dir + `/args
case "$*" in
*--since=@*)
	printf '%s\n' '{"__CURSOR":"c1","__REALTIME_TIMESTAMP":"1700000000000000","MESSAGE":"from 192.0.2.1 x","SYSLOG_IDENTIFIER":"sshd"}'
	printf '%s\n' '{"__CURSOR":"c2","__REALTIME_TIMESTAMP":"1700000001000000","MESSAGE":[102,114,255],"_COMM":"a: b"}'
	echo 'no JSON'
	printf '%s\n' '{"__CURSOR":"c3","MESSAGE":null}'
	printf '%s\n' '{"__CURSOR":"c4","__REALTIME_TIMESTAMP":"1","MESSAGE":"two\nlines","SYSLOG_IDENTIFIER":"x"}';;
*--after-cursor=c4*)
	printf '%s\n' '{"__CURSOR":"c5","__REALTIME_TIMESTAMP":"1","MESSAGE":"last","SYSLOG_IDENTIFIER":"x"}'
	exec sleep 60;;
*) echo "no such cursor" >&2; exit 1;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	at := &inlet.Place{At: "ssh.service", Format: inlet.Lines}
	in := inlettest.Open(t, &Row, at, inlet.Opening{})
	if p := string(in.Position()); !strings.HasPrefix(p, "@") {
		t.Errorf("begins at %q", p)
	}
	var got []string
	inlettest.Poll(t, in, &got, func() bool { return len(got) == 4 })
	in.Close()
	stamp := time.Unix(1_700_000_000, 0).Format(time.RFC3339)
	if got[0] != stamp+" - sshd: from 192.0.2.1 x" ||
		!strings.HasSuffix(got[1], " - a__b: fr\xff") ||
		!strings.HasSuffix(got[2], " x: two") || !strings.HasSuffix(got[3], " x: last") ||
		string(in.Position()) != "c5" || in.State().TooLong != 1 {
		t.Errorf("%q, %q, %+v", got, in.Position(), in.State())
	}
	in = inlettest.Open(t, &Row, at, inlet.Opening{Position: []byte("c9")})
	inlettest.Poll(t, in, &got, func() bool {
		_, err := in.Poll(1, func([]byte) {})
		return err != nil && strings.Contains(err.Error(), "no such cursor")
	})
	in.Close()
	args, err := os.ReadFile(dir + "/args")
	if err != nil || !strings.Contains(string(args), "--unit=ssh.service") {
		t.Errorf("%s, %v", args, err)
	}
}

// FuzzEntries: whatever is in the journal, what is handed on is one line, and as much as was read.
func FuzzEntries(f *testing.F) {
	f.Add([]byte(`{"__CURSOR":"c","__REALTIME_TIMESTAMP":"1","MESSAGE":"a\nb","_COMM":"x: y"}`))
	f.Add([]byte(`{"__CURSOR":"s=1;b=2","MESSAGE":[102,255,10],"SYSLOG_IDENTIFIER":"\u0000[1]"}`))
	f.Add([]byte(`{"__CURSOR":1,"MESSAGE":{}}` + "\n" + `{"__CURSOR":"d","MESSAGE":[300]}`))
	f.Fuzz(func(t *testing.T, says []byte) {
		for _, format := range []string{inlet.Lines, "eve"} {
			j := &journal{Queue: inlet.NewQueue(), place: &inlet.Place{Format: format}}
			var cursor string
			if err := j.entries(bytes.NewReader(says), &cursor, "2"); err != nil {
				t.Fatal(err)
			}
			position, more, err := j.Take(1<<30, func(line []byte) {
				if bytes.ContainsRune(line, '\n') || len(line) == 0 {
					t.Fatalf("%q is no line", line)
				}
			})
			if err != nil || more || string(position) != cursor {
				t.Fatalf("%v, %v, at %q, not at %q", err, more, position, cursor)
			}
		}
	})
}
