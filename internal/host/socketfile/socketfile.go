// Package socketfile gives the files of unix sockets their rights. In goes a socket that listens,
// out comes its file with a group and a mode. It must never change a file that somebody has put in
// the place of the socket's: others may write the directory.
package socketfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileOf is SIOCUNIXFILE of include/uapi/linux/un.h: it opens the file that a socket was bound to,
// wherever it is now, by O_PATH. It needs CAP_NET_ADMIN.
const fileOf = 0x89e0

// Share gives the file of a socket, which was bound to path, a mode, and a group unless gid is
// below 0. A group that this process may not give matches fs.ErrPermission; the mode is as it was
// then.
func Share(socket syscall.Conn, path string, gid int, mode fs.FileMode) error {
	f, err := file(socket, path)
	if err != nil {
		return fmt.Errorf("open the file of the socket: %w", err)
	}
	defer f.Close()
	if gid >= 0 {
		if err := unix.Fchownat(int(f.Fd()), "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("give the socket to group %d: %w", gid, err)
		}
	}
	// Not f.Chmod: fchmod takes no file that was opened by O_PATH.
	return os.Chmod("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), mode)
}

// file opens the file of a socket by O_PATH.
func file(socket syscall.Conn, path string) (*os.File, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var at int
	var failed error
	if err := raw.Control(func(fd uintptr) {
		at, failed = unix.IoctlRetInt(int(fd), fileOf)
	}); err != nil {
		return nil, err
	}
	if errors.Is(failed, unix.EPERM) {
		return named(path)
	}
	if failed != nil {
		return nil, failed
	}
	unix.CloseOnExec(at)
	return os.NewFile(uintptr(at), path), nil
}

// named opens what a path names now, if it is a socket of this process's user: that is as much as a
// process without CAP_NET_ADMIN can tell.
func named(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Geteuid() {
		return nil, errors.Join(fmt.Errorf("%s is no longer the socket that was made there", path),
			f.Close())
	}
	return f, nil
}
