// Package program tells by running a command with the JSON as its input. It must never run a shell,
// or a file that others than root could change.
package program

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"levee/internal/agent/notify/way"
)

// Way is the row.
var Way = way.Way{
	Name: "command", Usage: "run this program",
	Says: "A command is run without a shell, with the JSON as its input, and is killed after ten " +
		"seconds; it must be root's, and nobody else may write it.",
	Check: func(p *way.Place) error { return check(p.To) },
	Send:  run,
}

func run(ctx context.Context, p *way.Place, m *way.Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := check(p.To); err != nil {
		return way.Never(err)
	}
	return way.Execute(ctx, p.To, nil, append(body, '\n'))
}

// check refuses programs that others than root could change: the agent is root.
func check(path string) error {
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

// maxSymlinks is the largest number of symbolic links that a path may have, as for the kernel
// (path_resolution(7)).
const maxSymlinks = 40

// checkWay refuses a path on which somebody else could put another program in its place between the
// look at it and its run: who may write to one of its directories. In one with the sticky bit, as
// /tmp, nobody else may touch what is ours.
func checkWay(path string) error {
	for links := 0; links <= maxSymlinks; links++ {
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
	return fmt.Errorf("the way to %s has more than %d links", path, maxSymlinks)
}
