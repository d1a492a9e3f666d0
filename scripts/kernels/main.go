// Command kernels boots kernels of Debian in qemu, -jobs of them at a time, and runs the checks of
// checks.go on each: levee and the tests of its packages, as static binaries, in an initramfs with
// a few Debian programs and the kernel's own modules. What the checks print goes through the serial
// console. Nothing of it is installed; downloads are kept in bin/kernels. What a run for a page
// came to is kept beside the page, which is made of the last run of each kernel: they may be run
// apart.
//
//	kernels [-kernels 6.1,6.12] [-run REGEXP] [-data DIR] [-page FILE] [-jobs N] [-long] [-v]
//	        [-drivers] [-fetch|-kept]
//
// It exits 0 only if every check passed on every kernel.
package main

import (
	"cmp"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
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

func (c *check) clockOf() clock { return cmp.Or(c.clock, instructions) }

var (
	//go:embed guest.sh
	guestInit string
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
	flag.StringVar(&o.page, "page", "",
		"keep results beside this file, and write to it what the last run of each kernel came to")
	// On two cores a third guest costs all a sixth more, and a guest waits for a twentieth. One
	// with cards waits for a third of the time, for their links.
	flag.IntVar(&o.jobs, "jobs", 0, "guests at a time; each takes a core and up to 4 GiB of "+
		"memory (default 2, with -drivers 3)")
	flag.BoolVar(&o.long, "long", false, "also all tests of code generation and of the data plane")
	flag.BoolVar(&o.drivers, "drivers", false,
		"on cards of drivers that qemu emulates, with kernels that have these drivers")
	flag.BoolVar(&o.verbose, "v", false, "show what checks that pass print")
	flag.BoolVar(&o.fetch, "fetch", false, "download what is missing, and boot nothing")
	flag.BoolVar(&o.kept, "kept", false, "boot what was downloaded before, and ask no registry: "+
		"of an architecture of which nothing was, only what is named with it (6.1/arm64)")
	flag.Parse()
	if o.jobs == 0 {
		o.jobs = map[bool]int{false: 2, true: 3}[o.drivers]
	}
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
	only, run, data, page      string
	fetch, kept, long, verbose bool
	drivers                    bool
	jobs                       int
}

func kernels(o options) (ok bool, err error) {
	if o.page != "" && (o.run != "" || o.long || o.drivers) {
		return false, errors.New("a page is of whole runs: -page goes with none of -run, -long " +
			"and -drivers")
	}
	named, err := regexp.Compile(o.run)
	if err != nil {
		return false, err
	}
	dir, err := filepath.Abs("bin/kernels")
	if err != nil {
		return false, err
	}
	all := slices.Clone(checks)
	if o.drivers {
		all = driverChecks()
	}
	chosen := slices.DeleteFunc(all,
		func(c check) bool { return !named.MatchString(c.name) || c.long && !o.long })
	guests, err := fetch(o, dir)
	if err != nil || o.fetch {
		err = cmp.Or(err, o.write())
		return err == nil, err
	}
	levee, err := commit()
	if err != nil {
		return false, err
	}
	began := time.Now()
	if err := prepareAll(guests, dir, o, chosen); err != nil {
		return false, err
	}
	fmt.Printf("prepared in %v\n", time.Since(began).Round(time.Second))
	results := make([]*result, len(guests))
	for i, g := range guests {
		if results[i], err = newResult(g.machine, o, levee); err != nil {
			return false, err
		}
	}
	var stopped stops
	err = bootAll(guests, results, o, &stopped)
	whole := time.Since(began)
	ok = true
	for i, g := range guests {
		n := results[i].passed()
		fmt.Printf("%v: %d of %d checks passed, %.1f min of a core\n", g, n, len(g.checks),
			results[i].Core/60)
		ok = ok && n == len(g.checks)
	}
	fmt.Printf("all in %v, of which guests were stopped for %v\n", whole.Round(time.Second),
		stopped.sum.Round(time.Second))
	if len(guests) == len(machines) && ok && err == nil {
		err = o.keepTogether(together{levee, results[0].Date, o.data != "", o.jobs,
			whole.Seconds(), stopped.sum.Seconds()})
	}
	err = errors.Join(err, o.write())
	return ok && err == nil, err
}

// prepareAll makes what the machines boot. Architectures are built for beside each other, and
// beside what is computed for all of them.
func prepareAll(guests []guest, dir string, o options, chosen []check) error {
	var all sync.WaitGroup
	byArch := map[string]string{}
	for _, g := range guests {
		byArch[g.arch] = g.tree()
	}
	handed := filepath.Join(dir, "handed")
	errs := make(chan error, len(byArch)+1)
	all.Go(func() { errs <- handOver(filepath.Join(handed, "levee/handed"), o, chosen) })
	for arch, tree := range byArch {
		all.Go(func() {
			if err := plant(tree, arch, o, chosen); err != nil {
				errs <- fmt.Errorf("%s: %w", arch, err)
			}
		})
	}
	all.Wait()
	close(errs)
	var err error
	for e := range errs {
		err = errors.Join(err, e)
	}
	for i := range guests {
		if g := &guests[i]; err == nil {
			if err = prepare(g, handed, chosen); err != nil {
				err = fmt.Errorf("%v: %w", g.machine, err)
			}
		}
	}
	return err
}

// bootAll runs the guests, those first that are expected to take longest: then no core is idle
// while another has much to do.
func bootAll(guests []guest, results []*result, o options, stopped *stops) (err error) {
	type job struct {
		of       int
		clock    clock
		expected float64
	}
	var jobs []job
	for i, g := range guests {
		for _, k := range clocks {
			if n := g.count(k); n > 0 {
				jobs = append(jobs, job{i, k, o.expected(g.machine, k, n)})
			}
		}
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(b.expected, a.expected) })
	var all sync.WaitGroup
	var lock sync.Mutex
	turns := make(chan struct{}, max(1, o.jobs))
	for _, j := range jobs {
		turns <- struct{}{}
		all.Go(func() {
			e := boot(guests[j.of], j.clock, results[j.of], stopped)
			lock.Lock()
			defer lock.Unlock()
			err = errors.Join(err, e)
			<-turns
		})
	}
	all.Wait()
	return err
}

