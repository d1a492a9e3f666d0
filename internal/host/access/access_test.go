package access

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const childEnv = "LEVEE_TEST_READ"

// TestMain reads a file, for a child that may not.
func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		f, err := os.Open(path)
		if err == nil {
			f.Close()
		}
		os.Stdout.WriteString(Read(path, err))
		return
	}
	os.Exit(m.Run())
}

// readAs returns the advice to a process of nobody that may not read a file.
func readAs(t *testing.T, path string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestWhoMayNotReadALogIsToldTheGroup to join: of the file, or of the directory on the way.
func TestWhoMayNotReadALogIsToldTheGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run as another user")
	}
	root, err := os.MkdirTemp("", "access") // that of the test is root's alone
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	put := func(path string, mode fs.FileMode, gid int) string {
		path = filepath.Join(root, path)
		if strings.HasSuffix(path, ".log") {
			err = os.WriteFile(path, nil, 0o600)
		} else {
			err = os.Mkdir(path, 0o700)
		}
		if err == nil {
			err = os.Chown(path, 0, gid)
		}
		if err == nil {
			err = os.Chmod(path, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	const adm = 4 // of Debian and systemd
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	open := put("open.log", 0o644, 0)
	if got := readAs(t, open); got != "" {
		t.Errorf("a file that may be read: %q", got)
	}
	log := put("access.log", 0o640, adm)
	if got := readAs(t, log); !strings.Contains(got, "SupplementaryGroups="+groupName(adm)) ||
		!strings.Contains(got, log) {
		t.Errorf("a log of a group: %q", got)
	}
	own := put("own.log", 0o600, adm)
	if got := readAs(t, own); !strings.Contains(got, "chmod g+r "+own) {
		t.Errorf("a log of its owner alone: %q", got)
	}
	dir := put("dir", 0o750, adm)
	below := put("dir/below.log", 0o644, adm)
	if got := readAs(t, below); !strings.Contains(got, "SupplementaryGroups=") ||
		!strings.Contains(got, dir+" is") {
		t.Errorf("a log in a directory of a group: %q", got)
	}
}

// TestWhatAUnitHidesIsTold, where a path below /home or /tmp is not there for it.
func TestWhatAUnitHidesIsTold(t *testing.T) {
	t.Setenv("INVOCATION_ID", "")
	if got := Read("/home/x/a.log", fs.ErrNotExist); strings.Contains(got, "ProtectHome") {
		t.Error(got)
	}
	t.Setenv("INVOCATION_ID", "0123")
	for path, want := range map[string]string{"/home/x/a.log": "ProtectHome=read-only",
		"/tmp/a.log": "PrivateTmp=no", "/var/log/a.log": "/var/log/a.log is the right path"} {
		if got := Read(path, fs.ErrNotExist); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// TestAUnitThatMayNotReadItsPolicyIsToldWhy: it is root, and was told to be.
func TestAUnitThatMayNotReadItsPolicyIsToldWhy(t *testing.T) {
	t.Setenv("INVOCATION_ID", "0123")
	if got := Policy("/home/x/bad.txt", fs.ErrNotExist); got != "" {
		t.Errorf("a shell is told %q", got)
	}
	own := cgroup
	defer func() { cgroup = own }()
	cgroup = filepath.Join(t.TempDir(), "cgroup")
	at := "0::/system.slice/system-levee.slice/levee@eth0.service\n"
	if err := os.WriteFile(cgroup, []byte(at), 0o600); err != nil {
		t.Fatal(err)
	}
	as := "run as its owner or as root"
	if os.Geteuid() == 0 {
		as = "chown root /etc/levee/bad.txt"
	}
	for _, c := range []struct {
		path string
		err  error
		want string
	}{
		{"/etc/levee/bad.txt", fs.ErrPermission, as},
		{"/etc/levee/bad.txt", fs.ErrNotExist, ""},
		{"/home/x/bad.txt", fs.ErrPermission,
			"put it below /etc/levee, or systemctl edit levee@eth0, "},
		{"/tmp/bad.txt", fs.ErrNotExist, "PrivateTmp=no"},
		{"/etc/levee/bad.txt", fs.ErrClosed, ""},
	} {
		got := Policy(c.path, c.err)
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s, %v: %q, want %q", c.path, c.err, got, c.want)
		}
	}
}

func TestWhatCannotBeWritten(t *testing.T) {
	for err, want := range map[error]string{syscall.ENOSPC: "df -h /var/lib/levee",
		syscall.EROFS: "findmnt -T /var/lib/levee", fs.ErrPermission: "ls " +
			"-ld", errors.New("x"): ""} {
		if got := Write("/var/lib/levee/agent.db", err); !strings.Contains(got, want) ||
			want == "" && got != "" {
			t.Errorf("%v: %q", err, got)
		}
	}
}

// TestAServiceIsHeldToLoopback until it has the drop-in: the kernel drops or refuses what it sends.
func TestAServiceIsHeldToLoopback(t *testing.T) {
	dir := t.TempDir()
	defer func(of string) { units = of }(units)
	units = dir
	t.Setenv("INVOCATION_ID", "1")
	late := &url.Error{Op: "Get", URL: "https://l.example/", Err: context.DeadlineExceeded}
	refused := &url.Error{Op: "Get", URL: "https://l.example/", Err: syscall.EPERM}
	for _, err := range []error{late, refused} {
		if got := Reach("https://l.example/", err); !strings.Contains(got, "agent-outgoing.conf "+
			dir) {
			t.Errorf("%v: %q", err, got)
		}
	}
	if err := os.MkdirAll(filepath.Dir(outgoing()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(outgoing(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Reach("https://l.example/", late); !strings.Contains(got, "curl -v ") {
		t.Errorf("with it: %q", got)
	}
}
