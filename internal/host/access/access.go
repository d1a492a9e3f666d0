// Package access says what to do where this process cannot read or write a file, or reach a server:
// which group a service has to join, what its unit keeps from it.
//
// In goes a path or URL with the error that it met, out comes what to type. It changes nothing.
package access

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Read returns what to do where a file cannot be read, "" if that is not known.
func Read(path string, err error) string {
	hidden := hiddenFrom(path, "let the program write below /var/log")
	switch {
	case errors.Is(err, fs.ErrNotExist) && hidden != "":
		return hidden
	case errors.Is(err, fs.ErrNotExist):
		return "look whether " + path + " is the right path, and whether its program runs"
	case !errors.Is(err, fs.ErrPermission):
		return ""
	case hidden != "":
		return hidden
	}
	for _, p := range append(above(path), path) {
		st, err := os.Stat(p)
		if err != nil {
			return ""
		}
		if what := denied(p, st, p != path); what != "" {
			return what
		}
	}
	return ""
}

// Policy returns what to do where a policy, or a file that one names, cannot be read; "" if that is
// not known.
func Policy(path string, err error) string {
	if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	hidden := ""
	if ownUnit() != "" { // a shell in a desktop is in one, too
		hidden = hiddenFrom(path, "put it below /etc/levee")
	}
	switch {
	case hidden != "" || errors.Is(err, fs.ErrNotExist):
		return hidden
	case os.Geteuid() != 0:
		return "run as its owner or as root"
	}
	return "root is without its rights over files of others here, as in a unit: chown root " + path
}

// Write returns what to do where a file of this process's cannot be written, "" if that is not
// known.
func Write(path string, err error) string {
	dir := filepath.Dir(path)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "make room: df -h " + dir
	case errors.Is(err, syscall.EROFS):
		return "let it be written: findmnt -T " + dir + " says which file system is read-only"
	case errors.Is(err, fs.ErrPermission):
		return "let its user write: ls -ld " + dir + " " + path
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR),
		errors.Is(err, fs.ErrExist):
		return "move away what is in its place: ls -ld " + dir + " " + path
	}
	return ""
}

// Reach returns what to do where a server cannot be reached, or its name not be looked up; "" if
// the error is of another kind. at is its URL or name.
func Reach(at string, err error) string {
	var slow net.Error
	late := errors.As(err, &slow) && slow.Timeout()
	var unknown *net.DNSError
	switch {
	case (late || errors.Is(err, fs.ErrPermission)) && heldToLoopback():
		return fmt.Sprintf("let its unit reach more than this machine: install -D -m 644 "+
			"/usr/share/levee/agent-outgoing.conf %s; systemctl daemon-reload; systemctl "+
			"restart %s", outgoing(), Unit())
	case errors.As(err, &unknown):
		return "look whether the name is known here: getent ahosts " + unknown.Name
	case late, errors.As(err, new(*url.Error)), errors.As(err, new(*net.OpError)):
		return "look what this machine gets of it: curl -v '" + at + "'"
	}
	return ""
}

// units has the drop-ins of an administrator.
var units = "/etc/systemd/system"

// outgoing is the drop-in by which the service reaches more than this machine.
func outgoing() string { return filepath.Join(units, Unit()+".service.d/outgoing.conf") }

// heldToLoopback tells whether this process is a service without that drop-in.
func heldToLoopback() bool {
	_, err := os.Stat(outgoing())
	return os.Getenv("INVOCATION_ID") != "" && errors.Is(err, fs.ErrNotExist)
}

// above returns the directories of a path, the root first.
func above(path string) (out []string) {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		out = append([]string{dir}, out...)
		if dir == filepath.Dir(dir) {
			return out
		}
	}
}

// denied returns what to do about a file that may not be read, or a directory that may not be
// entered; "" if it may.
func denied(path string, st fs.FileInfo, dir bool) string {
	need, letter := uint32(unix.R_OK), "r"
	if dir {
		need, letter = unix.X_OK, "x"
	}
	if unix.Faccessat(unix.AT_FDCWD, path, need, unix.AT_EACCESS) == nil {
		return ""
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	group := groupName(sys.Gid)
	if uint32(st.Mode().Perm())>>3&need == 0 {
		return fmt.Sprintf("let the group read it: chmod g+%s %s, and then let %s join the group "+
			"%s (SupplementaryGroups=%[4]s)", letter, path, Unit(), group)
	}
	if groups, err := os.Getgroups(); err == nil && slices.Contains(groups, int(sys.Gid)) {
		return ""
	}
	return fmt.Sprintf("let %s join the group %s, whose %s is: systemctl edit %[1]s, with "+
		"[Service] SupplementaryGroups=%[2]s; then systemctl restart %[1]s", Unit(), group, path)
}

func groupName(gid uint32) string {
	id := strconv.Itoa(int(gid))
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}

// hiddenFrom returns what to do about a path that the sandbox of a service hides from it, which may
// be something else instead; "" if it hides none.
func hiddenFrom(path, instead string) string {
	if os.Getenv("INVOCATION_ID") == "" { // no service of systemd
		return ""
	}
	within := func(dirs ...string) bool {
		return slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(path, d) })
	}
	switch {
	case within("/home/", "/root/", "/run/user/"):
		return fmt.Sprintf("the unit hides %s from it (ProtectHome=yes): %s, or systemctl edit "+
			"%s, with [Service] ProtectHome=read-only; then systemctl restart %[3]s", path,
			instead, Unit())
	case within("/tmp/", "/var/tmp/"):
		return fmt.Sprintf("the unit has a /tmp of its own (PrivateTmp=yes): %s, or systemctl "+
			"edit %s, with [Service] PrivateTmp=no; then systemctl restart %[2]s", instead, Unit())
	}
	return ""
}

// cgroup has the control groups of this process.
var cgroup = "/proc/self/cgroup"

// Unit returns the service that this process is, or the agent's.
func Unit() string { return cmp.Or(ownUnit(), "levee-agent") }

// ownUnit returns the service of levee that this process is, "" if it is none.
func ownUnit() string {
	text, _ := os.ReadFile(cgroup)
	_, path, _ := strings.Cut(strings.TrimSpace(string(text)), "::")
	unit, is := strings.CutSuffix(filepath.Base(path), ".service")
	if is && strings.HasPrefix(unit, "levee") {
		return unit
	}
	return ""
}
