package detect

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lab"
)

// Defender notices floods and puts rules against them into force, at one device.
type Defender interface {
	// Start puts the policy into force and begins to watch.
	Start(ctx context.Context, h *lab.Host, device string, policy []byte) error
	// Replace puts another policy into force.
	Replace(ctx context.Context, policy []byte) error
	// Forget has it begin anew: floods that it knows make the next one of their kind a pulse.
	Forget(ctx context.Context) error
	// Incidents are those that it has noticed since Start.
	Incidents(ctx context.Context) ([]Incident, error)
	// Live are the labels of rules of its own that are in force, asked of the kernel.
	Live(ctx context.Context) ([]string, error)
	// PID is the process whose time and memory count; 0 for none.
	PID() int
	// Stop ends it, and takes all that it put into force back.
	Stop(ctx context.Context) error
}

// Incident is a defender's account of a flood, with the fields of `levee agent incidents --json`.
type Incident struct {
	ID         string     `json:"id"`
	State      string     `json:"state"`
	Sentence   string     `json:"sentence"`
	Began      time.Time  `json:"began,omitzero"`
	Detected   time.Time  `json:"detected,omitzero"`
	Acted      time.Time  `json:"acted,omitzero"`
	Closed     time.Time  `json:"closed,omitzero"`
	Rules      []Rule     `json:"rules"`
	Collateral Collateral `json:"collateral"`
	Notes      []string   `json:"notes"`
	Steps      []struct {
		What string    `json:"what"`
		At   time.Time `json:"at"`
		Core float64   `json:"core_seconds"`
	} `json:"steps"`
}

// Rule is one rule of an incident.
type Rule struct {
	Rule       string    `json:"rule"`
	Label      string    `json:"label"`
	State      string    `json:"state"`
	Since      time.Time `json:"since,omitzero"`
	Loosened   time.Time `json:"loosened,omitzero"` // it passes nearly all good packets since
	Gone       time.Time `json:"gone,omitzero"`
	Packets    uint64    `json:"packets"`
	Coverage   float64   `json:"coverage"`
	Collateral float64   `json:"collateral"`
	AtMost     float64   `json:"collateral_at_most"`
}

// Collateral holds the shares of good packets that rules drop, 0 to 1.
type Collateral struct {
	Predicted float64  `json:"predicted"`
	AtMost    float64  `json:"at_most"` // the upper bound of what was predicted
	Measured  *float64 `json:"measured,omitempty"`
	Good      uint64   `json:"good_packets"` // of which it was predicted
}

// agent is `levee agent run`, in a directory of its own beside one that may run on this machine.
type agent struct {
	levee  string // the program
	host   *lab.Host
	device string
	lock   *os.File
	up     bool // the policy is in force
	cmd    *exec.Cmd
	log    *tail
	ended  chan struct{} // closed when it has
}

// agentNice is the niceness of its systemd unit.
const agentNice = "-20"

// agentDir holds what belongs to the agent of a measurement.
const agentDir = "/run/levee-bench-detect"

func (a *agent) env() []string {
	return append(os.Environ(), store.RunEnv+"="+agentDir+"/run",
		sets.LibEnv+"="+agentDir+"/lib")
}

// Start implements Defender.
func (a *agent) Start(ctx context.Context, h *lab.Host, device string, policy []byte) (err error) {
	a.host, a.device = h, device
	if a.lock, err = claim(agentDir); err != nil {
		return err
	}
	if err := a.Replace(ctx, policy); err != nil {
		return err
	}
	a.up = true
	return a.begin(ctx)
}

// begin starts the process, and waits until it answers.
func (a *agent) begin(ctx context.Context) (err error) {
	// Stop ends it in good order; what a killed measurement leaves goes with its lab.
	a.cmd = a.host.Command(context.WithoutCancel(ctx), "nice", "-n", agentNice, a.levee, "agent",
		"run")
	a.cmd.Env = a.env()
	a.log, a.ended = &tail{}, make(chan struct{})
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	if err := a.cmd.Start(); err != nil {
		return fmt.Errorf("starting the agent: %w", err)
	}
	go func() { a.cmd.Wait(); close(a.ended) }()
	for end := time.Now().Add(startPatience); ; {
		if _, err = a.Incidents(ctx); err == nil {
			return nil
		}
		select {
		case <-a.ended:
			return a.hasEnded()
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("the agent does not answer: %w: %s", err, a.log.last())
		}
	}
}

// Forget implements Defender.
func (a *agent) Forget(ctx context.Context) error {
	if err := a.end(); err != nil {
		return err
	}
	return a.begin(ctx)
}

// Replace implements Defender.
func (a *agent) Replace(ctx context.Context, policy []byte) error {
	file := filepath.Join(agentDir, "bench.levee")
	if err := os.WriteFile(file, policy, 0o600); err != nil {
		return err
	}
	if _, err := a.run(ctx, "up", file, "--dev", a.device, "--mode", "xdp-native"); err != nil {
		return fmt.Errorf("putting the policy into force: %w", err)
	}
	return nil
}

