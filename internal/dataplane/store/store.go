package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// RunEnv names the environment variable that moves the runtime directory, for tests.
const RunEnv = "LEVEE_RUN"

// runDir is the directory in which levee keeps what it has attached: not a cache, but gone after a
// reboot, like the attachments themselves.
const runDir = "/run/levee"

// bpfFSMagic is BPF_FS_MAGIC of linux/magic.h.
const bpfFSMagic = 0xcafe4a11

// Store is the runtime directory while this process holds its lock:
//
//	lock             flock: one command at a time changes anything
//	bpf/             a bpffs of levee's own, mounted while something is attached
//	bpf/KEY/link     the bpf_link, none for a filter; its program decides what is in force
//	bpf/KEY/N/...    programs and maps of generation N
//	state/KEY/N.json what generation N is; written last, so a generation without it is rubbish
//	state/KEY/N.files  what the set files of generation N held, where it has any
//	state/KEY/carried.json  counts of generations that are gone
//	keep/ID.json, keep/ID.lock  policies that are bound to names
//
// KEY is the cookie of the network namespace and the index that the interface had when its first
// policy came (see keyOn): interfaces of the same name in two namespaces do not meet.
type Store struct {
	Steps                 // are told of its changes
	Ctx   context.Context // of the transaction
	Dir   string
	lock  *os.File
	Notes []string // what was found and mended on the way

	ReadOnly bool          // nothing is locked or changed (see readers.go)
	Clock    *kernel.Clock // of a reader; nil: this process's own

	Leaves Leaving // what detach has seen
	// who tells of memories that interfaces share, by the name of what they have together
	Tellers map[string]map[ebpf.MapID]Sharer
}

// Sharer is an attachment that tells of a memory which others share with it.
type Sharer struct{ Key, Dev string }

// Transact runs fn with the runtime directory locked, in the host's mount namespace, and removes
// the directory afterwards if nothing is attached any more.
func Transact(ctx context.Context, fn func(*Store) error) error {
	return transactIn(ctx, "", fn)
}

func transactIn(ctx context.Context, suffix string, fn func(*Store) error) error {
	if err := kernel.Privileged(); err != nil {
		return err
	}
	dir, err := Directory()
	if err != nil {
		return err
	}
	dir += suffix
	return OnHost(func() error {
		s := &Store{Ctx: ctx, Dir: dir, Steps: stepsOf(ctx)}
		if err := s.acquire(); err != nil {
			return err
		}
		defer s.lock.Close()
		return errors.Join(fn(s), s.tidy())
	})
}

// Directory returns the runtime directory: runDir, or what RunEnv says.
func Directory() (string, error) {
	if os.Getenv(RunEnv) == "" {
		return runDir, nil
	}
	dir, err := filepath.Abs(os.Getenv(RunEnv))
	if err != nil {
		return "", fmt.Errorf("%s: %w", RunEnv, err)
	}
	return dir, nil
}

// acquireTries bounds how often acquire meets a directory that another command has just removed. A
// link that leads nowhere looks the same each time.
const acquireTries = 1000

// acquire takes the lock. The file is removed with the directory by the last command, under the
// lock: whoever waited for a file that is gone takes the new one.
func (s *Store) acquire() error {
	for try := 1; ; try++ {
		f, err := s.openLock()
		if errors.Is(err, fs.ErrNotExist) && try < acquireTries {
			continue // removed between two calls
		}
		if err != nil {
			return err
		}
		if err := Flock(s.Ctx, f); err != nil {
			f.Close()
			return fmt.Errorf("wait for another levee command to finish: %w", err)
		}
		mine, err1 := f.Stat()
		there, err2 := os.Stat(f.Name())
		if err1 == nil && err2 == nil && os.SameFile(mine, there) {
			s.lock = f
			return nil
		}
		f.Close()
	}
}

