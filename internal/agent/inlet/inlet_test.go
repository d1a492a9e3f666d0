package inlet

import (
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/follow"
	"levee/internal/await"
	"levee/internal/lang/policy"
)

// source is the source of a policy; DIR in it is a directory.
func source(t testing.TB, dir, input string) *policy.Source {
	t.Helper()
	format := "json"
	if strings.HasPrefix(input, "lines ") {
		format, input = "lines", strings.TrimPrefix(input, "lines ")
	}
	text := "set s = dynamic(max 10)\ndrop from s\ndefault pass\nsource \"x\" " + format + " " +
		strings.ReplaceAll(input, "DIR", dir) + map[string]string{"json": " add ip to s\n",
		"lines": ` match "from <addr> x" add addr to s` + "\n"}[format]
	p, ds := policy.Parse("e.levee", []byte(text), nil)
	if p == nil {
		t.Fatal(ds)
	}
	return p.Sources[0]
}

func open(t testing.TB, s *policy.Source, o Options) Inlet {
	t.Helper()
	in, err := Open(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// poll polls, as the agent does, until done says so. It keeps what has come.
func poll(t testing.TB, in Inlet, into *[]string, done func() bool) {
	t.Helper()
	await.OK(t, func() error {
		_, err := in.Poll(1<<20, func(b []byte) { *into = append(*into, string(b)) })
		in.Kept()
		if done() {
			return nil
		}
		return fmt.Errorf("%d lines have come, %v", len(*into), err)
	})
}

func dial(t testing.TB, network, path string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestReadersOfTheStateWriteNoEvents: the sockets of sources belonged to the group that reads what
// is in force, whose members could have anybody shut out.
func TestReadersOfTheStateWriteNoEvents(t *testing.T) {
	path := t.TempDir() + "/eve.sock"
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	own, err := user.LookupGroupId(fmt.Sprint(os.Getgid()))
	if err != nil {
		t.Skipf("no name of this group: %v", err)
	}
	for group, want := range map[string]os.FileMode{own.Name: 0o660, "there-is-no-such": 0o600} {
		if err := letWrite(path, group); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", group, st.Mode(), err)
		}
	}
}

func TestStreams(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/eve.sock"
	in := open(t, source(t, dir, `unix_stream "DIR/eve.sock"`), Options{})
	if in.Position() != nil {
		t.Error("a socket has a position")
	}
	var got []string
	a, b := dial(t, "unix", path), dial(t, "unix", path)
	fmt.Fprint(a, "one\r\ntw")
	fmt.Fprint(b, "\n\nthree\n")
	poll(t, in, &got, func() bool { return len(got) == 2 })
	if in.State().Peers != 2 {
		t.Errorf("%+v", in.State())
	}
	// one that never ends a line takes a bounded memory, and hinders nobody
	long := strings.Repeat("y", 1<<16)
	for range 3 * follow.MaxLine >> 16 {
		fmt.Fprint(b, long)
	}
	fmt.Fprint(a, "o\n")
	fmt.Fprint(b, "\nfour\nfive")
	b.Close()
	poll(t, in, &got, func() bool { return len(got) == 5 && in.State().Peers == 1 })
	slices.Sort(got)
	if fmt.Sprint(got) != "[five four one three two]" || in.State().TooLong != 1 {
		t.Errorf("%q, %+v", got, in.State())
	}
	// more connections than there may be
	for range maxPeers + 3 {
		dial(t, "unix", path)
	}
	poll(t, in, &got, func() bool { return in.State().Peers == maxPeers })
	// nobody reads: whoever writes waits, and memory is bounded
	done := make(chan int)
	go func() {
		n := 0
		a.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		for {
			m, err := fmt.Fprint(a, long, "\n")
			if n += m; err != nil {
				done <- n
				return
			}
		}
	}()
	if n := <-done; n > 3*queueBytes || in.State().LagBytes > queueBytes+1<<16 {
		t.Errorf("%d bytes were taken, %+v", n, in.State())
	}
	in.Close()
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left behind")
	}
}

func TestDatagrams(t *testing.T) {
	dir := t.TempDir()
	in := open(t, source(t, dir, `unix_dgram "DIR/eve.sock"`), Options{})
	defer in.Close()
	c := dial(t, "unixgram", dir+"/eve.sock")
	for _, text := range []string{"one", "two\n", "three\nfour\n", "\n", "five\x00"} {
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	poll(t, in, &got, func() bool { return len(got) == 5 })
	if fmt.Sprint(got) != "[one two three four five]" {
		t.Errorf("%q", got)
	}
}

// TestThePlaceOfASocket: a socket that a killed agent left is replaced, and nothing else is.
func TestThePlaceOfASocket(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/eve.sock"
	for _, network := range []string{"unix", "unixgram"} {
		s := source(t, dir, map[string]string{"unix": `unix_stream "DIR/eve.sock"`,
			"unixgram": `unix_dgram "DIR/eve.sock"`}[network])
		in := open(t, s, Options{})
		if _, err := Open(s, Options{}); err == nil || !strings.Contains(err.Error(), "another "+
			"program") {
			t.Errorf("%s: two listen: %v", network, err)
		}
		in.Close()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close() // as whoever is killed
		open(t, s, Options{}).Close()
		if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(s, Options{}); err == nil || !strings.Contains(err.Error(), "no socket") {
			t.Errorf("%s: a file is replaced: %v", network, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		in = open(t, s, Options{})
		if err := os.Rename(path, path+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
		in.Close()
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: what took the place of the socket is removed", network)
		}
		os.Remove(path)
	}
	if _, err := Open(source(t, dir, `unix_stream "DIR/no/eve.sock"`), Options{}); err == nil {
		t.Error("a socket is made in a directory that there is not")
	}
}

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
*--follow*--boot*)
	printf '%s\n' ` + entry(here, "first") + ` ` + entry(here, "second") + `
	exec sleep 60;;
*--follow*--after-cursor=*b=` + here + `*)
	printf '%s\n' ` + entry(here, "third") + `
	exec sleep 60;;
*--follow*--since=@*)
	at="$*"; at="${at##*--since=@}"
	[ "${at%% *}" -gt 9000000000 ] || printf '%s\n' ` + entry(here, "now") + `
	exec sleep 60;;
*--follow*) exec sleep 60;; # older than the cursor
*--after-cursor=*b=ended*)
	printf '%s\n' ` + entry("ended", "left") + ` ` + entry(here, "first") + `;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	s := source(t, dir, `lines journal "ssh.service"`)
	for cursor, want := range map[string]string{
		"s=1;i=1;b=ended;m=3;t=4;x=5":        "left first second",
		"s=1;i=1;b=" + here + ";m=3;t=4;x=5": "third",
		"@9999999999":                        "now",
	} {
		in := open(t, s, Options{Position: []byte(cursor)})
		var got []string
		poll(t, in, &got, func() bool { return len(got) == len(strings.Fields(want)) })
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
	s := source(t, dir, `lines journal "ssh.service"`)
	in := open(t, s, Options{})
	if p := string(in.Position()); !strings.HasPrefix(p, "@") {
		t.Errorf("begins at %q", p)
	}
	var got []string
	poll(t, in, &got, func() bool { return len(got) == 4 })
	in.Close()
	at := time.Unix(1_700_000_000, 0).Format(time.RFC3339)
	if got[0] != at+" - sshd: from 192.0.2.1 x" || !strings.HasSuffix(got[1], " - a__b: fr\xff") ||
		!strings.HasSuffix(got[2], " x: two") || !strings.HasSuffix(got[3], " x: last") ||
		string(in.Position()) != "c5" || in.State().TooLong != 1 {
		t.Errorf("%q, %q, %+v", got, in.Position(), in.State())
	}
	in = open(t, s, Options{Position: []byte("c9")})
	poll(t, in, &got, func() bool {
		_, err := in.Poll(1, func([]byte) {})
		return err != nil && strings.Contains(err.Error(), "no such cursor")
	})
	in.Close()
	args, err := os.ReadFile(dir + "/args")
	if err != nil || !strings.Contains(string(args), "--unit=ssh.service") {
		t.Errorf("%s, %v", args, err)
	}
}
