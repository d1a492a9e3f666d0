package kernel

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// OpenBPFDirs lists directories of bpf file systems, of the mounts that this thread sees, in which
// others than root may make files. Who has opened a map to read may pin it in such a directory and
// open that pin to write: BPF_OBJ_PIN does not ask how a map was opened (seen on 6.18). A bpf file
// system is open to everybody unless it is mounted with another mode; systemd does that.
func OpenBPFDirs() ([]string, error) {
	b, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("look for bpf file systems: %w", err)
	}
	open := []string{}
	for _, at := range bpfMounts(string(b)) {
		err := filepath.WalkDir(at, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil // it has gone, or is not to be seen
			}
			info, err := d.Info()
			if err == nil && othersMayWrite(info) {
				open = append(open, path)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("look into the bpf file system at %s: %w", at, err)
		}
	}
	slices.Sort(open)
	return slices.Compact(open), nil
}

// bpfMounts reads the list of mounts (proc_pid_mountinfo(5)): field 5 is the mount point, the type
// comes after the separator.
func bpfMounts(mountinfo string) (at []string) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if i := slices.Index(f, "-"); i >= 5 && len(f) > i+1 && f[i+1] == "bpf" {
			at = append(at, unescape.Replace(f[4]))
		}
	}
	return at
}

func othersMayWrite(info fs.FileInfo) bool {
	st := info.Sys().(*syscall.Stat_t)
	const group, all = 0o020, 0o002
	return st.Uid != 0 || info.Mode().Perm()&all != 0 ||
		info.Mode().Perm()&group != 0 && st.Gid != 0
}
