// Package secret reads keys and passwords from files that only root may read, and keeps them in the
// memory of the process.
//
// In goes a path, out comes the secret. It writes none anywhere, and no error holds one.
package secret

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// StaysHere keeps the memory of this process out of core dumps, even of those that a program takes
// in spite of limits, and from other unprivileged processes of its user (PR_SET_DUMPABLE). Child
// processes do not inherit this.
func StaysHere() {
	// A filter of system calls may refuse it; the units of levee have LimitCORE=0 besides.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// most is the largest size of a file, in bytes.
const most = 4096

// Read returns the first line of a file that nobody may read or change but root, or the user of
// this process. It holds no control characters, so that it may become a part of a message.
func Read(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a fifo would hold the caller
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	st, known := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return "", fmt.Errorf("read a secret: %s is no regular file", path)
	case mode.Perm()&0o077 != 0:
		return "", fmt.Errorf("others may read or change the secret in %s (%v): chmod 600 %s", path,
			mode.Perm(), path)
	case !known || st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return "", fmt.Errorf("the secret in %s belongs to another user, who may read and change "+
			"it: chown root %s", path, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	line = bytes.TrimRight(line, "\r")
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	if len(line) == 0 || len(text) > most || bytes.ContainsFunc(line, control) {
		return "", fmt.Errorf("the first line of %s is no secret", path)
	}
	return string(line), nil
}
