package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// emulators by architecture: the command, and what the kernel is told.
//
// On amd64 qemu copies a byte at a time where a processor has fast string moves (erms, fsrm), and
// walks one level of page tables more with la57: without the three a guest takes half the time. It
// computes CRC-32C bit by bit (sse4.2), and so Go's tables for it took a quarter of each start of
// levee. On arm64 a kernel with tables of its own (kpti) has another address space at each system
// call, and qemu then forgets all translations. Pages that the kernel would clear before each use
// (init_on_alloc) took a thirtieth of the time. What lies at another address in each process is
// translated for each: without norandmaps stories took a third more. Beside others a guest may not
// run for the ten ticks in which the kernel looks whether its timer works, and it takes another one
// then (no_timer_check).
var emulators = map[string]struct {
	command []string
	kernel  string
}{
	"amd64": {[]string{"qemu-system-x86_64", "-cpu", "max,-erms,-fsrm,-la57,-sse4.2"},
		"console=ttyS0 quiet panic=-1 init_on_alloc=0 norandmaps no_timer_check"},
	"arm64": {[]string{"qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72"},
		"console=ttyAMA0 quiet panic=-1 init_on_alloc=0 norandmaps kpti=off " +
			"nospectre_bhb"},
}

// limits is the largest number of seconds of its own that a guest may take for a check.
var limits = map[bool]string{false: "3600", true: "7200"}

// clock is the clock of a guest.
type clock string

const (
	// instructions: 1 ns each, and time jumps where the guest waits. A busy host changes nothing.
	instructions clock = "instructions"
	// host is the host's clock, for checks in which no time counts: counting instructions is half
	// as much again of what a guest costs.
	host clock = "host"
)

var clocks = []clock{instructions, host}

// ticks are qemu's options for a clock.
var ticks = map[clock][]string{instructions: {"-icount", "shift=0,sleep=off"}}

// patience is the longest time that a guest may take for everything.
const patience = 6 * time.Hour

// boot runs a machine with the checks of a clock until it is off.
func boot(g guest, k clock, r *result, stopped *stops) error {
	fmt.Printf("%v: %s, %d checks, the clock goes by %s\n", g, filepath.Base(g.kernel), g.count(k),
		k)
	if err := pack(g.initrd(k), g.parts[k]); err != nil {
		return err
	}
	e := emulators[g.arch]
	args := append(slices.Clone(e.command[1:]), "-accel", "tcg,thread=single")
	args = append(args, ticks[k]...)
	args = append(args, "-m", "4096", "-smp", "1", "-nographic",
		"-no-reboot", "-nic", "none", "-kernel", g.image, "-initrd", g.initrd(k), "-append",
		e.kernel)
	command := append([]string{e.command[0]}, args...)
	if g.emulator != nil {
		devices, script := cardArgs()
		command = slices.Concat(g.emulator, []string{"-machine", "q35"}, args, devices)
		command = inOwnNamespaces(script, command)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	runtime.LockOSThread() // qemu ends with the thread that began it: also when we are killed
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer stopped.watch(cmd.Process.Pid)()
	began := time.Now()
	ended, err := listen(out, os.Stdout, r, k, began, cmd.Process.Pid)
	late.Stop()
	err = cmp.Or(err, cmd.Wait())
	if err == nil && !ended {
		fmt.Printf("%v: the guest ended before its checks did\n", g)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	fmt.Printf("%v: off after %v, %v of a core\n", g, time.Since(began).Round(time.Second),
		used.Round(time.Second))
	return cmp.Or(err, r.cost(k, used.Seconds()))
}

// listen reads the serial console and shows it. A line that begins with "@" has an event, the
// guest's seconds since it was booted, and a name. What is shown has the seconds of the guest for
// each check, what it cost of a core, and the seconds of the host since it began.
// It returns whether the guest said that all its checks have ended.
func listen(console io.Reader, show io.Writer, r *result, k clock, began time.Time,
	pid int) (ended bool, err error) {
	last, cost := 0.0, 0.0
	lines := bufio.NewScanner(console)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		words := strings.SplitN(line, " ", 4)
		if words[0] != "@" || len(words) < 4 {
			fmt.Fprintf(show, "%s      %s\n", r.Machine, line)
			continue
		}
		at, err := strconv.ParseFloat(words[2], 64)
		if err != nil {
			return false, fmt.Errorf("the guest said %q: %w", line, err)
		}
		event, name, took := words[1], words[3], at-last
		now := core(pid)
		fmt.Fprintf(show, "%s  %s %s (%.1f s, %.1f s of a core, at %.0f s)\n", r.Machine, event,
			name, took, now-cost, time.Since(began).Seconds())
		last, cost = at, now
		ended = event == "done"
		if err := errors.Join(r.note(event, name, took), r.cost(k, now)); err != nil {
			return false, err
		}
	}
	return ended, lines.Err()
}

// core returns the processor time that a process has had, in seconds; 0 if that cannot be read.
func core(pid int) float64 {
	fields := stat(pid)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100 // USER_HZ
}

// stat returns the fields of a process from its state on, none if they cannot be read.
func stat(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, after, _ := strings.Cut(string(b), ") ") // the name has no such thing
	return strings.Fields(after)
}
