package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sources are the releases that have the kernels; bookworm, whose programs the guest runs, comes
// first. They are kept in a directory of their own: the machine's lists and packages stay as they
// are.
const sources = `Types: deb
URIs: http://deb.debian.org/debian
Suites: bookworm bookworm-backports bullseye trixie trixie-backports sid experimental
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://deb.debian.org/debian-security
Suites: bookworm-security bullseye-security trixie-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
`

// programs are those that the guest runs besides levee and its tests.
var programs = []string{"dash", "coreutils", "util-linux", "mount", "iproute2", "kmod", "ethtool",
	"jq", "grep", "sed", "findutils", "procps", "nftables", "xdp-tools", "iputils-ping"}

// debian is an apt of its own, for one architecture.
type debian struct{ dir, arch string }

func newDebian(dir, arch string) (debian, error) {
	d := debian{filepath.Join(dir, arch), arch}
	for _, sub := range []string{"etc/sources.list.d", "etc/preferences.d", "state/lists/partial",
		"cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(d.dir, sub), 0o755); err != nil {
			return d, err
		}
	}
	return d, os.WriteFile(filepath.Join(d.dir, "etc/sources.list.d/debian.sources"),
		[]byte(sources), 0o644)
}

// update asks the registry what it has now.
func (d debian) update() error {
	_, err := d.run("apt-get", "update")
	return err
}

func (d debian) run(command string, args ...string) (string, error) {
	all := []string{"-q"}
	for _, o := range []string{
		"Dir::Etc=" + d.dir + "/etc", "Dir::State=" + d.dir + "/state",
		"Dir::Cache=" + d.dir + "/cache", "Dir::State::status=/dev/null",
		"APT::Architecture=" + d.arch, "APT::Architectures=" + d.arch,
		"APT::Default-Release=bookworm", "APT::Sandbox::User=root",
		"APT::Keep-Downloaded-Packages=true",
	} {
		all = append(all, "-o", o)
	}
	cmd := exec.Command(command, append(all, args...)...)
	cmd.Dir = d.dir
	out, err := output(cmd)
	return string(out), err
}

// kernel gives the directory of the newest kernel of a version such as "6.1", or of all if that is
// "newest". The flavour is "cloud-", or "" for the one with drivers of cards.
func (d debian) kernel(version, flavour string) (dir string, err error) {
	names, err := d.run("apt-cache", "pkgnames", "linux-")
	if err != nil {
		return "", err
	}
	images := regexp.MustCompile(`(?m)^linux-image-((\d+\.\d+)\.[^-\n]*(-\d+)?-`+flavour+d.arch+
		`)$`).FindAllStringSubmatch(names, -1)
	images = slices.DeleteFunc(images,
		func(p []string) bool { return version != "newest" && p[2] != version })
	if len(images) == 0 {
		return "", fmt.Errorf("the registry has no %skernel %s for %s", flavour, version, d.arch)
	}
	name := slices.MaxFunc(images, func(a,
		b []string) int {
		return slices.Compare(numbers(a[1]), numbers(b[1]))
	})[1]
	dir = filepath.Join(d.dir, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	get := []string{"download"}
	// newer releases have three packages
	for _, part := range []string{"linux-image-", "linux-binary-", "linux-modules-"} {
		if strings.Contains("\n"+names+"\n", "\n"+part+name+"\n") {
			get = append(get, part+name)
		}
	}
	if _, err := d.run("apt-get", get...); err != nil {
		return "", err
	}
	return dir, d.extract(dir, filepath.Join(d.dir, "linux-*-"+name+"_*.deb"))
}

// numbers returns the numbers in the name of a package; what is none counts as a separator.
func numbers(name string) []int {
	var out []int
	for _, s := range regexp.MustCompile(`\d+`).FindAllString(name, -1) {
		n, _ := strconv.Atoi(s) // digits alone
		out = append(out, n)
	}
	return out
}

// root gives a directory with the programs and all they need, unpacked but not set up.
func (d debian) root() (string, error) {
	root := filepath.Join(d.dir, "root")
	list, has := root+".programs", strings.Join(programs, " ")
	if b, err := os.ReadFile(list); err == nil && string(b) == has {
		return root, nil
	}
	if err := os.RemoveAll(root); err != nil {
		return "", err
	}
	if _, err := d.run("apt-get", append([]string{"install", "-y", "--no-install-recommends",
		"--download-only"}, programs...)...); err != nil {
		return "", err
	}
	partial := root + ".whole"
	err := d.extract(partial, filepath.Join(d.dir, "cache/archives/*.deb"))
	err = cmp.Or(err, os.RemoveAll(filepath.Join(partial, "usr/share"))) // manuals and translations
	err = cmp.Or(err, os.Rename(partial, root))
	return root, cmp.Or(err, os.WriteFile(list, []byte(has), 0o644))
}

// extract unpacks packages into a directory, which is there afterwards only if all went well.
func (d debian) extract(dir, pattern string) error {
	packages, err := filepath.Glob(pattern)
	if err == nil && len(packages) == 0 {
		err = errors.New("nothing was downloaded for " + pattern)
	}
	partial := dir + ".partial"
	err = cmp.Or(err, os.RemoveAll(partial))
	for _, p := range packages {
		if err != nil {
			break
		}
		_, err = output(exec.Command("dpkg-deb", "-x", p, partial))
	}
	return cmp.Or(err, os.Rename(partial, dir))
}

// output runs a command and gives what it printed; an error has what it complained.
func output(cmd *exec.Cmd) ([]byte, error) {
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, complaint.String())
	}
	return out, err
}
