package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/host/doctor"
	"levee/internal/kernel"
)

const doctorLong = `Read what in this machine, network card or kernel costs packets, and say
what it costs, how sure that is, and the command that mends it: driver and XDP support, queues,
their interrupts and how packets are spread over them, discards, rings, coalescing, flow control,
offloads that break XDP, MTU, C-states, governor, turbo, mitigations, JIT, conntrack table, rules of
netfilter, open packet sockets, audit, busy polling, steal. It says what
attaching a policy for the first time interrupts. Nothing is changed.

--measure tries what can be tried in network namespaces of its own (levee bench advice): what a
packet costs with what was found, and without it, and what is gained. It needs root and takes up to
a minute and a half; no setting of the machine or of an interface is changed. What would change
one is said not to be tried, and how to try it.

Findings are ok, unknown (the machine does not tell), note, costs (packets or time are lost) or
breaks (no native XDP, or wrong verdicts). Exit status 1 means that one breaks. Without --dev
only the machine is read. What was read is said; what follows from it is read (a counter of this
machine says so), documented (the kernel's source or manual says so) or expected (usual;
measure).`

const doctorExample = `  levee doctor --dev eth0
  sudo levee doctor --dev eth0 --measure
  levee doctor --dev eth0 --json | jq -r '.findings[] | select(.mend) | .mend'`

// maxSample bounds how long steal is watched.
const maxSample = time.Minute

type doctorFlags struct {
	dev, sample string
	all, json   bool
	measure     bool
}

func newDoctor(e *env) *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Say what in this machine costs packets, and the command that mends it",
		Long:    doctorLong,
		Example: doctorExample,
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sample, err := time.ParseDuration(f.sample)
			if err != nil || sample < 0 || sample > maxSample {
				return cli.Usagef(cmd, "--sample %s: a time from 0s to %v, such as 1s", f.sample,
					maxSample)
			}
			if f.measure && !e.Root {
				return cli.Refusedf("measuring needs root: sudo levee doctor --measure")
			}
			return e.doctor(&f, sample)
		},
	}
	cli.DevFlag(cmd, &f.dev, "this interface, too")
	cmd.Flags().StringVar(&f.sample, "sample", "1s", "how long to watch for steal")
	cmd.Flags().BoolVar(&f.all, "all", false, "what is ok, too")
	cmd.Flags().BoolVar(&f.measure, "measure", false,
		"measure what advice gains, where it can be tried in a lab")
	cli.JsonFlag(cmd, &f.json)
	return cmd
}

// doctorReport is the object of `levee doctor --json`.
type doctorReport struct {
	Dev      string           `json:"dev,omitempty"`
	Findings []doctor.Finding `json:"findings"`
}

func (e *env) doctor(f *doctorFlags, sample time.Duration) error {
	ctx, stop := e.Signals()
	defer stop()
	var dev *doctor.Device
	if f.dev != "" {
		var err error
		if dev, err = doctor.ReadDevice(f.dev); err != nil {
			if errors.Is(err, doctor.ErrNoDevice) {
				return cli.Refusedf("%w; `ip link` lists them", err)
			}
			return err
		}
	}
	if dev != nil && dev.Program != nil {
		dev.Program.Policy = dataplane.PolicyOf(dev.Name, dev.Program.ID)
	}
	if dev != nil {
		dev.Judging, dev.Hidden = judgingOf(ctx, dev.Name), store.Hidden()
	}
	host := doctor.ReadHost(ctx, sample)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("doctor: interrupted: %w", err)
	}
	if tc, err := attach.TCIngress(); err == nil {
		host.TCIngress = string(tc)
	}
	if open, err := kernel.OpenBPFDirs(); err == nil {
		host.OpenBPF = open
	}
	findings := doctor.Examine(host, dev)
	if f.measure {
		if err := e.measureAdvice(ctx, f, host, findings); err != nil {
			return err
		}
	}
	if f.json {
		if err := e.PrintJSON(doctorReport{f.dev, findings}); err != nil {
			return err
		}
	} else {
		e.printFindings(findings, f.all)
	}
	if doctor.Worst(findings) == doctor.Breaks {
		return cli.ErrNo
	}
	return nil
}

// measureAdvice has labProgram try what findings advise.
func (e *env) measureAdvice(ctx context.Context, f *doctorFlags, host *doctor.Host,
	findings []doctor.Finding) error {
	var report []byte
	if names := doctor.ToMeasure(findings, f.all); len(names) > 0 {
		path, err := e.findLab()
		if err != nil {
			return cli.Refusedf("--measure is done by %s, which is not installed: install the "+
				"package %s, or put its binary beside that of levee", labProgram, labProgram)
		}
		args := []string{"bench", "advice", "--json", "--only", strings.Join(names, ",")}
		if n := host.Netfilter; n != nil && *n > 0 {
			args = append(args, "--rules", strconv.Itoa(min(*n, mostRulesTried)))
		}
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it tidies up
		cmd.Stderr = e.Stderr.W
		if report, err = cmd.Output(); ctx.Err() != nil {
			return fmt.Errorf("doctor: interrupted: %w", ctx.Err())
		}
		// What has no figure makes its exit status 1; the report says why.
		if exit := new(exec.ExitError); err != nil &&
			!(errors.As(err, &exit) && exit.ExitCode() == cli.ExitNo && len(report) > 0) {
			return fmt.Errorf("measure advice: %w", err)
		}
	}
	return doctor.TakeMeasured(findings, report, f.dev)
}

// mostRulesTried is the number of rules of netfilter that `levee bench advice` takes.
const mostRulesTried = 10_000

// judgingOf says whether packets of an interface come to its policy, "" if it has none, or this
// process may not look.
func judgingOf(ctx context.Context, name string) *doctor.Judging {
	all, _, err := inspect.Status(ctx, false)
	if err == nil {
		err = inspect.Settled(ctx, all)
	}
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(all, func(a inspect.Attachment) bool { return a.Dev == name })
	if i < 0 {
		return nil
	}
	a := &all[i]
	j := a.Judging
	if j.Doubt {
		if looked, err := inspect.Compare(ctx, name); err == nil {
			looked.Amiss, j = j.Amiss, looked
		}
	}
	return &doctor.Judging{Seen: j.State == inspect.Seen, Wrong: j.Why()}
}

// printFindings shows each finding in a line, and below it what it costs and what mends it.
func (e *env) printFindings(findings []doctor.Finding, all bool) {
	out := e.Stdout.Screen()
	defer out.Flush()
	about, hidden := "", 0
	for _, f := range findings {
		if f.State == doctor.OK && !all {
			hidden++
			continue
		}
		if f.About != about {
			about = f.About
			fmt.Fprintln(out, about)
		}
		fmt.Fprintf(out, "  %-8s %-15s %s\n", f.State, f.Name, f.Value)
		if f.Cost != "" {
			sure := ""
			if f.Sure != "" {
				sure = " (" + string(f.Sure) + ")"
			}
			for _, line := range cli.Wrap(f.Cost+sure, out.Room(27, 90)) {
				fmt.Fprintf(out, "%27s%s\n", "", line)
			}
		}
		if f.Mend != "" {
			fmt.Fprintf(out, "%25s$ %s\n", "", f.Mend)
		}
		said := f.Untried
		if f.Measured != nil {
			said = f.Measured.Words()
		}
		for _, line := range cli.Wrap(said, out.Room(27, 90)) {
			fmt.Fprintf(out, "%27s%s\n", "", line)
		}
	}
	if hidden > 0 {
		fmt.Fprintf(out, "%s ok (--all shows them)\n", cli.Plural(hidden, "check"))
	}
}
