package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// netnsDir is the directory of iproute2's named namespaces, each a bind mount of its nsfs file.
const netnsDir = "/run/netns"

const threadNetns = "/proc/thread-self/ns/net"

// prefix begins the name of every namespace that levee makes.
const prefix = "levee-"

// inode identifies the namespace behind an nsfs file.
func inode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Ino, nil
}

// enter moves the calling thread, which must be locked, into the namespace of a file.
func enter(path string) error {
	name := filepath.Base(path)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("there is %w %q; `ip netns list` lists what there is", errNoNamespace,
			name)
	}
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", name, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering network namespace %s: %w", name, err)
	}
	return nil
}

// shareNetnsDir makes /run/netns what `ip netns add` makes of it: a shared mount, so that
// namespaces added here are seen, and unmounted, in every mount namespace.
func shareNetnsDir() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	err := unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EINVAL) { // EINVAL: not a mount point yet
		return fmt.Errorf("sharing %s: %w", netnsDir, err)
	}
	if err := unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", netnsDir, err)
	}
	if err := unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("sharing %s: %w", netnsDir, err)
	}
	return nil
}

// makeNetns makes a namespace and calls announce with its inode before it gets its name, so that
// a crash at any point leaves either nothing or something that is on record. setup then runs
// inside the new namespace.
func makeNetns(name string, announce func(ino uint64) error, setup func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread is in the new namespace and ends with this goroutine.
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("making network namespace %s: %w", name, err)
			}
			ino, err := inode(threadNetns)
			if err != nil {
				return err
			}
			path := filepath.Join(netnsDir, name)
			if _, err := os.Lstat(path); err == nil {
				return fmt.Errorf("%s is there already and was not made by a lab on record: "+
					"remove it, or use another lab name", path)
			}
			if err := announce(ino); err != nil {
				return err
			}
			f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
			if err != nil {
				return err
			}
			f.Close()
			if err := unix.Mount(threadNetns, path, "none", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("naming network namespace %s: %w", name, err)
			}
			return setup()
		}()
	}()
	return <-done
}

// dropNetns takes the name from a namespace if it still is the recorded one. What a crash left
// between creating the file and mounting it, an empty file, goes as well.
func dropNetns(name string, ino uint64) error {
	path := filepath.Join(netnsDir, name)
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return nil // gone
	}
	half := st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0 && st.Mode&0o777 == 0o444 &&
		!isNSFS(path)
	if st.Ino != ino && !half {
		return nil // someone else's by now
	}
	if !half {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// isNSFS tells a namespace file from an ordinary one.
func isNSFS(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}
