package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"

	"levee/internal/kernel"
)

// Process is a program that runs at one end of a lab.
type Process struct {
	In  io.WriteCloser
	Out io.Reader
	// Wait waits for its end, and says what went wrong in it. Out has been read then.
	Wait func() error
}

// Start starts a program inside the namespace, on a core. It has one thread at a time for Go: more
// would only take turns. It is killed when ctx ends or the lab is closed.
func (h *Host) Start(ctx context.Context, cpu int, line ...string) (*Process, error) {
	cmd := h.Command(ctx, line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	said := new(strings.Builder)
	cmd.Stderr = said
	// a session of its own is a group of its own for the scheduler (sched(7), autogroup)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends, and its core with it
		if err := kernel.RunOn(cpu); err != nil {
			started <- err
			return
		}
		started <- cmd.Start()
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	return &Process{In: in, Out: out, Wait: func() error {
		if err := cmd.Wait(); err != nil {
			first, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
			return fmt.Errorf("%w: %s", err, first)
		}
		return nil
	}}, nil
}
