package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/bench"
	floods "levee/internal/bench/flood"
	"levee/internal/cli"
	"levee/internal/lang/diag"
)

// benchCommand is the command of a measurement: what all of them have in common.
type benchCommand struct {
	use, short, long, example string
	options                   *bench.Options
	// Help of the flags that are not the same for all; empty for those that a measurement has not.
	rounds, window, seed, quick string
	against                     bool // there are published figures of it
	// wire is set where the flood can come from another machine; wireLong is the help about that,
	// if it is not the usual one.
	wire     **floods.Wire
	wireLong string
}

// benchFlags are the flags of such a command.
type benchFlags struct {
	options *bench.Options
	window  string
	out     benchOutput
}

// newMeasurement makes a command. prepare reads the flags that are its own into the options; run
// measures.
func newMeasurement[R bench.Report](e *env, c benchCommand, prepare func(*cobra.Command) error,
	run func(context.Context) (R, error)) *cobra.Command {
	f, w := &benchFlags{options: c.options}, new(wireFlags)
	if c.wire != nil {
		c.long += cmp.Or(c.wireLong, wireHelp)
	}
	cmd := &cobra.Command{
		Use: c.use, Short: c.short, Long: c.long, Example: c.example, Args: cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := f.check(cmd)
			if c.wire != nil {
				err = errors.Join(err, w.read(cmd, c.wire))
			}
			if err := errors.Join(err, prepare(cmd)); err != nil {
				return err
			}
			return measure(e, cmd, f, run)
		},
	}
	if c.rounds != "" {
		cmd.Flags().IntVar(&f.options.Rounds, "rounds", 0, c.rounds)
	}
	if c.window != "" {
		cmd.Flags().StringVar(&f.window, "window", "", c.window)
	}
	cmd.Flags().Uint64Var(&f.options.Seed, "seed", 1, c.seed)
	if c.quick != "" {
		cmd.Flags().BoolVar(&f.options.Quick, "quick", false, c.quick)
	}
	if c.wire != nil {
		w.register(cmd)
	}
	f.out.register(cmd)
	if c.against {
		f.out.registerAgainst(cmd)
	}
	return cmd
}

// shortWindows describes --quick in the help of most measurements.
const shortWindows = "short windows: a look, not a figure to quote"

// check reads the common flags, and refuses what could not be written, before anything is measured.
func (f *benchFlags) check(cmd *cobra.Command) error {
	// 0 means the usual number to the measurements
	if cmd.Flags().Changed("rounds") && f.options.Rounds < 1 {
		return cli.Usagef(cmd, "--rounds %d: a number above 0", f.options.Rounds)
	}
	return errors.Join(cli.DurationFlag(cmd, "window", f.window, &f.options.Window),
		f.out.check(cmd))
}

// measure runs a measurement until it ends or a signal comes, and prints what there is. Figures
// that are missing make the exit status 1.
func measure[R bench.Report](e *env, cmd *cobra.Command, f *benchFlags,
	run func(context.Context) (R, error)) error {
	f.options.Command = e.command()
	ctx, stop := e.Signals()
	defer stop()
	progress := e.Progress()
	f.options.Progress = func(p bench.Progress) { measuring(progress, p) }
	rep, err := run(ctx)
	progress.Clear()
	if err != nil && cli.StatusOf(err) != cli.ExitRefused {
		err = fmt.Errorf("bench %s: %w", cmd.Name(), err)
	}
	var none R
	if any(rep) == any(none) {
		return err
	}
	if err = e.printBench(rep, err, &f.out); err != nil {
		return err
	}
	switch r := any(rep).(type) {
	case interface{ Lacking() []string }:
		if names := r.Lacking(); len(names) > 0 {
			return &cli.ExitError{Code: cli.ExitNo,
				Err: fmt.Errorf("no figure for %s: the report says why", strings.Join(names, ", "))}
		}
	case interface{ Complete() bool }:
		if !r.Complete() {
			return cli.ErrNo
		}
	}
	return nil
}

// measuring shows what is done, and how long the rest may take.
func measuring(p *cli.Progress, m bench.Progress) {
	left := ""
	if m.Left > 0 {
		left = ", about " + m.Left.Round(time.Second).String() + " left"
	}
	p.Printf("%d of %d: %s%s", m.Step, m.Steps, m.Doing, left)
}

// command returns what was typed, so that it can be pasted into a shell.
func (e *env) command() string {
	words := []string{"levee"}
	for _, a := range e.Args {
		if diag.Escaped(a) != a || strings.Contains(a, "\n") {
			// bash knows Go's escapes
			a = "$'" + strings.Trim(strings.ReplaceAll(strconv.Quote(a), "'", `\'`), `"`) + "'"
		} else if a == "" || strings.ContainsAny(a, " \t\n'\"\\$`*?[]{}()<>|&;#~!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// numbersFlag reads the numbers of a flag.
func numbersFlag(cmd *cobra.Command, name string, words []string,
	parse func(string) (float64, error)) ([]float64, error) {
	var numbers []float64
	for _, w := range words {
		v, err := parse(w)
		if err != nil {
			return nil, cli.Usagef(cmd, "--%s: %v", name, err)
		}
		numbers = append(numbers, v)
	}
	return numbers, nil
}

// oneOf refuses words of a flag that are not among the two.
func oneOf(cmd *cobra.Command, name string, words []string, a, b string) error {
	for _, v := range words {
		if v != a && v != b {
			return cli.Usagef(cmd, "--%s %s: it is %s or %s", name, v, a, b)
		}
	}
	return nil
}

// policyFlag reads the policy that a flag names, if it does.
func (e *env) policyFlag(path string, text *[]byte, name *string) error {
	if path == "" {
		return nil
	}
	src, err := e.ReadSource(path)
	if err == nil {
		*text, *name = src.Text, src.Title()
	}
	return err
}

// readData reads what --data names, if it names something.
func readData[T any](e *env, path string, to *T, name *string,
	read func(io.Reader, string) (T, error)) error {
	if path == "" {
		return nil
	}
	in, err := e.Open(path)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	defer in.Close()
	*name = diag.Quoted(filepath.Base(path))
	*to, err = read(in, *name)
	return err
}
