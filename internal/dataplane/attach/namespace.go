package attach

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// namespace is a network namespace, the zero value that of this thread.
type namespace struct {
	there *os.File // nil: that of this thread
	gone  bool
}

// findNamespace finds the network namespace with a cookie.
func findNamespace(cookie uint64) (n namespace, err error) {
	own, err := NetnsCookie()
	if err != nil || cookie == own {
		return n, err
	}
	n.there, err = findNetns(cookie)
	n.gone = n.there == nil
	return n, err
}

// in runs fn in the namespace.
func (n *namespace) in(fn func() error) error {
	switch {
	case n.gone:
		return unix.ENODEV
	case n.there == nil:
		return fn()
	}
	return inNetns(n.there, fn)
}

// Close closes the handle of the namespace.
func (n *namespace) Close() error {
	if n.there == nil {
		return nil
	}
	return n.there.Close()
}

// errNoEntry: whether a network namespace is there cannot be found out.
var errNoEntry = errors.New("this process may not enter other network namespaces " +
	"(CAP_SYS_ADMIN)")

// findNetns returns the network namespace with a cookie, nil if no process and no mount has it.
func findNetns(cookie uint64) (*os.File, error) {
	if !kernel.Holds(kernel.SysAdmin) {
		return nil, errNoEntry
	}
	paths, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, kernel.Refuse(err, "look for a network namespace")
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[3], "net:[") {
			paths = append(paths, f[4])
		}
	}
	seen := map[uint64]bool{}
	for _, path := range paths {
		file, err := openNetns(path)
		if err != nil {
			return nil, err
		}
		if file == nil {
			continue
		}
		var st unix.Stat_t
		err = unix.Fstat(int(file.Fd()), &st)
		found := false
		if err == nil && !seen[st.Ino] {
			seen[st.Ino] = true
			err = inNetns(file, func() error {
				c, err := NetnsCookie()
				found = c == cookie
				return err
			})
		}
		if err == nil && found {
			return file, nil
		}
		file.Close()
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
	}
	return nil, nil
}

// openNetns opens a network namespace, nil if there is none any more, or none that may be seen.
func openNetns(path string) (*os.File, error) {
	file, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH), // it has ended
		errors.Is(err, fs.ErrPermission): // of whom a container may not see
		return nil, nil
	case err != nil:
		return nil, kernel.Refuse(err, "look for a network namespace")
	}
	var in unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &in); err == nil && in.Type == unix.NSFS_MAGIC {
		return file, nil
	}
	return nil, file.Close() // unmounted meanwhile: this is the file beneath it
}

// inNetns runs fn on another thread, in a network namespace.
func inNetns(there *os.File, fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		here, err := netns.Get()
		if err == nil {
			err = netns.Set(netns.NsHandle(there.Fd()))
		}
		if err != nil {
			done <- kernel.Refuse(err, "enter the network namespace of a policy")
			return
		}
		err = fn()
		if back := netns.Set(here); back == nil {
			runtime.UnlockOSThread() // else the thread ends with the goroutine
		}
		here.Close()
		done <- err
	}()
	return <-done
}