// openLock opens the file of the lock, in a directory that it makes where there is none.
func (s *Store) openLock() (*os.File, error) {
	if _, err := os.Stat(s.Dir); err != nil {
		if err := MakeDirs(s.Dir); err != nil {
			return nil, kernel.Refuse(err, "create the runtime directory")
		}
	}
	path := filepath.Join(s.Dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, LockMode)
	if errors.Is(err, unix.EROFS) {
		f, err = os.Open(path) // enough for a lock, and for whoever only looks
	}
	if err == nil {
		return f, nil
	}
	if to, e := os.Readlink(s.Dir); e == nil && errors.Is(err, fs.ErrNotExist) {
		return nil, kernel.Refuse(err, "open the lock: %s is a link to %q, where no directory is; "+
			"remove the link, or make that directory", s.Dir, to)
	}
	return nil, kernel.Refuse(err, "open the lock")
}

func (s *Store) BPF(elem ...string) string {
	return filepath.Join(append([]string{s.Dir, "bpf"}, elem...)...)
}

func (s *Store) State(elem ...string) string {
	return filepath.Join(append([]string{s.Dir, "state"}, elem...)...)
}

// Mount makes the directories and mounts the bpffs.
func (s *Store) Mount() error {
	if err := s.Step("mount"); err != nil {
		return err
	}
	for _, dir := range []string{s.BPF(), s.State()} {
		if err := MakeDirs(dir); err != nil {
			return kernel.Refuse(err, "create the runtime directory")
		}
	}
	if !s.Mounted() {
		if !kernel.Holds(kernel.SysAdmin) {
			return kernel.Refuse(nil,
				"no bpf file system is mounted at %s, which keeps the policy when this command "+
					"ends, and mounting one needs CAP_SYS_ADMIN; as root, once: systemctl start "+
					"run-levee-bpf.mount, or mount -t bpf -o mode=0750 bpf %[1]s", s.BPF())
		}
		err := unix.Mount(ownMount, s.BPF(), "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
			"mode=0750")
		if err != nil {
			return kernel.Refuse(err,
				"mount a bpf file system at %s, which keeps the policy when this command ends "+
					"(CONFIG_BPF_SYSCALL)", s.BPF())
		}
	}
	// whoever mounts makes directories, too
	for _, dir := range []string{s.Dir, s.BPF(), s.State()} {
		if err := share(dir, dirMode); err != nil {
			return kernel.Refuse(err, "let readers into %s", dir)
		}
	}
	return s.noteClock()
}

// ownMount is the source of a mount that levee made, and takes away. Others stay.
const ownMount = "levee"

// mountedByLevee looks the bpffs up in the list of mounts (proc_pid_mountinfo(5)): field 5 is the
// mount point; the source is the second one after the separator.
func (s *Store) mountedByLevee() bool {
	b, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return false
	}
	own := false
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		at := slices.Index(f, "-")
		if at < 5 || len(f) < at+3 || f[4] != s.BPF() {
			continue
		}
		own = f[at+2] == ownMount // the last one is on top
	}
	return own
}

func (s *Store) Mounted() bool {
	var st unix.Statfs_t
	return unix.Statfs(s.BPF(), &st) == nil && st.Type == bpfFSMagic
}

// Keys lists the attachments that have left something behind, in a fixed order.
func (s *Store) Keys() ([]string, error) {
	seen := map[string]bool{}
	var keys []string
	for _, dir := range []string{s.BPF(), s.State()} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, kernel.Refuse(err, "list the runtime directory")
		}
		for _, e := range entries {
			// The kernel may put files of its own into a bpffs (CONFIG_BPF_PRELOAD).
			if e.IsDir() && !seen[e.Name()] {
				seen[e.Name()] = true
				keys = append(keys, e.Name())
			}
		}
	}
	return keys, nil
}

// tidy unmounts and removes the runtime directory when nothing is attached: an empty mount is
// litter. What is busy stays for the next command.
func (s *Store) tidy() error {
	keys, err := s.Keys()
	if err != nil || len(keys) > 0 {
		return err
	}
	if s.Mounted() && !s.mountedByLevee() {
		return nil
	}
	if records, err := s.Records(); err != nil || len(records) > 0 {
		return err
	}
	if s.Mounted() && !s.unmount() {
		return nil
	}
	for _, path := range []string{s.State(clockFile), s.State(secretFile), s.BPF(), s.State(),
		filepath.Join(s.Dir, rememberedDir), filepath.Join(s.Dir, JudgingDir),
		filepath.Join(s.Dir, "lock")} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	_ = os.Remove(s.Dir) // fails if somebody else keeps something there
	return nil
}

