package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"levee/internal/kernel"
	"levee/internal/lang/diag"
	"levee/internal/usage"
)

// Exit statuses; once shipped they stay.
const (
	ExitDone    = 0
	ExitNo      = 1 // the answer is no, or the work could not be finished
	ExitUsage   = 2
	ExitRefused = 3 // permission, missing kernel feature, a program that is not installed
)

// errBrokenPipe is the error of a write to a pipe whose reader has gone.
const errBrokenPipe = syscall.EPIPE

// ExitError is an error that knows its exit status. A nil err prints nothing: the command has
// already shown why.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// ErrNo ends a command whose output already says that the answer is no.
var ErrNo = &ExitError{Code: ExitNo}

// Usagef is wrong usage of cmd: exit status 2, with the way to the help.
func Usagef(cmd *cobra.Command, format string, args ...any) error {
	return &ExitError{Code: ExitUsage,
		Err: fmt.Errorf(format+" (see `%s --help`)", append(args, cmd.CommandPath())...)}
}

// Refusedf is a refusal by the machine: exit status 3. The message says what to do.
func Refusedf(format string, args ...any) error {
	return &ExitError{Code: ExitRefused, Err: fmt.Errorf(format, args...)}
}

// Report prints what is left to print about err and returns the exit status.
func Report(e *Env, err error) int {
	if err == nil {
		return ExitDone
	}
	code := StatusOf(err)
	var ee *ExitError
	if errors.As(err, &ee) && ee.Err == nil {
		return code
	}
	if log := kernel.Log(err); e.Verbose && log != "" {
		fmt.Fprintln(e.Stderr, log)
	}
	e.Sayf("%s", message(err))
	return code
}

// Sayf is a line, or some, on standard error. All that commands say there of their own goes through
// it: names and texts from outside never reach a terminal as they are.
func (e *Env) Sayf(format string, args ...any) {
	fmt.Fprintf(e.Stderr, "levee: %s\n", diag.Escaped(fmt.Sprintf(format, args...)))
}

// message returns an error as a person reads it. What Go calls a canceled context was a signal.
func message(err error) string {
	text := strings.TrimRight(err.Error(), "\n")
	if errors.Is(err, exec.ErrNotFound) {
		text += "; install it, or add its directory to PATH"
	}
	if errors.Is(err, context.Canceled) {
		const canceled, said = "context canceled", "interrupted"
		if strings.Contains(text, said) { // by who noticed it
			text = strings.ReplaceAll(text, ": "+canceled, "")
		}
		text = strings.ReplaceAll(text, canceled, said)
	}
	return text
}

// StatusOf returns the exit status of an error, also of one that comes from deeper down without
// one.
func StatusOf(err error) int {
	var ee *ExitError
	switch {
	case errors.As(err, &ee):
		return ee.Code
	case errors.Is(err, usage.ErrWrong):
		return ExitUsage
	case isRefusal(err):
		return ExitRefused
	}
	return ExitNo
}

// isRefusal tells a machine that does not let levee work from work that failed.
func isRefusal(err error) bool {
	return errors.Is(err, kernel.ErrRefused) || errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, exec.ErrNotFound)
}

// flagError makes one line with a suggestion of what pflag says about a flag.
func flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		name := unknown.GetSpecifiedName()
		flag := "--" + name
		if unknown.GetSpecifiedShortnames() != "" {
			flag = "-" + name
		}
		return Usagef(cmd, "unknown flag %s%s", flag, suggestFlag(cmd, name))
	}
	var none *pflag.ValueRequiredError
	if errors.As(err, &none) {
		v := none.GetFlag().Value
		if n, ok := v.(NamedValue); ok {
			v = n.Value
		}
		if why, ok := v.(refusedFlag); ok {
			return Usagef(cmd, "--%s: %s", none.GetFlag().Name, string(why))
		}
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return Usagef(cmd, "--%s %s", invalid.GetFlag().Name, wrongValue(invalid))
	}
	return Usagef(cmd, "%s", err)
}

// wrongValue returns a sentence that names a wrong value of a flag and what the flag takes. The
// text of pflag is the one of strconv.
func wrongValue(e *pflag.InvalidValueError) string {
	wanted := map[string]string{
		"bool": "true or false",
		"int":  "a whole number", "intSlice": "whole numbers with commas between",
		"uint": "a whole number from 0", "uint8": "a whole number from 0 to 255",
		"uint64":  "a whole number from 0",
		"float64": "a number", "stringSlice": "words with commas between",
	}[TypeOf(e.GetFlag().Value)]
	switch {
	case wanted == "":
		return fmt.Sprintf("%q: %v", e.GetValue(), errors.Unwrap(e))
	case errors.Is(e, strconv.ErrRange):
		return fmt.Sprintf("%q is out of range: write %s", e.GetValue(), wanted)
	}
	return fmt.Sprintf("%q: write %s", e.GetValue(), wanted)
}

// TypeOf returns the type of a flag's value as pflag calls it.
func TypeOf(v pflag.Value) string {
	if n, ok := v.(NamedValue); ok {
		v = n.Value
	}
	return v.Type()
}

// suggestFlag is `; did you mean --json?` when a flag of cmd is near to name.
func suggestFlag(cmd *cobra.Command, name string) string {
	best, dist := "", 3
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		d := diag.Distance(name, f.Name)
		if strings.HasPrefix(f.Name, name) && len(name) > 1 {
			d = 1
		}
		if d < dist && d < len(f.Name) {
			best, dist = f.Name, d
		}
	})
	if best == "" {
		return ""
	}
	return "; did you mean --" + best + "?"
}

// WantArgs checks the number of positional arguments and names what is missing.
func WantArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Usagef(cmd, "%s is missing", names[len(args)])
		case len(args) > len(names):
			return Usagef(cmd, "%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

// WantSome asks for one argument of the name or more.
func WantSome(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usagef(cmd, "%s is missing", name)
		}
		return nil
	}
}
