package way

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Execute runs a program with a text as its input. It kills the program with its children after
// Timeout.
func Execute(ctx context.Context, path string, args []string, input []byte) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(input)
	said := &limited{left: 512}
	cmd.Stderr = said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil {
		err = nil // it has ended well, and left somebody who goes on
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("it took more than %s", Timeout)
		}
		if text := strings.TrimSpace(said.String()); text != "" {
			return fmt.Errorf("run %s: %w: %q", path, err, text)
		}
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}

// limited keeps the beginning of what is written to it.
type limited struct {
	bytes.Buffer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	_, _ = l.Buffer.Write(b[:n])
	return len(b), nil
}
