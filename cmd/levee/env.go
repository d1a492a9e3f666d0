package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane"
	"levee/internal/host/session"
	"levee/internal/kernel"
	"levee/internal/packet"
)

// env is all that a command knows of the world outside the packages of internal/. A test makes one
// without a process.
type env struct {
	args    []string // without the program's name
	stdin   io.Reader
	stdout  *output
	stderr  *output
	noColor bool // https://no-color.org
	verbose bool // --verbose
	now     func() time.Time
	// signals returns a context that is cancelled by SIGINT, SIGTERM and SIGHUP. A command that has
	// something to undo asks for it; the others die of the signal as programs do.
	signals func() (context.Context, context.CancelFunc)
	// privileged is nil when the process may load eBPF programs, else says in one line what it
	// lacks.
	privileged func() error
	root       bool                   // the process is that of the superuser
	executable func() (string, error) // the file of this program
	// interfaces are those that names and patterns fit, which may be some only, or have to be all.
	interfaces func(names []string, some bool) ([]string, error)
	// link is what packets of an interface begin with.
	link func(dev string) (packet.Link, error)
	// sessions are those whose packets arrive on an interface.
	sessions func(dev string) ([]session.Session, error)
}

// output is a stream that knows whether a person looks at it and that remembers its first error,
// so that nobody has to check every Fprintf.
type output struct {
	w        io.Writer
	terminal bool
	err      error
}

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(p)
	if err != nil {
		o.err = err
	}
	return n, err
}

// buffered returns a writer for much output; the caller flushes it.
func (o *output) buffered() *bufio.Writer { return bufio.NewWriterSize(o, 1<<16) }

// systemEnv is the environment of a real process.
func systemEnv() *env {
	return &env{
		args:    os.Args[1:],
		stdin:   os.Stdin,
		stdout:  &output{w: os.Stdout, terminal: isTerminal(os.Stdout)},
		stderr:  &output{w: os.Stderr, terminal: isTerminal(os.Stderr)},
		noColor: os.Getenv("NO_COLOR") != "",
		now:     time.Now,
		signals: func() (context.Context, context.CancelFunc) {
			return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
				syscall.SIGHUP)
		},
		privileged: kernel.Privileged,
		root:       os.Geteuid() == 0,
		executable: os.Executable,
		interfaces: dataplane.Interfaces,
		link:       dataplane.Link,
		sessions:   session.On,
	}
}

// isTerminal reports whether a file is a terminal: only these have settings of a line
// (tcgetattr(3)).
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
