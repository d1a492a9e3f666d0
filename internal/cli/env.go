// Package cli is what the commands of every program here share. In go the arguments and streams of
// a process, out come exit statuses, help, manual pages, completions and errors of one line. It
// must never know what a command does.
package cli

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// Env is all that a command knows of the world outside the packages of internal/. A test makes one
// without a process.
type Env struct {
	Args    []string // without the program's name
	Stdin   io.Reader
	Stdout  *Output
	Stderr  *Output
	NoColor bool // https://no-color.org
	Verbose bool // --verbose
	Now     func() time.Time
	// Signals returns a context that is cancelled by SIGINT, SIGTERM and SIGHUP. A command that has
	// something to undo asks for it; the others die of the signal as programs do.
	Signals func() (context.Context, context.CancelFunc)
	// Privileged is nil when the process may load eBPF programs, else says in one line what it
	// lacks.
	Privileged func() error
	Root       bool                   // the process is that of the superuser
	Executable func() (string, error) // the file of this program
}

// Output is a stream that knows whether a person looks at it and that remembers its first error,
// so that nobody has to check every Fprintf.
type Output struct {
	W        io.Writer
	Terminal bool
	Size     func() (columns, rows int) // of the terminal, nil where there is none
	Err      error

	half []byte // of a character, whose rest the next write has
}

// Write writes text. A terminal gets no control characters but the ends of lines, and no sequences
// but those of colours: names of interfaces, processes and containers may hold what it takes for a
// command, and who gives them is not who reads them.
func (o *Output) Write(p []byte) (int, error) {
	if !o.Terminal {
		return o.write(p)
	}
	text := append(o.half, p...)
	o.half = nil
	if whole := wholeRunes(text); whole < len(text) {
		text, o.half = text[:whole], bytes.Clone(text[whole:])
	}
	if _, err := o.write(harmless(text)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (o *Output) write(p []byte) (int, error) {
	if o.Err != nil {
		return 0, o.Err
	}
	n, err := o.W.Write(p)
	if err != nil {
		o.Err = err
	}
	return n, err
}

// Raw returns a writer to the same stream for what moves the cursor, which it leaves as it is.
func (o *Output) Raw() io.Writer { return raw{o} }

type raw struct{ o *Output }

func (r raw) Write(p []byte) (int, error) { return r.o.write(p) }

// Buffered returns a writer for much output; the caller flushes it.
func (o *Output) Buffered() *bufio.Writer { return bufio.NewWriterSize(o, 1<<16) }

// System returns the environment of a real process.
func System() *Env {
	return &Env{
		Args:    os.Args[1:],
		Stdin:   os.Stdin,
		Stdout:  output(os.Stdout),
		Stderr:  output(os.Stderr),
		NoColor: os.Getenv("NO_COLOR") != "",
		Now:     time.Now,
		Signals: func() (context.Context, context.CancelFunc) {
			return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
				syscall.SIGHUP)
		},
		Privileged: kernel.Privileged,
		Root:       os.Geteuid() == 0,
		Executable: os.Executable,
	}
}

func output(f *os.File) *Output {
	o := &Output{W: f, Terminal: isTerminal(f)}
	if o.Terminal {
		o.Size = func() (columns, rows int) { return sizeOf(f) }
	}
	return o
}

// sizeOf returns the size of a terminal, 0 and 0 where it does not tell (ioctl_tty(2)).
func sizeOf(f *os.File) (columns, rows int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// isTerminal reports whether a file is a terminal: only these have settings of a line
// (tcgetattr(3)).
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
