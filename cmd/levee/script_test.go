package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	lab "levee/cmd/levee-lab/commands"
	"levee/internal/cli"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/packet"
)

// programs lists the programs that this binary plays in stories, by name.
var programs = map[string]func(){"levee": leveeWithRights,
	labProgram: func() { os.Exit(lab.Main()) }, "probe": probe, "sshd": sshd,
	"over": over, "api": askAPI}

func TestMain(m *testing.M) { testscript.Main(m, programs) }

// TestScripts runs the command-line stories of test/script, but those of the tests below. Stories
// that need root or a kernel feature say so in their first line and are skipped, with the reason,
// where it is missing.
func TestScripts(t *testing.T) {
	least := leastRightsAreEnough(t)
	runScripts(t, setupScript, func(path string) bool {
		return !measures(path) && !slices.Contains(least, path)
	})
}

// TestScriptsThatMeasure runs the stories whose figures want a machine to themselves.
func TestScriptsThatMeasure(t *testing.T) { runScripts(t, setupScript, measures) }

func measures(path string) bool {
	name := filepath.Base(path)
	return strings.HasPrefix(name, "bench") || name == "gen.txtar" || name == "lab.txtar"
}

// TestScriptsWithLeastRights runs stories with levee having CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN
// only, and the bpf file system mounted beforehand, as the shipped mount unit does.
func TestScriptsWithLeastRights(t *testing.T) {
	if os.Getuid() != 0 || kernel.Privileged() != nil {
		t.Skip("needs root, to take rights away")
	}
	least := leastRightsAreEnough(t)
	if len(least) < 8 {
		t.Errorf("only %v: do the stories still use these commands?", least)
	}
	setup := func(e *testscript.Env) error {
		if err := setupScript(e); err != nil {
			return err
		}
		e.Setenv(rightsEnv, "least")
		dir := filepath.Join(e.Getenv(store.RunEnv), "bpf")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		return unix.Mount("bpf", dir, "bpf", 0, "mode=0700")
	}
	runScripts(t, setup, func(path string) bool { return slices.Contains(least, path) })
}

// leastRightsAreEnough lists the stories that use the kernel, and for which least rights are
// enough: none where nobody can take rights away.
func leastRightsAreEnough(t *testing.T) (paths []string) {
	t.Helper()
	if os.Getuid() != 0 || kernel.Privileged() != nil {
		return nil
	}
	for _, path := range scripts(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if usesKernel.Match(text) && !moreRights.Match(text) {
			paths = append(paths, path)
		}
	}
	return paths
}

func runScripts(t *testing.T, setup func(*testscript.Env) error, which func(path string) bool) {
	// What a shell without jobs starts in the background begins with interrupts ignored, and so
	// would what a story leaves running: its end would be waited for.
	if signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	testscript.Run(t, testscript.Params{
		Files: slices.DeleteFunc(scripts(t),
			func(path string) bool { return !which(path) }),
		Setup:               setup,
		Condition:           scriptCondition,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                scriptCmds,
	})
}