// guest is a machine with what it boots: directories of a kernel's packages and of programs.
type guest struct {
	machine
	debian       debian
	kernel, root string
	image        string
	emulator     []string         // with -drivers
	checks       []check          // those that are for its kernel
	parts        map[clock][]part // of what it boots
}

// count returns how many of the checks go by a clock.
func (g *guest) count(k clock) (n int) {
	for _, c := range g.checks {
		if c.clockOf() == k {
			n++
		}
	}
	return n
}

// initrd returns what a guest with that clock boots.
func (g *guest) initrd(k clock) string { return fmt.Sprintf("%s.%s.initrd", g.kernel, k) }

// tree returns what the guests of an architecture have of the repository.
func (g *guest) tree() string { return filepath.Join(g.debian.dir, "tree") }

// machines returns the machines that are asked for. Where only what was downloaded is booted, an
// architecture of which nothing was has to be named.
func (o options) machines(dir string) []machine {
	asked := strings.Split(o.only, ",")
	return slices.DeleteFunc(slices.Clone(machines), func(m machine) bool {
		named := slices.Contains(asked, m.String())
		there, _ := filepath.Glob(filepath.Join(dir, m.arch, "[0-9]*"))
		switch {
		case o.drivers && (m.arch != "amd64" || m.kernel == "5.10"):
			return true
		case o.only != "" && !named && !slices.Contains(asked, m.kernel):
			return true
		}
		return o.kept && !named && len(there) == 0
	})
}

