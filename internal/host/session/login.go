package session

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// logins is the directory in which systemd-logind keeps what it knows of sessions.
const logins = "/run/systemd/sessions"

// LoggedIn returns the addresses from which somebody has logged in, with what shows it. A
// connection to an SSH server counts once its user has authenticated: anybody can make a
// connection. It asks systemd-logind, the titles of OpenSSH's processes, the children of
// Dropbear's, and SSH_CONNECTION. Which process has a connection is told with CAP_SYS_PTRACE only.
func LoggedIn() (map[netip.Addr]string, error) {
	out := map[netip.Addr]string{}
	for _, a := range loginAddresses(logins) {
		out[a] = sshSession
	}
	owners := socketOwners()
	in := map[uint32]bool{}
	for inode, pids := range owners.holders {
		for _, pid := range pids {
			in[inode] = in[inode] || loggedIn("/proc", pid)
		}
	}
	here, elsewhere, err := sessionsOf(owners)
	for _, s := range append(here, elsewhere...) {
		if s.What == thisConnection || s.What == sshSession && in[s.inode] {
			out[s.Remote.Addr().Unmap()] = s.What
		}
	}
	return out, err
}

// loginAddresses returns those of the sessions in logind's directory (org.freedesktop.login1(5):
// RemoteHost).
func loginAddresses(dir string) (out []netip.Addr) {
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		v := map[string]string{}
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				v[name] = strings.Trim(value, `"`)
			}
		}
		a, err := netip.ParseAddr(v["REMOTE_HOST"])
		if err == nil && v["REMOTE"] == "1" && v["STATE"] != "closing" {
			out = append(out, a.Unmap().WithZone(""))
		}
	}
	return out
}

// loggedIn tells whether the process that holds a connection serves somebody who has logged in.
// OpenSSH shows that in its title: "sshd: USER@TTY" or "sshd: USER". Before the login the title
// ends with [accepted], [net] or [priv]; the process with [priv] stays, beside one of the user.
// Dropbear has child processes only after the login.
func loggedIn(proc, pid string) bool {
	dir := filepath.Join(proc, pid)
	switch commOf(dir) {
	case "sshd", "sshd-session":
		b, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		title, rest, _ := strings.Cut(string(b), "\x00")
		if strings.Trim(rest, "\x00") != "" { // arguments: it has no title yet
			return false
		}
		_, user, ok := strings.Cut(title, ": ")
		user = strings.TrimSpace(user)
		return ok && user != "" && !strings.HasSuffix(user, "]") && !strings.Contains(user, " [")
	case "dropbear":
		b, _ := os.ReadFile(filepath.Join(dir, "task", pid, "children"))
		return len(b) > 0
	}
	return false
}
