// Package cgroup finds cgroups of version 2: where their hierarchy is mounted, and in which one a
// process is. It reads /proc and changes nothing. It must never take a cgroup of version 1 for one,
// which has no programs for packets.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ErrNone is wrapped where no hierarchy of version 2 is mounted.
var ErrNone = errors.New("no cgroup hierarchy of version 2 is mounted")

// Root returns where the hierarchy of version 2 is mounted: /sys/fs/cgroup, or
// /sys/fs/cgroup/unified beside one of version 1.
func Root() (string, error) {
	b, err := os.ReadFile("/proc/thread-self/mountinfo") // others may be in other namespaces
	if err != nil {
		return "", fmt.Errorf("list the mounts: %w", err)
	}
	return rootIn(string(b))
}

// rootIn finds the mount in the text of proc_pid_mountinfo(5): field 4 is the mounted directory, 5
// where, and the type stands behind the separator.
func rootIn(mounts string) (string, error) {
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		at := slices.Index(f, "-")
		if at >= 5 && len(f) > at+1 && f[at+1] == "cgroup2" && f[3] == "/" {
			return unescape(f[4]), nil
		}
	}
	return "", fmt.Errorf("%w: boot with systemd.unified_cgroup_hierarchy=1", ErrNone)
}

// unescape takes back what the kernel does to blanks in paths.
func unescape(s string) string { return strings.NewReplacer(`\040`, " ", `\134`, `\`).Replace(s) }

// Of returns the cgroup of a process, as its path from the root of the hierarchy:
// "/system.slice/...". 0 is this process.
func Of(pid int) (string, error) {
	file := "/proc/self/cgroup"
	if pid != 0 {
		file = fmt.Sprintf("/proc/%d/cgroup", pid)
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && pid != 0 {
		return "", fmt.Errorf("there is no process %d", pid)
	}
	if err != nil {
		return "", fmt.Errorf("read the cgroup of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(b)) {
		if in, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSuffix(in, "\n"), nil
		}
	}
	return "", fmt.Errorf("process %d is in no cgroup: %w", pid, ErrNone)
}

// Within returns the path down to its last part of a name: that of a unit, of whose cgroup a
// process is somewhere below. It is an error if no part has the name.
func Within(in, name string) (string, error) {
	for at := in; at != "/" && at != "."; at = path.Dir(at) {
		if path.Base(at) == name {
			return at, nil
		}
	}
	return "", fmt.Errorf("the cgroup %s is none of %s", in, name)
}

// Processes returns the processes in a cgroup, by its directory, and in all below it.
func Processes(dir string) (pids []int, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has ended
		}
		if err != nil || !d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for word := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				pids = append(pids, pid) // 0: of another PID namespace
			}
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) ||
			errors.Is(err, syscall.EOPNOTSUPP) { // threads' cgroups tell none
			err = nil
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("list the processes of a cgroup: %w", err)
	}
	return pids, err
}

// Dir returns the directory of a cgroup.
func Dir(in string) (string, error) {
	root, err := Root()
	return filepath.Join(root, in), err
}