// fetch downloads what the machines that are asked for lack.
func fetch(o options, dir string) ([]guest, error) {
	var guests []guest
	asked := map[string]bool{}
	for _, m := range o.machines(dir) {
		d, err := newDebian(dir, m.arch)
		if err == nil && !o.kept && !asked[m.arch] {
			err = d.update()
		}
		asked[m.arch] = true
		g := guest{machine: m, debian: d}
		if err == nil {
			g.kernel, err = d.kernel(m.kernel, map[bool]string{false: "cloud-"}[o.drivers])
		}
		if err == nil && o.drivers {
			g.emulator, err = d.emulator()
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
		if o.kept {
			return nil, fmt.Errorf("nothing was downloaded before: leave out -kept")
		}
		return nil, fmt.Errorf("no such kernel: %s", o.only)
	}
	return guests, nil
}

// unused lists the files of Debian's packages that no check needs.
var unused = []string{"./usr/lib/*/perl*/*", "./usr/lib/*/gconv/*"}

// prepare says what a machine boots, with the checks that are for its kernel and what was handed
// over. Each guest has the tests that its checks need, and no file systems: what it unpacks before
// its first check is instructions, too.
func prepare(g *guest, handed string, all []check) error {
	n := numbers(filepath.Base(g.kernel))
	v := version{n[0], n[1]}
	g.checks = slices.DeleteFunc(slices.Clone(all), func(c check) bool { return !c.isFor(v) })
	mine := g.kernel + ".checks"
	if err := os.RemoveAll(mine); err != nil {
		return err
	}
	for i, c := range g.checks {
		scripts := filepath.Join(mine, string(c.clockOf()), "levee/checks")
		if err := errors.Join(os.MkdirAll(scripts, 0o755),
			os.WriteFile(filepath.Join(scripts, fmt.Sprintf("%03d", i)),
				[]byte("# "+c.name+"\n"+c.script+"\n"), 0o755)); err != nil {
			return err
		}
	}
	modules, err := indexed(g.kernel)
	if err != nil {
		return err
	}
	if g.emulator != nil {
		to := filepath.Join(mine, "modules")
		if err := driverTree(modules, to); err != nil {
			return err
		}
		modules = to
	}
	g.parts = map[clock][]part{}
	for _, k := range clocks {
		if g.count(k) == 0 {
			continue
		}
		parts := []part{{g.root, ".", unused}, {filepath.Join(mine, string(k)), ".", nil},
			{modules, "lib/modules", []string{"*/kernel/fs/*"}}}
		without := []string{}
		needed := packages(slices.DeleteFunc(slices.Clone(g.checks),
			func(c check) bool { return c.clockOf() != k }))
		for p := range packages(all) {
			if !needed[p] {
				without = append(without, filepath.Join("./levee", p, "guest.test"))
			}
		}
		if g.emulator != nil { // cards ask for the commands alone
			without = append(without, "./levee/[!b]*/*")
		}
		parts = append(parts, part{g.tree(), ".", without})
		if slices.ContainsFunc(g.checks, func(c check) bool {
			return c.clockOf() == k && handedLine.MatchString(c.script)
		}) {
			parts = append(parts, part{handed, ".", nil})
		}
		g.parts[k] = parts
	}
	g.image, err = one(g.kernel+"/boot/vmlinuz-*", g.kernel+"/usr/lib/modules/*/vmlinuz")
	return err
}

// indexed gives the directory that holds lib/modules of a kernel's package, with the list of
// dependencies that modprobe reads. depmod takes 8 s of a core for a kernel with drivers, and
// writes modules.devname last.
func indexed(kernel string) (string, error) {
	modules, err := one(kernel+"/lib/modules/*", kernel+"/usr/lib/modules/*")
	if err != nil {
		return "", err
	}
	base := filepath.Dir(filepath.Dir(filepath.Dir(modules)))
	if _, err := os.Stat(filepath.Join(modules, "modules.devname")); err == nil {
		return base, nil
	}
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
// the tests that checks name, and the first process.
func plant(tree, arch string, o options, all []check) error {
	repo := filepath.Join(tree, "levee")
	if err := os.RemoveAll(repo); err != nil {
		return err
	}
	files, err := output(exec.Command("git", "ls-files", "-z"))
	if err != nil {
		return err
	}
	for _, dir := range []string{"bin", "data"} {
		if err := os.MkdirAll(filepath.Join(repo, dir), 0o755); err != nil {
			return err
		}
	}
	cmd := exec.Command("cpio", "-0", "-p", "-d", "-m", "--quiet", repo)
	cmd.Stdin = strings.NewReader(string(files))
	if _, err := output(cmd); err != nil {
		return err
	}
	for _, sets := range []string{"classbench", "prefixes"} {
		if o.data == "" {
			break
		}
		if _, err := output(exec.Command("cp", "-rL", filepath.Join(o.data, sets),
			filepath.Join(repo, "data"))); err != nil {
			return err
		}
	}
	write := func(name, text string) error {
		return os.WriteFile(filepath.Join(tree, name),
			[]byte(text), 0o755)
	}
	if err := errors.Join(write("init", guestInit), write("levee/prelude", prelude),
		write("levee/limit", limits[o.long]), write("levee/length", lengths[o.long])); err != nil {
		return err
	}
	if o.verbose {
		if err := write("levee/verbose", ""); err != nil {
			return err
		}
	}
	return build(repo, arch, all)
}

// handOver has the tests that checks run with `handed` write what they can be handed: what only
// computes takes a guest ten times as long.
func handOver(to string, o options, all []check) error {
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o755)); err != nil {
		return err
	}
	data, err := filepath.Abs(o.data)
	if err != nil {
		return err
	}
	for _, c := range all {
		for _, p := range handedLine.FindAllStringSubmatch(c.script, -1) {
			name, from, command := p[1], p[2], p[3]
			if o.data == "" && strings.Contains(command, "/levee/data") {
				continue
			}
			script := fmt.Sprintf("%s test -count=1 ./%s -hand %s -run %s",
				cmp.Or(os.Getenv("GO"), "go"), from, filepath.Join(to, name),
				strings.ReplaceAll(command, "/levee/data", data))
			if _, err := output(exec.Command("sh", "-c", script)); err != nil {
				return err
			}
		}
	}
	return nil
}