// unmount waits half a second for whoever reads the directory, or is between fork and exec with
// what it had open: on a busy machine a tenth was not enough, and the directory stayed.
func (s *Store) unmount() bool {
	for range 50 {
		if err := unix.Unmount(s.BPF(), 0); err == nil || !errors.Is(err, unix.EBUSY) {
			return err == nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// WriteJSON replaces a file in one step. Readers may read it.
func WriteJSON(path string, v any) error { return writeAs(path, v, FileMode) }

// WriteSecret is WriteJSON of what is for root alone.
func WriteSecret(path string, v any) error { return writeAs(path, v, SecretMode) }

func writeAs(path string, v any, mode fs.FileMode) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := MakeDirs(filepath.Dir(path)); err != nil {
		return kernel.Refuse(err, "create the runtime directory")
	}
	tmp := path + ".tmp"
	err = os.WriteFile(tmp, b, mode)
	if err == nil && mode != SecretMode {
		err = share(tmp, mode)
	}
	if err != nil {
		_ = os.Remove(tmp) // it may not be there, and the first error says why
		return unwritten(err, filepath.Dir(path))
	}
	if err := os.Rename(tmp, path); err != nil {
		return kernel.Refuse(err, "write the runtime state")
	}
	return nil
}

// unwritten says why a directory of the runtime state takes nothing.
func unwritten(err error, dir string) error {
	hint := "full"
	if errors.Is(err, unix.EROFS) {
		hint = "mounted read-only"
	}
	return kernel.Refuse(err, "write the runtime state (is %s %s?)", dir, hint)
}

// CheckWritable refuses what begins with the kernel and ends in the runtime directory, where that
// is mounted read-only. A full one takes removals.
func (s *Store) CheckWritable() error {
	if err := unix.Access(s.Dir, unix.W_OK); errors.Is(err, unix.EROFS) {
		return unwritten(err, s.Dir)
	}
	return nil
}

// ErrDamaged is wrapped by what ReadJSON says of a file that is not as it was written.
var ErrDamaged = errors.New("damaged")

func ReadJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s is %w: %w", path, ErrDamaged, err)
	}
	return nil
}

// Leaving is the place of an interface from which a policy is being taken.
type Leaving struct {
	Key, Name string // "" where it is not in this network namespace
	Away      bool   // it is in another one
}

const rememberedDir = "remembered"

// RememberedFile lies beside the descriptions: their directory changes only when policies do
// (runStamp).
func (s *Store) RememberedFile(key string) string {
	return filepath.Join(s.Dir, rememberedDir, key+".json")
}

const JudgingDir = "judging"

// JudgingFile lies beside the descriptions, as RememberedFile does.
func (s *Store) JudgingFile(key string) string {
	return filepath.Join(s.Dir, JudgingDir, key+".json")
}

func (s *Store) Note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// ForReading returns the runtime directory for a reader. refused is why this process is no more
// than that, and the error where it is not even that.
func ForReading(ctx context.Context, refused error) (*Store, error) {
	return readingIn(ctx, "", refused)
}

func readingIn(ctx context.Context, suffix string, refused error) (*Store, error) {
	dir, err := Directory()
	if err != nil {
		return nil, err
	}
	dir += suffix
	s := &Store{Ctx: ctx, Dir: dir, Steps: stepsOf(ctx), ReadOnly: true}
	var now clockReading
	if err := ReadJSON(s.State(clockFile), &now); err != nil {
		return nil, fmt.Errorf("%w; where a policy is in force, members of the group %s may read "+
			"what it does", refused, Readers.Name)
	}
	s.Clock = kernel.ClockFrom(now.Ticks, now.HZ, now.Mono)
	return s, nil
}
