package notify

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/agent/live"
	"levee/internal/host/atomicfile"
)

// Way is how a target is told.
type Way string

// Ways of telling.
const (
	Webhook Way = "webhook"
	Mail    Way = "mail"
	Command Way = "command"
)

// Target is whom to tell, and of what.
type Target struct {
	Name   string      `json:"name"`
	Way    Way         `json:"way"`
	To     string      `json:"to"`               // URL, address or path
	Secret string      `json:"secret,omitempty"` // of a webhook's signatures
	Server string      `json:"server,omitempty"` // of mail, HOST:PORT; "": the local sendmail
	From   string      `json:"from,omitempty"`   // of mail
	On     []live.Kind `json:"on"`
	Limit  Limit       `json:"limit"`
}

// Limit is how many messages a target gets in a time.
type Limit struct {
	Most int
	Per  time.Duration
}

// units of limits, in the order in which they are tried.
var units = []struct {
	name string
	per  time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

const maxPerTime = 1000

// ParseLimit reads a limit such as 10/h.
func ParseLimit(s string) (Limit, error) {
	count, unit, _ := strings.Cut(s, "/")
	n, err := strconv.Atoi(count)
	for _, u := range units {
		if err == nil && u.name == unit && n >= 1 && n <= maxPerTime {
			return Limit{n, u.per}, nil
		}
	}
	return Limit{}, fmt.Errorf("%q is no limit: write 10/h, with s, m, h or d, and at most %d", s,
		maxPerTime)
}

func (l Limit) String() string {
	for _, u := range units {
		if u.per == l.Per {
			return strconv.Itoa(l.Most) + "/" + u.name
		}
	}
	return ""
}

// MarshalText is for JSON.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads a limit.
func (l *Limit) UnmarshalText(b []byte) (err error) {
	*l, err = ParseLimit(string(b))
	return err
}

// Kinds are the events that a target may ask for.
var Kinds = []live.Kind{live.Incident, live.Alarm, live.Policy, live.Refused, live.Withdrawn}

// ParseKinds reads a list of kinds with commas between them.
func ParseKinds(s string) (out []live.Kind, err error) {
	for word := range strings.SplitSeq(s, ",") {
		k := live.Kind(strings.TrimSpace(word))
		if !slices.Contains(Kinds, k) {
			return nil, fmt.Errorf("%q is no kind of event: there are %s", word, kindNames())
		}
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out, nil
}

func kindNames() string {
	var all []string
	for _, k := range Kinds {
		all = append(all, string(k))
	}
	return strings.Join(all, ", ")
}

var (
	targetName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,31}$`)
	// of Standard Webhooks
	secretPrefix = "whsec_"
)

const (
	maxTargets = 32
	fileMode   = 0o600
)

// Check tells what is wrong with a target.
func (t *Target) Check() error {
	switch {
	case !targetName.MatchString(t.Name):
		return fmt.Errorf("%q is no name: small letters, digits, and . _ - behind the first, at "+
			"most 32", t.Name)
	case len(t.On) == 0:
		return fmt.Errorf("say which events: %s", kindNames())
	case t.Limit.Most < 1:
		return errors.New("a limit is missing: write 10/h")
	}
	switch t.Way {
	case Webhook:
		return checkURL(t.To)
	case Mail:
		return t.checkMail()
	case Command:
		return checkCommand(t.To)
	}
	return errors.New("say how to tell: webhook, mail or command")
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%.60q is no URL: write https://HOST/PATH", s)
	case u.User != nil:
		return errors.New("a URL with a password in it stands in logs: put the secret into the " +
			"path")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return fmt.Errorf("http to %s would tell everybody on the way: use https", u.Hostname())
	}
	return nil
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

func (t *Target) checkMail() error {
	for _, a := range []string{t.To, t.From} {
		if a == "" && t.To != "" {
			continue
		}
		if got, err := mail.ParseAddress(a); err != nil || got.Address != a {
			return fmt.Errorf("%.60q is no address of mail, such as ops@example.net", a)
		}
	}
	if t.Server == "" {
		return nil
	}
	if host, port, err := net.SplitHostPort(t.Server); err != nil || host == "" || port == "" {
		return fmt.Errorf("%.60q is no HOST:PORT, such as 127.0.0.1:25", t.Server)
	}
	return nil
}

// checkCommand refuses programs that others than root could change: the agent is root.
func checkCommand(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is not a whole path: begin it with /", path)
	}
	if clean := filepath.Clean(path); clean != path {
		return fmt.Errorf("%q is not the shortest form of the path: write %s", path, clean)
	}
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("look at the command: %w", err)
	case !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
		return fmt.Errorf("%s is no program: chmod +x it", path)
	case st.Mode()&0o022 != 0:
		return fmt.Errorf("others than its owner may write %s, and it would run as root: chmod "+
			"go-w it",
			path)
	}
	if !ours(st) {
		return fmt.Errorf("%s is not root's, and it would run as root: chown root it", path)
	}
	return checkWay(path)
}

// ours tells whether a file is root's, or the agent's own.
func ours(st fs.FileInfo) bool {
	s, ok := st.Sys().(*syscall.Stat_t)
	return !ok || s.Uid == 0 || int(s.Uid) == os.Geteuid()
}

// maxLinks is how many links a path may have, as the kernel has it (path_resolution(7)).
const maxLinks = 40

// checkWay refuses a path on which somebody else could put another program in its place between the
// look at it and its run: who may write to one of its directories. In one with the sticky bit, as
// /tmp, nobody else may touch what is ours.
func checkWay(path string) error {
	for links := 0; links <= maxLinks; links++ {
		target := ""
		for at := "/"; ; {
			st, err := os.Lstat(at)
			if err != nil {
				return fmt.Errorf("look at the way to the command: %w", err)
			}
			if st.Mode()&fs.ModeSymlink != 0 {
				if target, err = os.Readlink(at); err != nil {
					return fmt.Errorf("look at the way to the command: %w", err)
				}
				if !filepath.IsAbs(target) {
					target = filepath.Join(filepath.Dir(at), target)
				}
				target = filepath.Join(target, strings.TrimPrefix(path, at))
			}
			open := st.Mode()&0o022 != 0 && st.Mode()&(fs.ModeSticky|fs.ModeSymlink) == 0
			if !ours(st) || open {
				return fmt.Errorf("others than root may change %s, and with it what runs as root "+
					"at %s: chown root it, and chmod go-w it, or put the command elsewhere", at,
					path)
			}
			if target != "" || at == path {
				break
			}
			next, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, at), "/"), "/")
			at = filepath.Join(at, next)
		}
		if target == "" {
			return nil
		}
		path = target
	}
	return fmt.Errorf("the way to %s has more than %d links", path, maxLinks)
}

// Where is a target's address without what may be secret: of a URL its host.
func (t *Target) Where() string {
	if u, err := url.Parse(t.To); t.Way == Webhook && err == nil {
		return u.Scheme + "://" + u.Host + "/..."
	}
	return t.To
}

// NewSecret is a key for signatures, as Standard Webhooks have it.
func NewSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// ErrNoTarget is that a name has no target.
var ErrNoTarget = errors.New("there is no target of this name: levee agent notify list shows them")

// Read reads a file of targets, which need not be there, and checks each of them.
func Read(path string) ([]Target, error) {
	all, err := decode(path)
	for i := range all {
		if err := all[i].Check(); err != nil {
			return nil, fmt.Errorf("target %q in %s: %w", all[i].Name, path, err)
		}
	}
	return all, err
}

// decode reads a file of targets as they are.
func decode(path string) ([]Target, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read whom to notify: %w", err)
	}
	var all []Target
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		return nil, fmt.Errorf("the file %s of whom to notify is damaged: %w", path, err)
	}
	return all, nil
}

// Change writes the file anew, while no other process does.
func Change(path string, do func([]Target) ([]Target, error)) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // lets the lock go
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	all, err := Read(path)
	if err != nil {
		return err
	}
	if all, err = do(all); err != nil {
		return err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'), fileMode)
}

// Put adds a target, or replaces the one of its name.
func Put(path string, t Target) error {
	if err := t.Check(); err != nil {
		return err
	}
	return Change(path, func(all []Target) ([]Target, error) {
		all = slices.DeleteFunc(all, func(o Target) bool { return o.Name == t.Name })
		if len(all) >= maxTargets {
			return nil, fmt.Errorf("there are %d targets, which is the most", maxTargets)
		}
		return append(all, t), nil
	})
}

// Remove takes a target away.
func Remove(path, name string) error {
	return Change(path, func(all []Target) ([]Target, error) {
		n := len(all)
		all = slices.DeleteFunc(all, func(o Target) bool { return o.Name == name })
		if len(all) == n {
			return nil, ErrNoTarget
		}
		return all, nil
	})
}
