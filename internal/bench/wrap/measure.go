package wrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/bench"
	"levee/internal/dataplane/service"
	"levee/internal/host/cgroup"
	"levee/internal/kernel"
	"levee/internal/lab"
)

// measurement is the services of one run.
type measurement struct {
	*Options
	host *lab.Host
	all  []*wrapped
}

// wrapped is a service, with or without a policy.
type wrapped struct {
	way    string
	rules  int
	port   uint16
	group  string // directory of its cgroup
	policy *service.Unkept
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
}

// begin starts a service for each way and number of rules, and one without a policy, which comes
// first.
func (m *measurement) begin(ctx context.Context) error {
	if err := removeLeft(); err != nil {
		return err
	}
	m.all = []*wrapped{{way: None}}
	for _, way := range Ways {
		for _, n := range m.Rules {
			if bench.Wanted(m.Ways, way) {
				m.all = append(m.all, &wrapped{way: way, rules: n})
			}
		}
	}
	if err := m.host.Do(func() error { return lab.SendPlain(loopback) }); err != nil {
		return err
	}
	for i, w := range m.all {
		m.Tell(fmt.Sprintf("starting %s", w), i, m.steps()+len(m.all))
		w.port = firstPort + uint16(i)
		if err := m.start(ctx, w, i); err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
	}
	return nil
}

func (w *wrapped) String() string {
	switch w.way {
	case None:
		return "no policy"
	case Unit:
		return fmt.Sprintf("%d rules at the cgroup", w.rules)
	}
	return fmt.Sprintf("%d rules at the sockets", w.rules)
}

const (
	loopback = "lo"
	// groupPrefix begins the names of cgroups; behind it stands the process that made one.
	groupPrefix = "levee-bench-wrap-"
)

// removeLeft removes cgroups of runs that were killed.
func removeLeft() error {
	root, err := cgroup.Root()
	if err != nil {
		return kernel.Refuse(err, "find where cgroups are")
	}
	left, err := filepath.Glob(filepath.Join(root, groupPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range left {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), groupPrefix), "-")
		pid, err := strconv.Atoi(owner)
		if err != nil || pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return kernel.Refuse(err, "remove the cgroup of a run that was killed")
		}
	}
	return nil
}

// start starts a service in a cgroup of its own, behind its policy.
func (m *measurement) start(ctx context.Context, w *wrapped, i int) error {
	root, err := cgroup.Root()
	if err != nil {
		return err
	}
	w.group = filepath.Join(root, fmt.Sprintf("%s%d-%d", groupPrefix, os.Getpid(), i))
	if err := os.Mkdir(w.group, 0o755); err != nil {
		w.group = ""
		return kernel.Refuse(err, "make a cgroup")
	}
	group, err := os.Open(w.group)
	if err != nil {
		return kernel.Refuse(err, "open a cgroup")
	}
	defer group.Close()
	args := append(slices.Clone(m.Self[1:]), fmt.Sprintf("%s:%d", peer, w.port))
	switch w.way {
	case Unit:
		w.policy, err = policyOf(w.rules, m.Seed, w.port, w.group)
	case Sockets:
		w.policy, err = policyOf(w.rules, m.Seed, w.port, "")
		args = append(args, "filter")
	}
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, m.Self[0], args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if w.way == Sockets {
		filter, err := w.policy.File()
		if err != nil {
			return err
		}
		defer filter.Close()
		cmd.ExtraFiles = []*os.File{filter}
	}
	cmd.Stderr = os.Stderr
	if w.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.host.Do(cmd.Start); err != nil {
		return kernel.Refuse(err, "start the service in its cgroup (Linux 5.7 or newer)")
	}
	w.cmd, w.out = cmd, bufio.NewScanner(out)
	if !w.out.Scan() || w.out.Text() != "ready" {
		return errors.New("the service does not begin")
	}
	return nil
}

// close ends the services, and removes their cgroups and policies.
func (m *measurement) close() error {
	var errs []error
	for _, w := range m.all {
		if w.cmd != nil {
			w.in.Close()
			_ = w.cmd.Wait() // it has ended, or was killed with the context
		}
		if w.policy != nil {
			errs = append(errs, w.policy.Close())
		}
		if w.group != "" {
			errs = append(errs, os.Remove(w.group))
		}
	}
	return errors.Join(errs...)
}

// taken returns how many bytes the service has taken.
func (w *wrapped) taken() (uint64, error) {
	if _, err := fmt.Fprintln(w.in); err != nil {
		return 0, fmt.Errorf("ask the service: %w", err)
	}
	if !w.out.Scan() {
		return 0, errors.New("the service has ended")
	}
	return strconv.ParseUint(w.out.Text(), 10, 64)
}

// steps returns how many windows there are.
func (m *measurement) steps() int { return len(m.MTUs) * m.Rounds * len(m.all) }

// measure fills a case, the i-th.
func (m *measurement) measure(ctx context.Context, c *Case, i int) error {
	for _, w := range m.all {
		c.Results = append(c.Results, &Result{Way: w.way, Rules: w.rules})
	}
	err := m.host.Do(func() error {
		lo, err := netlink.LinkByName(loopback)
		if err == nil {
			err = netlink.LinkSetMTU(lo, c.MTU)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("give the loopback an MTU of %d: %w", c.MTU, err)
	}
	defer func() {
		for _, r := range c.Results {
			r.finish(c.Results[0])
		}
	}()
	for round := range m.Rounds {
		for at, k := range bench.InTurn(round, len(m.all)) {
			if err := bench.Interrupted(ctx); err != nil {
				return err
			}
			w := m.all[k]
			m.Tell(fmt.Sprintf("MTU %d, %s", c.MTU, w),
				len(m.all)+(i*m.Rounds+round)*len(m.all)+at, m.steps()+len(m.all))
			if err := m.window(w, c.Results[k]); err != nil {
				return fmt.Errorf("MTU %d, %s: %w", c.MTU, w, err)
			}
		}
	}
	return nil
}

// warmUp is for how long a connection sends before a window: slow start is over by then.
const warmUp = 50 * time.Millisecond

// window sends to a service over a connection of its own, and notes what it takes.
func (m *measurement) window(w *wrapped, r *Result) (err error) {
	var c net.Conn
	err = m.host.Do(func() (err error) {
		c, err = net.DialTimeout("tcp4", fmt.Sprintf("%s:%d", peer, w.port), 5*time.Second)
		return err
	})
	if err != nil {
		return fmt.Errorf("reach the service: %w", err)
	}
	sent := make(chan error, 1)
	go func() { sent <- send(c) }()
	defer func() {
		c.Close()
		<-sent // which c has ended
	}()
	time.Sleep(warmUp)
	before, err := m.look(w)
	if err != nil {
		return err
	}
	time.Sleep(m.Window)
	after, err := m.look(w)
	if err != nil {
		return err
	}
	secs := after.at.Sub(before.at).Seconds()
	r.add(float64(after.taken-before.taken)*8/secs, float64(after.packets-before.packets)/secs,
		after.bytes-before.bytes, after.packets-before.packets)
	return nil
}

// send writes until the connection is closed.
func send(c net.Conn) error {
	b := make([]byte, 1<<20)
	for {
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
}

// seen counts the bytes that came to a service, and the packets that its policy judged.
type seen struct {
	at                    time.Time
	taken, packets, bytes uint64
}

func (m *measurement) look(w *wrapped) (s seen, err error) {
	if s.taken, err = w.taken(); err != nil {
		return s, err
	}
	s.at = time.Now()
	if w.policy != nil {
		s.packets, s.bytes, err = w.policy.Judged()
	}
	return s, err
}
