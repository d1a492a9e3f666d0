// Command kernels boots kernels of Debian in qemu, one after the other, and runs the checks of
// checks.go on each: levee and the tests of its packages, as static binaries, in an initramfs with
// a few Debian programs and the kernel's own modules. What the checks print goes through the serial
// console. Nothing of it is installed; downloads are kept in bin/kernels.
//
//	kernels [-kernels 6.1,6.12] [-run REGEXP] [-data DIR] [-page FILE] [-fetch|-kept]
//
// It exits 0 only if every check passed on every kernel.
package main

import (
	"bufio"
	"cmp"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// machine is a kernel and what it runs on.
type machine struct{ kernel, arch string }

func (m machine) String() string { return m.kernel + "/" + m.arch }

var machines = []machine{{"5.10", "amd64"}, {"6.1", "amd64"}, {"6.12", "amd64"},
	{"newest", "amd64"}, {"6.1", "arm64"}}

// version is that of a kernel.
type version [2]int

func (v version) before(w version) bool { return slices.Compare(v[:], w[:]) < 0 }

func (c *check) isFor(v version) bool {
	from := cmp.Or(c.from, supported)
	return !v.before(from) && (c.before == version{} || v.before(c.before))
}

var (
	//go:embed guest.sh
	guest string
	//go:embed prelude.sh
	prelude string
)

func main() {
	var o options
	flag.StringVar(&o.only, "kernels", "",
		"kernels to boot, as 6.1 or 6.1/arm64, separated by commas (default all)")
	flag.StringVar(&o.run, "run", "", "only checks whose name matches")
	flag.StringVar(&o.data, "data", "",
		"a directory with classbench/: also these published filter sets")
	flag.StringVar(&o.page, "page", "", "write the table to this file")
	flag.BoolVar(&o.fetch, "fetch", false, "download what is missing, and boot nothing")
	flag.BoolVar(&o.kept, "kept", false, "boot what was downloaded before, and ask no registry")
	flag.Parse()
	ok, err := kernels(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// options are those of the command line.
type options struct {
	only, run, data, page string
	fetch, kept           bool
}

func kernels(o options) (ok bool, err error) {
	named, err := regexp.Compile(o.run)
	if err != nil {
		return false, err
	}
	dir, err := filepath.Abs("bin/kernels")
	if err != nil {
		return false, err
	}
	chosen := slices.DeleteFunc(slices.Clone(checks),
		func(c check) bool { return !named.MatchString(c.name) })
	guests, err := fetch(o, dir)
	if err != nil || o.fetch {
		return err == nil, err
	}
	var results []*result
	ok = true
	for _, g := range guests {
		r, err := try(g, o.data, chosen)
		if err != nil {
			return false, fmt.Errorf("%v: %w", g.machine, err)
		}
		ok = ok && r.ok
		results = append(results, r)
	}
	if o.page != "" {
		err = os.WriteFile(o.page, []byte(table(chosen, results)), 0o644)
	}
	return ok, err
}

// downloaded is a machine with what it boots: directories of a kernel's packages and of programs.
type downloaded struct {
	machine
	debian       debian
	kernel, root string
}

// fetch downloads what the machines that are asked for lack.
func fetch(o options, dir string) ([]downloaded, error) {
	var guests []downloaded
	asked := map[string]bool{}
	for _, m := range machines {
		if o.only != "" && !slices.ContainsFunc(strings.Split(o.only, ","),
			func(s string) bool { return s == m.kernel || s == m.String() }) {
			continue
		}
		d, err := newDebian(dir, m.arch)
		if err == nil && !o.kept && !asked[m.arch] {
			err = d.update()
		}
		asked[m.arch] = true
		g := downloaded{machine: m, debian: d}
		if err == nil {
			g.kernel, err = d.kernel(m.kernel)
		}
		if err == nil {
			g.root, err = d.root()
		}
		if err != nil {
			return nil, fmt.Errorf("%v: %w", m, err)
		}
		guests = append(guests, g)
	}
	if len(guests) == 0 {
		return nil, fmt.Errorf("no such kernel: %s", o.only)
	}
	return guests, nil
}

// try boots one machine and runs the checks that are for its kernel.
func try(g downloaded, data string, all []check) (*result, error) {
	n := numbers(filepath.Base(g.kernel))
	v := version{n[0], n[1]}
	mine := slices.DeleteFunc(slices.Clone(all), func(c check) bool { return !c.isFor(v) })
	tree := filepath.Join(g.debian.dir, "tree")
	if err := plant(tree, g.arch, data, mine); err != nil {
		return nil, err
	}
	modules, err := indexed(g.kernel)
	if err != nil {
		return nil, err
	}
	initrd := filepath.Join(g.debian.dir, "initrd")
	if err := pack(initrd, [][2]string{{g.root, "."}, {tree, "."},
		{modules, "lib/modules"}}); err != nil {
		return nil, err
	}
	image, err := one(g.kernel+"/boot/vmlinuz-*", g.kernel+"/usr/lib/modules/*/vmlinuz")
	if err != nil {
		return nil, err
	}
	fmt.Printf("%v: %s, %d checks\n", g, filepath.Base(g.kernel), len(mine))
	return boot(g.machine, image, initrd, mine)
}

// indexed gives the directory that lib/modules of a kernel's package lies in, with the list of
// dependencies that modprobe asks for.
func indexed(kernel string) (string, error) {
	modules, err := one(kernel+"/lib/modules/*", kernel+"/usr/lib/modules/*")
	if err != nil {
		return "", err
	}
	base := filepath.Dir(filepath.Dir(filepath.Dir(modules)))
	_, err = output(exec.Command("depmod", "-b", base, filepath.Base(modules)))
	return base, err
}

func one(patterns ...string) (string, error) {
	for _, p := range patterns {
		if found, err := filepath.Glob(p); err != nil || len(found) == 1 {
			return found[0], err
		}
	}
	return "", fmt.Errorf("not exactly one file is %s", strings.Join(patterns, " or "))
}

// plant makes what the guest has besides Debian's programs: the files of the repository, levee,
// tests, checks and the first process.
func plant(tree, arch, data string, mine []check) error {
	repo := filepath.Join(tree, "levee")
	if err := os.RemoveAll(repo); err != nil {
		return err
	}
	files, err := output(exec.Command("git", "ls-files", "-z"))
	if err != nil {
		return err
	}
	for _, dir := range []string{"bin", "checks", "data"} {
		if err := os.MkdirAll(filepath.Join(repo, dir), 0o755); err != nil {
			return err
		}
	}
	cmd := exec.Command("cpio", "-0", "-p", "-d", "-m", "--quiet", repo)
	cmd.Stdin = strings.NewReader(string(files))
	if _, err := output(cmd); err != nil {
		return err
	}
	if data != "" {
		if _, err := output(exec.Command("cp", "-rL", filepath.Join(data, "classbench"),
			filepath.Join(repo, "data"))); err != nil {
			return err
		}
	}
	write := func(name, text string) error {
		return os.WriteFile(filepath.Join(tree, name),
			[]byte(text), 0o755)
	}
	if err := errors.Join(write("init", guest), write("levee/prelude", prelude)); err != nil {
		return err
	}
	for i, c := range mine {
		if err := write(fmt.Sprintf("levee/checks/%03d", i),
			"# "+c.name+"\n"+c.script+"\n"); err != nil {
			return err
		}
	}
	return build(repo, arch, mine)
}

// build makes the binaries that the checks name.
func build(repo, arch string, mine []check) error {
	goTool := func(args ...string) error {
		cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"), args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		_, err := output(cmd)
		return err
	}
	if err := goTool("build", "-ldflags", "-s -w", "-o", filepath.Join(repo, "bin/levee"),
		"./cmd/levee"); err != nil {
		return err
	}
	packages := map[string]bool{}
	for _, c := range mine {
		for _, p := range regexp.MustCompile(`(?m)\b(?:some)?tests ([a-z/]+)`).FindAllStringSubmatch(
			c.script, -1) {
			packages[p[1]] = true
		}
		if strings.Contains(c.script, "stories ") {
			packages["cmd/levee"] = true
		}
	}
	for p := range packages {
		if err := goTool("test", "-c", "-ldflags", "-s -w", "-o",
			filepath.Join(repo, p, "guest.test"), "./"+p); err != nil {
			return err
		}
	}
	return nil
}

// pack writes an initramfs: archives of parts of directories, one after the other
// (Documentation/driver-api/early-userspace).
func pack(to string, parts [][2]string) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range parts {
		cmd := exec.Command("sh", "-c", `find "$1" -print0 | cpio -0 -o -H newc --quiet -R 0:0`,
			"sh", p[1])
		cmd.Dir, cmd.Stdout, cmd.Stderr = p[0], f, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("pack %s: %w", p[0], err)
		}
	}
	return f.Close()
}

// emulators by architecture: the command, and the serial console that the kernel is told of.
var emulators = map[string]struct {
	command []string
	console string
}{
	"amd64": {[]string{"qemu-system-x86_64", "-cpu", "max"}, "ttyS0"},
	"arm64": {[]string{"qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72"}, "ttyAMA0"},
}

// patience is how long a guest may take for everything.
const patience = time.Hour

// boot runs a machine until it is off.
func boot(m machine, image, initrd string, mine []check) (*result, error) {
	e := emulators[m.arch]
	// The guest's time goes by the instructions that it runs, 1 ns each, and jumps where it waits:
	// a busy host changes nothing.
	args := append(slices.Clone(e.command[1:]), "-accel", "tcg,thread=single", "-icount",
		"shift=0,sleep=off", "-m", "4096", "-smp", "1", "-nographic",
		"-no-reboot", "-nic", "none", "-kernel", image, "-initrd", initrd, "-append",
		"console="+e.console+" quiet panic=-1")
	cmd := exec.Command(e.command[0], args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	r, err := listen(out, os.Stdout)
	late.Stop()
	err = cmp.Or(err, cmd.Wait())
	r.machine, r.ok = m, err == nil && r.finished && len(r.passed) == len(mine)
	if err == nil && !r.finished {
		fmt.Printf("%v: the guest ended before its checks did\n", m)
	}
	return r, err
}

// result is what a machine said.
type result struct {
	machine
	linux        string
	passed       map[string]time.Duration // by name of check
	finished, ok bool
}

// listen reads the serial console and shows it.
func listen(console io.Reader, show io.Writer) (*result, error) {
	r := &result{passed: map[string]time.Duration{}}
	last := time.Now()
	lines := bufio.NewScanner(console)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		event, name, _ := strings.Cut(strings.TrimPrefix(line, "@ "), " ")
		if !strings.HasPrefix(line, "@ ") {
			fmt.Fprintln(show, "     "+line)
			continue
		}
		took := time.Since(last).Round(100 * time.Millisecond)
		last = time.Now()
		fmt.Fprintf(show, "  %v %s (%v)\n", event, name, took)
		switch event {
		case "linux":
			r.linux = name
		case "done":
			r.finished = true
		case "pass":
			r.passed[name] = took
		}
	}
	return r, lines.Err()
}
