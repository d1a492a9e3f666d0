// Package account looks up who the names of users, groups and containers stand for on this machine,
// in the files that say so. What goes in are names; out come numbers, and names of cgroups. It runs
// nothing and asks no daemon: what NSS has from elsewhere, such as LDAP, it does not know.
package account

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrUnknown is of a name that the machine does not know.
var ErrUnknown = errors.New("not known on this machine")

// User returns the uid of a user of /etc/passwd.
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

// Names returns the users of /etc/passwd that have a uid: several may.
func Names(uid uint32) ([]string, error) { return namesIn("/etc/passwd", uid) }

func namesIn(path string, uid uint32) (names []string, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up who has uid %d: %w", uid, err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(line, ":") // passwd(5)
		if len(f) < 4 {
			continue
		}
		if n, err := number(f[2]); err == nil && n == uid {
			names = append(names, f[0])
		}
	}
	return names, nil
}

// Group returns the gid of a group of /etc/group.
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

// Where root's engines keep their containers, unless a file says otherwise, and which files of
// theirs below that tell of them. Docker has a directory for each user namespace that it gives
// containers (userns-remap).
const (
	dockerDir  = "var/lib/docker"
	dockerFile = "containers/*/config.v2.json"
	remapped   = "[0-9]*.[0-9]*/" + dockerFile
	podmanDir  = "var/lib/containers/storage"
	podmanFile = "*-containers/*containers.json"
)

// configured are the files by which engines keep containers elsewhere.
var configured = []struct {
	path, engine string
	dir          func(text []byte) string // "": it does not say
}{
	{"etc/docker/daemon.json", dockerDir, dataRoot},
	{"usr/share/containers/storage.conf", podmanDir, graphRoot},
	{"etc/containers/storage.conf", podmanDir, graphRoot},
}

// dataRoot is Docker's data-root (graph, before 17.05), of dockerd(8).
func dataRoot(text []byte) string {
	var c struct {
		Root  string `json:"data-root"`
		Graph string `json:"graph"`
	}
	if json.Unmarshal(text, &c) != nil {
		return ""
	}
	return cmp.Or(c.Root, c.Graph)
}

var graphRootLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^\s*graphroot\s*=\s*["']([^"']+)["']`)
})

// graphRoot returns that of containers-storage.conf(5).
func graphRoot(text []byte) string {
	if m := graphRootLine().FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}

// patterns returns the patterns of the files of an engine, below root.
func patterns(root, engine string, files ...string) (all []string) {
	dirs := []string{engine}
	for _, c := range configured {
		if c.engine != engine {
			continue
		}
		text, err := contents(filepath.Join(root, c.path))
		if err != nil {
			continue // whose engine says what is wrong
		}
		if dir := c.dir(text); filepath.IsAbs(dir) {
			dirs = append(dirs, quotedGlob(filepath.Clean(dir)))
		}
	}
	for _, dir := range dirs {
		for _, file := range files {
			all = append(all, filepath.Join(root, dir, file))
		}
	}
	return all
}

// quotedGlob takes the meaning from what a pattern would take for one.
func quotedGlob(path string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(path)
}

// maxFile bounds what is read of one of their files, in bytes.
const maxFile = 16 << 20

// Containers returns the names that cgroups of containers may have, by the names of these: of
// Docker's and Podman's, by their ids, as they are below root, which is /. Of several containers of
// a name, as of one that Docker had before it was given another directory, the newest comes first.
func Containers(root string) (map[string][]string, error) {
	found, err := tellAll(root)
	slices.SortStableFunc(found, func(a, b told) int { return b.at.Compare(a.at) })
	all := map[string][]string{}
	for _, t := range found {
		for _, c := range t.cgroups {
			if !slices.Contains(all[t.Name], c) {
				all[t.Name] = append(all[t.Name], c)
			}
		}
	}
	return all, err
}

// ContainerOf returns the container of a number, as the engine that has it tells of it below root.
func ContainerOf(root, id string) (*Container, error) {
	found, err := tellAll(root)
	i := slices.IndexFunc(found, func(t told) bool { return t.ID == id })
	if i < 0 {
		return nil, errors.Join(fmt.Errorf("container %.64q: %w", id, ErrUnknown), err)
	}
	return &found[i].Container, nil
}

// Container is a container as its engine describes it.
type Container struct {
	ID, Name string
	Labels   map[string]string // of Docker's
}

// told is a container, when the file that tells of it was written, and the names that its cgroup
// may have.
type told struct {
	at time.Time
	Container
	cgroups []string
}

// tellAll tells of all containers that have a name and a number.
func tellAll(root string) (found []told, err error) {
	add := func(at time.Time, c Container, cgroups ...string) {
		c.Name = strings.TrimPrefix(c.Name, "/")
		if c.Name != "" && len(c.ID) >= 12 && strings.Trim(c.ID, "0123456789abcdef") == "" {
			found = append(found, told{at, c, cgroups})
		}
	}
	err = each(patterns(root, dockerDir, dockerFile, remapped),
		func(b []byte, at time.Time) error {
			var c struct {
				ID, Name string
				Config   struct{ Labels map[string]string }
			}
			if err := json.Unmarshal(b, &c); err != nil {
				return err
			}
			add(at, Container{c.ID, c.Name, c.Config.Labels}, "docker-"+c.ID+".scope", c.ID)
			return nil
		})
	err = errors.Join(err, each(patterns(root, podmanDir, podmanFile),
		func(b []byte, at time.Time) error {
			var list []struct {
				ID    string   `json:"id"`
				Names []string `json:"names"`
			}
			if err := json.Unmarshal(b, &list); err != nil {
				return err
			}
			for _, c := range list {
				for _, name := range c.Names {
					add(at, Container{ID: c.ID, Name: name}, "libpod-"+c.ID+".scope",
						"libpod-"+c.ID)
				}
			}
			return nil
		}))
	return found, err
}

// each reads the files of patterns, once. One that has gone since is none.
func each(patterns []string, read func([]byte, time.Time) error) error {
	var errs []error
	seen := map[string]bool{}
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, path := range paths {
			is, err := os.Stat(path)
			if errors.Is(err, fs.ErrNotExist) || seen[path] {
				continue
			}
			seen[path] = true
			var b []byte
			if err == nil {
				b, err = contents(path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = read(b, is.ModTime())
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("read the containers of %s: %w", path, err))
			}
		}
	}
	return errors.Join(errs...)
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

// Cgroups returns the names that the cgroup of a container may have, of the engines' containers or,
// if none has the name, of systemd's and of LXC's, which have no ids.
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
	all := []string{filepath.Join(root, "etc/passwd"), filepath.Join(root, "etc/group")}
	for _, c := range configured {
		all = append(all, filepath.Join(root, c.path))
	}
	all = slices.Concat(all, patterns(root, dockerDir, dockerFile, remapped),
		patterns(root, podmanDir, podmanFile))
	for _, pattern := range all {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if is, err := os.Stat(path); err == nil {
				fmt.Fprintf(&b, "%s %d %d\n", path, is.Size(), is.ModTime().UnixNano())
			}
		}
	}
	return b.String()
}
