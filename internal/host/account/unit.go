package account

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// unitDirs are the directories of systemd's unit files, those that count first (systemd.unit(5)).
var unitDirs = []string{"etc/systemd/system.control", "run/systemd/system.control",
	"run/systemd/transient", "run/systemd/generator.early", "etc/systemd/system",
	"etc/systemd/system.attached", "run/systemd/system", "run/systemd/system.attached",
	"run/systemd/generator", "usr/local/lib/systemd/system", "usr/lib/systemd/system",
	"lib/systemd/system", "run/systemd/generator.late"}

// Unit returns the name by which a unit of systemd runs, that of the unit's cgroup: another one if
// name is an alias. Without a file of the unit below root, which is /, the error is ErrUnknown; so
// it is of one that is masked. Scopes, mounts and swap need no file, and are what they are called.
func Unit(root, name string) (string, error) {
	if end := filepath.Ext(name); end != ".service" && end != ".socket" {
		return name, nil
	}
	for _, file := range unitFiles(name) {
		for _, dir := range unitDirs {
			path := filepath.Join(root, dir, file)
			is, err := os.Lstat(path)
			if err != nil {
				continue
			}
			if is.Mode()&os.ModeSymlink == 0 {
				return name, nil
			}
			to, err := os.Readlink(path)
			switch of := filepath.Base(to); {
			case err != nil, of == "null":
				return "", ErrUnknown
			case of == file, of == name:
				return name, nil
			case filepath.Ext(of) == filepath.Ext(name):
				return instance(of, name), nil
			}
		}
	}
	return "", ErrUnknown
}

// Instances returns the instances of a template that run in the place of a service of its name,
// below root, which is /: postfix@-.service where postfix.service has no process. It is nil of a
// service that has a cgroup.
func Instances(root, name string) (all []string) {
	base, is := strings.CutSuffix(name, ".service")
	if !is || strings.Contains(base, "@") {
		return nil
	}
	// systemd.unit(5): a slice of their own, and "-" in a name is escaped.
	slice := "system-" + strings.ReplaceAll(base, "-", `\x2d`) + ".slice"
	for _, at := range []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"} {
		at = filepath.Join(root, at, "system.slice")
		if _, err := os.Stat(filepath.Join(at, name)); err == nil {
			return nil
		}
		found, _ := os.ReadDir(filepath.Join(at, slice))
		for _, f := range found {
			if strings.HasPrefix(f.Name(), base+"@") && strings.HasSuffix(f.Name(), ".service") {
				all = append(all, f.Name())
			}
		}
	}
	return all
}

// unitFiles are the names that the file of a unit may have: its own, and that of its template.
func unitFiles(name string) []string {
	if at := strings.IndexByte(name, '@'); at >= 0 {
		return []string{name, name[:at+1] + filepath.Ext(name)}
	}
	return []string{name}
}

// instance returns what an instance of a template is called, of what else runs by one name.
func instance(file, name string) string {
	before, after, is := strings.Cut(file, "@")
	if _, mine, ok := strings.Cut(name, "@"); is && ok && after == filepath.Ext(file) {
		return before + "@" + mine
	}
	return file
}

// HasContainer tells whether a container of that name is known below root: to engines, as
// Containers returns them, to systemd-nspawn or to LXC.
func HasContainer(root, name string, engines map[string][]string) bool {
	return engines[name] != nil || slices.ContainsFunc([]string{"var/lib/machines/" + name,
		"var/lib/machines/" + name + ".raw", "etc/systemd/nspawn/" + name + ".nspawn",
		"run/systemd/nspawn/" + name + ".nspawn", "var/lib/lxc/" + name},
		func(path string) bool {
			_, err := os.Stat(filepath.Join(root, path))
			return err == nil
		})
}