// scripts are the files of all stories.
func scripts(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../../test/script/*.txtar")
	if err != nil || len(all) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	return all
}

// scriptCmds are the commands of stories, besides testscript's own.
var scriptCmds = map[string]func(*testscript.TestScript, bool, []string){
	"exits":   cmdExits,
	"least":   cmdLeast,
	"unpriv":  cmdUnpriv,
	"json":    cmdJSON,
	"pcap":    cmdPcap,
	"netns":   cmdNetns,
	"await":   cmdAwait,
	"labname": cmdLabname,
}

// usesKernel are the commands that want a right, or more with one.
var usesKernel = regexp.MustCompile(`levee (up|set|status|eval|test|cost|doctor) `)

// moreRights are commands for which least rights are not enough. Who holds a session is not told
// without CAP_SYS_PTRACE: least-rights.txtar has what happens then. The host's mounts are entered
// with CAP_SYS_ADMIN alone.
var moreRights = regexp.MustCompile(`levee (bench|lab|gen|wrap|probe) |--measure|\$NS sshd |` +
	`--propagation private`)

// rightsEnv tells the levee of a story to give up rights.
const rightsEnv = "LEVEE_TEST_RIGHTS"

// cmdLeast is `least STATUS PROGRAM ARGS...`: as exits, with least rights.
func cmdLeast(ts *testscript.TestScript, neg bool, args []string) {
	ts.Setenv(rightsEnv, "least")
	cmdExits(ts, neg, args)
	ts.Setenv(rightsEnv, "")
}

// readersEnv is the group that reads the state in a story, and of its levee: a machine that has not
// installed levee has no group of that name.
const readersEnv = "LEVEE_TEST_READERS"

// leveeWithRights is levee, with the rights and the readers that the story says.
func leveeWithRights() {
	if name := os.Getenv(readersEnv); name != "" && os.Getuid() == 0 {
		store.Readers = &store.Group{Name: name}
		if err := syscall.Setgid(store.Readers.ID()); err != nil { // as units do
			fail(err)
		}
	}
	if os.Getenv(rightsEnv) != "" && os.Getuid() == 0 {
		if err := giveUpRights(); err != nil {
			fail(fmt.Errorf("give up rights: %w", err))
		}
	}
	main()
}

// giveUpRights leaves this process, and those that it starts, CAP_BPF, CAP_PERFMON and
// CAP_NET_ADMIN alone.
func giveUpRights() error {
	var keep uint64
	for _, c := range []int{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_NET_ADMIN} {
		keep |= 1 << c
	}
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if keep>>c&1 == 0 {
			if _, _, err := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c,
				0); err != 0 {
				return err
			}
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	for i := range sets {
		sets[i].Effective = uint32(keep >> (32 * i))
		sets[i].Permitted = sets[i].Effective
	}
	if _, _, err := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)),
		uintptr(unsafe.Pointer(&sets)), 0); err != 0 {
		return err
	}
	return os.Unsetenv(rightsEnv)
}

// setupScript lets an unprivileged user reach the binary and the files of the story: both
// lie below directories that only root may enter.
func setupScript(e *testscript.Env) error {
	bin, err := exec.LookPath("levee")
	if err != nil {
		return err
	}
	// A runtime directory of its own: a command also cleans up after others, and says so.
	run := fmt.Sprintf("/run/levee-t%d-%d", os.Getpid(), netnsCount.Add(1))
	e.Setenv(store.RunEnv, run)
	packaging, err := filepath.Abs("../../packaging")
	if err != nil {
		return err
	}
	e.Setenv("PACKAGING", packaging)
	e.Defer(func() {
		// What a story that failed has left; the policies go with their pins.
		_ = unix.Unmount(filepath.Join(run, "bpf"), unix.MNT_DETACH)
		_ = os.RemoveAll(run)
		_ = os.RemoveAll(run + "-agent")
	})
	for _, dir := range []string{filepath.Dir(filepath.Dir(bin)), e.WorkDir,
		filepath.Dir(e.WorkDir)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func scriptCondition(cond string) (bool, error) {
	switch cond {
	case "root":
		return os.Getuid() == 0 && kernel.Privileged() == nil, nil
	case "tun":
		return exec.Command("unshare", "-n", "ip", "tuntap", "add", "dev", "t", "mode",
			"tun").Run() == nil, nil
	case "nspawn":
		return nspawnWorks(), nil
	case "two-cores":
		return runtime.NumCPU() >= 2, nil
	case "vlan":
		return exec.Command("unshare", "-n", "ip", "link", "add", "link", "lo", "name", "v", "type",
			"vlan", "id", "7").Run() == nil, nil
	}
	if want, ok := strings.CutPrefix(cond, "linux-"); ok {
		return linuxIsAtLeast(want)
	}
	return false, fmt.Errorf("unknown condition %q", cond)
}

// linuxIsAtLeast answers condition linux-MAJOR.MINOR.
func linuxIsAtLeast(want string) (bool, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false, err
	}
	var major, minor, runs, of int
	if _, err := fmt.Sscanf(want, "%d.%d", &major, &minor); err != nil {
		return false, fmt.Errorf("condition linux-%s: %w", want, err)
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &runs,
		&of); err != nil {
		return false, err
	}
	return runs > major || runs == major && of >= minor, nil
}

// cmdExits is `exits STATUS PROGRAM ARGS...`: the exact exit status, where exec knows only two.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("run %s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s: exit status %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// cmdUnpriv is `unpriv STATUS PROGRAM ARGS...`: the same as user nobody, without any capability.
func cmdUnpriv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: unpriv STATUS PROGRAM [ARG...]")
	}
	as := []string{args[0], "env", "-u", "GOCOVERDIR"}
	if os.Getuid() == 0 {
		as = append(as, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
			"--inh-caps=-all", "--bounding-set=-all")
	}
	cmdExits(ts, false, append(as, args[1:]...))
}

// cmdJSON is `json PATH REGEXP`: the whole field of the last standard output, PATH being keys and
// indices (count is the number of elements) joined by dots; `! json PATH` says that there is no
// such field. A line number in front, `2:verdict`, chooses one line of a stream.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 || len(args) > 2 || neg != (len(args) == 1) {
		ts.Fatalf("usage: json PATH REGEXP, ! json PATH")
	}
	text, path := ts.ReadFile("stdout"), args[0]
	if line, rest, ok := strings.Cut(path, ":"); ok {
		n, err := strconv.Atoi(line)
		ts.Check(err)
		lines := strings.Split(text, "\n")
		if n < 1 || n > len(lines) {
			ts.Fatalf("standard output has no line %d", n)
		}
		text, path = lines[n-1], rest
	}
	var doc any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		ts.Fatalf("standard output is not JSON: %v\n%s", err, text)
	}
	got, ok := walkJSON(doc, strings.Split(path, "."))
	switch {
	case neg && ok:
		ts.Fatalf("%s is %v, want none", path, got)
	case neg:
	case !ok:
		ts.Fatalf("no %s in %s", path, text)
	case !regexp.MustCompile("^(?:" + args[1] + ")$").MatchString(fmt.Sprint(got)):
		ts.Fatalf("%s is %v, want %s", path, got, args[1])
	}
}

func walkJSON(v any, path []string) (any, bool) {
	for _, key := range path {
		switch t := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = t[key]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(key)
			if key == "count" {
				return len(t), true
			}
			if err != nil || i >= len(t) {
				return nil, false
			}
			v = t[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// cmdPcap is `pcap FILE POLICY`: a capture of the packets of the policy's tests, in their order.
func cmdPcap(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: pcap FILE POLICY")
	}
	e := &env{Env: &cli.Env{Stderr: &cli.Output{W: ts.Stderr()}}}
	p, err := e.LoadPolicy(ts.MkAbs(args[1]))
	ts.Check(err)
	var b bytes.Buffer
	w, err := packet.NewWriter(&b)
	ts.Check(err)
	at := time.Unix(1_000_000_000, 0)
	for _, t := range p.Tests {
		for _, step := range t.Steps {
			if step.Set == nil {
				at = at.Add(time.Millisecond)
				ts.Check(w.Write(step.Frame, 0, at))
			}
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b.Bytes(), 0o644))
}
