package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// record describes a lab to other processes: one JSON file, replaced as a whole.
type record struct {
	Name       string
	Owner      int    // process id
	Started    uint64 // start time of the owner in clock ticks since boot; tells a reused id
	Persistent bool
	Hosts      []*Host
}

// ErrNoLab says that there is no lab of that name.
var ErrNoLab = errors.New("no such lab")

// dir holds the records: "lab" below LEVEE_RUN, or /run/levee-lab.
func dir() string {
	if d := os.Getenv("LEVEE_RUN"); d != "" {
		return filepath.Join(d, "lab")
	}
	return "/run/levee-lab"
}

// lock serialises everything that makes or removes labs, over all processes.
func lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(dir(), 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of lab records: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir(), "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the lab records: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("locking the lab records: %w", err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for another lab to be made or removed: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// claim begins the record of a new lab. The caller holds the lock.
func claim(name string) (*record, error) {
	if _, err := load(name); err == nil {
		return nil, fmt.Errorf("lab %s: %w: remove it with `levee lab down`", name, ErrExists)
	} else if !errors.Is(err, ErrNoLab) {
		return nil, err
	}
	started, err := startTime(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", name, err)
	}
	rec := &record{Name: name, Owner: os.Getpid(), Started: started}
	return rec, rec.save()
}

func recordPath(name string) string { return filepath.Join(dir(), name+".json") }

func (r *record) save() error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	tmp := recordPath(r.Name) + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("recording lab %s: %w", r.Name, err)
	}
	if err := os.Rename(tmp, recordPath(r.Name)); err != nil {
		return fmt.Errorf("recording lab %s: %w", r.Name, err)
	}
	return nil
}

func load(name string) (*record, error) {
	if !nameRule.MatchString(name) {
		return nil, fmt.Errorf("lab %q: %w", name, ErrNoLab)
	}
	b, err := os.ReadFile(recordPath(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("lab %s: %w", name, ErrNoLab)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record of lab %s: %w", name, err)
	}
	rec := new(record)
	if err := json.Unmarshal(b, rec); err != nil || rec.Name != name || !rec.sound() {
		return nil, fmt.Errorf("the record of lab %s in %s is damaged: remove the file and its "+
			"namespaces (ip netns del)", name, recordPath(name))
	}
	return rec, nil
}

// sound tells whether a record names only namespaces that levee could have made.
func (r *record) sound() bool {
	for _, h := range r.Hosts {
		if h == nil || !strings.HasPrefix(h.Namespace, prefix) ||
			strings.ContainsRune(h.Namespace, '/') {
			return false
		}
	}
	return true
}

// records reads all records. A damaged one is skipped: nothing is removed because of what it says.
func records() ([]*record, error) {
	files, err := os.ReadDir(dir())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the lab records: %w", err)
	}
	var all []*record
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok {
			continue
		}
		if rec, err := load(name); err == nil {
			all = append(all, rec)
		}
	}
	return all, nil
}

// alive tells whether a lab still has an owner, or needs none.
func (r *record) alive() bool {
	if r.Persistent {
		return true
	}
	started, err := startTime(r.Owner)
	return err == nil && started == r.Started
}

// startTime reads field 22 of /proc/PID/stat (proc_pid_stat(5)). The second field, the command,
// may hold blanks and parentheses, so fields are counted from behind it.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	i := bytes.LastIndexByte(b, ')')
	f := bytes.Fields(b[i+1:])
	if i < 0 || len(f) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has an unknown form", pid)
	}
	if f[0][0] == 'Z' || f[0][0] == 'X' { // dead, only not yet waited for
		return 0, os.ErrProcessDone
	}
	return strconv.ParseUint(string(f[19]), 10, 64)
}
