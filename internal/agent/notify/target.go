package notify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/agent/notify/way"
	"levee/internal/agent/pubsub"
	"levee/internal/host/atomicfile"
)

// Target is a receiver of notifications, with the kinds of events that it gets.
type Target struct {
	Name string `json:"name"`
	Way  string `json:"way"`
	way.Place
	On    []pubsub.Kind `json:"on"`
	Limit Limit         `json:"limit"`
}

// Limit bounds the messages that a target gets in a time.
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

// Kinds are the kinds of events that a target may want.
var Kinds = []pubsub.Kind{pubsub.Incident, pubsub.Alarm, pubsub.Policy, pubsub.Refused,
	pubsub.Withdrawn}

// ParseKinds reads a list of kinds with commas between them.
func ParseKinds(s string) (out []pubsub.Kind, err error) {
	for word := range strings.SplitSeq(s, ",") {
		k := pubsub.Kind(strings.TrimSpace(word))
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

var targetName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,31}$`)
})

const (
	maxTargets = 32
	fileMode   = 0o600
)

// Check tells what is wrong with a target.
func (t *Target) Check() error {
	switch {
	case !targetName().MatchString(t.Name):
		return fmt.Errorf("%q is no name: small letters, digits, and . _ - behind the first, at "+
			"most 32", t.Name)
	case len(t.On) == 0:
		return fmt.Errorf("say which events: %s", kindNames())
	case t.Limit.Most < 1:
		return errors.New("a limit is missing: write 10/h")
	}
	w, err := t.way()
	if err != nil {
		return err
	}
	return w.Check(&t.Place)
}

// WayNames names all ways, each behind a prefix.
func WayNames(prefix string) string {
	text := ""
	for i, w := range Ways {
		switch {
		case i > 0 && i == len(Ways)-1:
			text += " or "
		case i > 0:
			text += ", "
		}
		text += prefix + w.Name
	}
	return text
}

// way returns how a target is told.
func (t *Target) way() (*way.Way, error) {
	for _, w := range Ways {
		if w.Name == t.Way {
			return w, nil
		}
	}
	return nil, fmt.Errorf("say how to tell: %s", WayNames(""))
}

// Made returns the secret that was made for a new target, "" if it has none or brought its own.
func (t *Target) Made() string {
	if w, err := t.way(); err != nil || w.Prepare == nil {
		return ""
	}
	return t.Secret
}

// Where returns a target's place without what may be secret.
func (t *Target) Where() string {
	if w, err := t.way(); err == nil && w.Where != nil {
		return w.Where(&t.Place)
	}
	return t.To
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
