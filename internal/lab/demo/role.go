package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/talk"
)

// Roles that the demo starts as processes of their own, so that each has its core and its
// namespace.
const (
	roleService  = "service"  // ADDRESS
	roleVisitors = "visitors" // ADDRESS REQUESTS-A-SECOND SOURCE...
	roleHost     = "host"     // ADDRESS RESOLVER...
	roleCrowd    = "crowd"    // ADDRESS SOURCE...
	roleTalk     = "talk"     // SERVICE ADDRESS
	roleTalkers  = "talkers"  // SERVICE ADDRESS JOINS-A-SECOND PATIENCE SOURCE...
	roleFlood    = "flood"    // DEVICE CORE ADDRESS SEED CAPTURE
)

// Role runs such a process. It ends when stdin does: when its parent has ended, however it did.
func Role(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) < 2 {
		return errors.New("a role of the demo is started by `levee lab demo`, not by hand")
	}
	if args[0] == roleFlood {
		return flooder(ctx, args[1:], stdin, stdout)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin) // the end is all that matters
		cancel()
	}()
	switch args[0] {
	case roleService:
		return serve(ctx, args[1], func() { fmt.Fprintln(stdout, "ready") })
	case roleVisitors:
		if len(args) < 4 {
			return errors.New("visitors need an address, a rate and sources")
		}
		rate, err := strconv.ParseFloat(args[2], 64)
		if err != nil || rate <= 0 {
			return fmt.Errorf("%q is no rate of requests", args[2])
		}
		from, err := addresses(args[3:])
		if err != nil {
			return err
		}
		return visitors(ctx, args[1], from, rate, stdout)
	case roleHost, roleCrowd:
		to, err := netip.ParseAddrPort(args[1])
		if err != nil {
			return err
		}
		list, err := addresses(args[2:])
		if err != nil || len(list) == 0 {
			return errors.Join(err, errors.New("no addresses of clients"))
		}
		if args[0] == roleHost {
			return host(ctx, to, list, stdout)
		}
		return crowd(ctx, to, list, stdout)
	case roleTalk, roleTalkers:
		return talker(ctx, args, stdout)
	}
	return fmt.Errorf("the demo has no role %q", args[0])
}

// talker is either end of a service of package talk.
func talker(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) < 3 {
		return errors.New("a service and its clients need its name and address")
	}
	t, err := talk.Find(args[1])
	if err != nil {
		return err
	}
	at, err := netip.ParseAddr(args[2])
	if err != nil {
		return err
	}
	if args[0] == roleTalk {
		return t.Serve(ctx, at, func() { fmt.Fprintln(stdout, "ready") })
	}
	if len(args) < 6 {
		return errors.New("clients need a rate, patience and sources")
	}
	rate, err := strconv.ParseFloat(args[3], 64)
	if err != nil || rate <= 0 {
		return fmt.Errorf("%q is no rate of joins", args[3])
	}
	patience, err := time.ParseDuration(args[4])
	if err != nil {
		return err
	}
	from, err := addresses(args[5:])
	if err != nil {
		return err
	}
	return talkers(ctx, t, at, rate, patience, from, stdout)
}

func addresses(words []string) (list []netip.Addr, err error) {
	for _, s := range words {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// child is a role that runs.
type child struct {
	role   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
	stderr *strings.Builder
}

// start starts a role on a host of the lab, on one core, with a rank.
func start(ctx context.Context, self []string, h *lab.Host, cpu int, r rank, role ...string) (
	*child, error) {
	args := append(append([]string(nil), self[1:]...), role...)
	c := &child{role: role[0], cmd: h.Command(ctx, self[0], args...), stderr: new(strings.Builder)}
	// One core each: more threads would only take turns.
	c.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	c.cmd.Stderr = c.stderr
	// A session of its own is also a group of its own for the scheduler (sched(7), autogroup): what
	// a process of another session takes is weighed against the group, whatever its threads' nice.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.stdin, c.stdout = stdin, bufio.NewScanner(stdout)
	if err := onCore(cpu, r, c.cmd.Start); err != nil {
		return nil, fmt.Errorf("starting the %s: %w", c.role, err)
	}
	// Not there in kernels without these groups.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", c.cmd.Process.Pid),
		strconv.AppendInt(nil, int64(r.nice), 10), 0)
	return c, nil
}

// onCore runs f on one core with a rank; processes that f starts inherit both.
func onCore(cpu int, r rank, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends, and its rank with it
		err := kernel.RunOn(cpu)
		if err == nil {
			err = unix.Setpriority(unix.PRIO_PROCESS, 0, r.nice) // of this thread alone
		}
		if err == nil && r.first > 0 {
			_ = kernel.GoFirst(0, r.first) // a group may have no budget: then nice has to do
		}
		if err != nil {
			done <- fmt.Errorf("running with niceness %d: %w", r.nice, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// stop ends the role and says what went wrong in it.
func (c *child) stop() error {
	c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(c.stderr.String()), "\n")
		return fmt.Errorf("the %s of the demo: %w: %s", c.role, err, said)
	}
	return nil
}

// ready waits for the first line of a role.
func (c *child) ready() error {
	if c.stdout.Scan() {
		return nil
	}
	return errors.Join(fmt.Errorf("the %s of the demo did not start", c.role), c.stop())
}

// requests hands each outcome that the visitors tell to f, until they end.
func (c *child) requests(f func(Request)) {
	for c.stdout.Scan() {
		var r Request
		if json.Unmarshal(c.stdout.Bytes(), &r) == nil {
			f(r)
		}
	}
}