// handedLine has the name, the package, and the pattern and flags of what a check has handed.
var handedLine = regexp.MustCompile(`(?m)\bhanded ([a-z]+) ([a-z/]+) (.*)$`)

// build makes the binaries that the checks name.
func build(repo, arch string, all []check) error {
	goTool := func(args ...string) error {
		cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"), args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		_, err := output(cmd)
		return err
	}
	if err := goTool("build", "-ldflags", "-s -w", "-o", filepath.Join(repo, "bin")+"/",
		"./cmd/levee", "./cmd/levee-lab"); err != nil {
		return err
	}
	for p := range packages(all) {
		if err := goTool("test", "-c", "-ldflags", "-s -w", "-o",
			filepath.Join(repo, p, "guest.test"), "./"+p); err != nil {
			return err
		}
	}
	return nil
}

// packages returns the packages whose tests checks run.
func packages(all []check) map[string]bool {
	named := map[string]bool{}
	for _, c := range all {
		for _, p := range testsLine.FindAllStringSubmatch(c.script, -1) {
			named[p[1]] = true
		}
		if strings.Contains(c.script, "stories ") {
			named["cmd/levee"] = true
		}
	}
	return named
}

// testsLine has the package whose tests a line of a check runs.
var testsLine = regexp.MustCompile(`(?m)\b(?:tests|sometests|handed [a-z]+) ([a-z/]+)`)

// part is a file or a directory below dir that goes into an archive, without some paths.
type part struct {
	dir, what string
	without   []string
}

// pack writes an initramfs: archives of parts of directories, one after the other
// (Documentation/driver-api/early-userspace).
func pack(to string, parts []part) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range parts {
		args := []string{"-c", `find "$@" -print0 | cpio -0 -o -H newc --quiet -R 0:0`, "sh",
			p.what}
		for _, w := range p.without {
			args = append(args, "!", "-path", w)
		}
		cmd := exec.Command("sh", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, f, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("pack %s: %w", p.dir, err)
		}
	}
	return f.Close()
}

// lengths are flags of Go's tests: repetitions, which CI has on its own kernel, are for -long.
var lengths = map[bool]string{false: "-test.short", true: ""}
