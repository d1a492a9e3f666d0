package rrul

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"levee/internal/kernel"
	"levee/internal/lab"
)

// child is a role that runs on a host of the lab.
type child struct {
	role string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	said *strings.Builder
}

// start starts a role on a core.
func start(ctx context.Context, self []string, h *lab.Host, cpu int, role ...string) (*child,
	error) {
	c := &child{role: role[0], said: new(strings.Builder),
		cmd: h.Command(ctx, self[0], append(slices.Clone(self[1:]), role...)...)}
	// One core: more threads would only take turns.
	c.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	c.cmd.Stderr = c.said
	// a session of its own is a group of its own for the scheduler (sched(7), autogroup)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in, c.out = in, bufio.NewScanner(out)
	c.out.Buffer(nil, 1<<20)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends, and its core with it
		if err := kernel.RunOn(cpu); err != nil {
			started <- err
			return
		}
		started <- c.cmd.Start()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting the %s: %w", c.role, err)
	}
	return c, nil
}

// ready waits for the role to say so.
func (c *child) ready() error {
	if c.out.Scan() && c.out.Text() == "ready" {
		return nil
	}
	return errors.Join(fmt.Errorf("the %s did not begin", c.role), c.stop())
}

// ask has the role do what a line without words means to it.
func (c *child) ask() error {
	_, err := fmt.Fprintln(c.in)
	return err
}

// count asks what the role counts.
func (c *child) count() (n count, err error) {
	if err := c.ask(); err != nil {
		return n, fmt.Errorf("asking the %s: %w", c.role, err)
	}
	if !c.out.Scan() {
		return n, fmt.Errorf("the %s has ended", c.role)
	}
	return n, json.Unmarshal(c.out.Bytes(), &n)
}

// stop ends the role and says what went wrong in it.
func (c *child) stop() error {
	c.in.Close()
	if err := c.cmd.Wait(); err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(c.said.String()), "\n")
		return fmt.Errorf("the %s: %w: %s", c.role, err, said)
	}
	return nil
}
