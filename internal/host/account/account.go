// Package account looks up who the names of users, groups and containers stand for on this machine,
// in the files that say so. What goes in are names; out come numbers, and names of cgroups. It runs
// nothing and asks no daemon: what NSS has from elsewhere, such as LDAP, it does not know.
package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrUnknown is of a name that the machine does not know.
var ErrUnknown = errors.New("not known on this machine")

// User is the uid of a user of /etc/passwd.
func User(name string) (uint32, error) {
	u, err := user.Lookup(name)
	if errors.As(err, new(user.UnknownUserError)) {
		return 0, ErrUnknown
	}
	if err != nil {
		return 0, fmt.Errorf("look up user %s: %w", name, err)
	}
	return number(u.Uid)
}

// Group is the gid of a group of /etc/group.
func Group(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if errors.As(err, new(user.UnknownGroupError)) {
		return 0, ErrUnknown
	}
	if err != nil {
		return 0, fmt.Errorf("look up group %s: %w", name, err)
	}
	return number(g.Gid)
}

func number(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of a user or group", text)
	}
	return uint32(n), nil
}

// Where the containers of root's engines are.
const (
	docker = "var/lib/docker/containers/*/config.v2.json"
	podman = "var/lib/containers/storage/*-containers/*containers.json"
)

// maxFile bounds what is read of one of their files, in bytes.
const maxFile = 16 << 20

// Containers are the names that cgroups of containers may have, by the names of these: of Docker's
// and Podman's, by their ids, as they are below root, which is /.
func Containers(root string) (map[string][]string, error) {
	all := map[string][]string{}
	add := func(name, id string, cgroups ...string) {
		name = strings.TrimPrefix(name, "/")
		if name == "" || len(id) < 12 || strings.Trim(id, "0123456789abcdef") != "" {
			return
		}
		for _, c := range cgroups {
			if !slices.Contains(all[name], c) {
				all[name] = append(all[name], c)
			}
		}
	}
	err := each(root, docker, func(b []byte) error {
		var c struct{ ID, Name string }
		if err := json.Unmarshal(b, &c); err != nil {
			return err
		}
		add(c.Name, c.ID, "docker-"+c.ID+".scope", c.ID)
		return nil
	})
	return all, errors.Join(err, each(root, podman, func(b []byte) error {
		var list []struct {
			ID    string   `json:"id"`
			Names []string `json:"names"`
		}
		if err := json.Unmarshal(b, &list); err != nil {
			return err
		}
		for _, c := range list {
			for _, name := range c.Names {
				add(name, c.ID, "libpod-"+c.ID+".scope", "libpod-"+c.ID)
			}
		}
		return nil
	}))
}

// each reads the files of a pattern. One that has gone since is none.
func each(root, pattern string, read func([]byte) error) error {
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	for _, path := range paths {
		b, e := contents(path)
		if errors.Is(e, fs.ErrNotExist) {
			continue
		}
		if e == nil {
			e = read(b)
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("read the containers of %s: %w", path, e))
		}
	}
	return err
}

func contents(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("it is longer than %d MiB", maxFile>>20)
	}
	return b, err
}

// Cgroups are the names that the cgroup of a container may have, of the engines' containers or, if
// none has the name, of systemd's and of LXC's, which have no ids.
func Cgroups(name string, engines map[string][]string) []string {
	if ids := engines[name]; ids != nil {
		return ids
	}
	return []string{"machine-" + strings.ReplaceAll(name, "-", `\x2d`) + ".scope",
		"systemd-nspawn@" + strings.ReplaceAll(name, "-", `\x2d`) + ".service",
		"lxc.payload." + name}
}

// Stamp is another text whenever a file has changed that says who names stand for.
func Stamp(root string) string {
	var b strings.Builder
	for _, pattern := range []string{"etc/passwd", "etc/group", docker, podman} {
		paths, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, path := range paths {
			if is, err := os.Stat(path); err == nil {
				fmt.Fprintf(&b, "%s %d %d\n", path, is.Size(), is.ModTime().UnixNano())
			}
		}
	}
	return b.String()
}