const startPatience = 10 * time.Second

// claim makes a directory for this process alone, in the place of what a killed one left.
func claim(dir string) (lock *os.File, err error) {
	lock, err = os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, kernel.Refuse(err, "another measurement of detection runs on this machine")
	}
	if err := errors.Join(clear(dir), os.MkdirAll(filepath.Join(dir, "lib"), 0o700)); err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// clear removes a directory with the file system of eBPF that may be mounted there.
func clear(dir string) error {
	bpf := filepath.Join(dir, "run", "bpf")
	if err := unix.Unmount(bpf, unix.MNT_DETACH); err != nil && err != unix.EINVAL &&
		err != unix.ENOENT {
		return fmt.Errorf("unmounting %s: %w", bpf, err)
	}
	return os.RemoveAll(dir)
}

// run runs a command of levee on the host.
func (a *agent) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := a.host.Command(ctx, a.levee, args...)
	cmd.Env = a.env()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("levee %s: %w: %s", strings.Join(args, " "), err,
			bytes.TrimSpace(stderr.Bytes()))
	}
	return out, err
}

// Incidents implements Defender.
func (a *agent) Incidents(ctx context.Context) ([]Incident, error) {
	out, err := a.run(ctx, "agent", "incidents", "--json")
	if err != nil {
		return nil, err
	}
	var said struct {
		Incidents []Incident `json:"incidents"`
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return nil, fmt.Errorf("reading what the agent says of incidents: %w", err)
	}
	return said.Incidents, nil
}

// Live implements Defender: rules that no line of the policy has.
func (a *agent) Live(ctx context.Context) ([]string, error) {
	out, err := a.run(ctx, "status", "--json")
	if err != nil {
		return nil, err
	}
	var said struct {
		Interfaces []struct {
			Rules []struct {
				Label  string `json:"label"`
				Line   int    `json:"line"`
				Reason string `json:"reason"`
			} `json:"rules"`
		} `json:"interfaces"`
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return nil, fmt.Errorf("reading the status: %w", err)
	}
	var live []string
	for _, i := range said.Interfaces {
		for _, r := range i.Rules {
			if r.Line == 0 && r.Reason == "rule" {
				live = append(live, r.Label)
			}
		}
	}
	return live, nil
}

// PID implements Defender.
func (a *agent) PID() int { return a.cmd.Process.Pid }

// Stop implements Defender.
func (a *agent) Stop(ctx context.Context) error {
	if a.lock == nil {
		return nil
	}
	errs := []error{a.end()}
	if a.up {
		_, err := a.run(ctx, "down", "--dev", a.device)
		errs = append(errs, err)
	}
	errs = append(errs, clear(agentDir), a.lock.Close())
	a.lock, a.cmd, a.up = nil, nil, false
	return errors.Join(errs...)
}

// end has the process end, if there is one.
func (a *agent) end() error {
	if a.cmd == nil || a.cmd.Process == nil {
		return nil
	}
	err := a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.ended:
	case <-time.After(startPatience):
		err = errors.Join(err, errors.New("the agent does not end"), a.cmd.Process.Kill())
		<-a.ended
	}
	if errors.Is(err, os.ErrProcessDone) {
		err = a.hasEnded()
	}
	a.cmd = nil
	return err
}

// hasEnded says how the agent ended, which nobody has asked of it, and its last words.
func (a *agent) hasEnded() error {
	return fmt.Errorf("the agent ended by itself (%v): %s", a.cmd.ProcessState, a.log.last())
}

// tail keeps the end of what a process writes.
type tail struct{ bytes.Buffer }

const tailSize = 16 << 10

func (t *tail) Write(b []byte) (int, error) {
	if t.Len() > tailSize {
		t.Reset()
	}
	return t.Buffer.Write(b[max(0, len(b)-tailSize):])
}

// last returns the last line.
func (t *tail) last() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	return lines[len(lines)-1]
}

// taken is the time that a process has used, and its memory.
type taken struct {
	cpu time.Duration
	rss int64 // bytes, now
}

// clockTick is the unit of times in /proc/PID/stat, USER_HZ.
const clockTick = 10 * time.Millisecond

// takenBy reads the time and memory of a process, nothing for none.
func takenBy(pid int) (t taken, err error) {
	if pid == 0 {
		return t, nil
	}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(proc + "/stat")
	if err != nil {
		return t, err
	}
	// The name in parentheses may hold anything (proc_pid_stat(5)).
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return t, fmt.Errorf("%s/stat is too short", proc)
	}
	for _, s := range f[11:13] { // utime, stime
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return t, err
		}
		t.cpu += time.Duration(n) * clockTick
	}
	status, err := os.Open(proc + "/status")
	if err != nil {
		return t, err
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			if err != nil {
				return t, err
			}
			t.rss = kb << 10
		}
	}
	return t, nil
}
