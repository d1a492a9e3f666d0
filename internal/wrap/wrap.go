package wrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/dataplane/lockout"
	"levee/internal/dataplane/service"
	"levee/internal/host/cgroup"
	"levee/internal/host/session"
	"levee/internal/lang/policy"
	"levee/internal/lang/setfile"
)

const wrapLong = `Give a service a policy of its own, which travels with it and leaves the machine's
alone. The policy judges what arrives at the sockets of the service and, at a cgroup, what they
send: with the words, sets, limits, counters and tests of any policy, on whatever interface.

"unit" is for a service of systemd, "container" for one of podman or Docker. "sockets" and "run" are
for a service that is handed its sockets and has no rights.

What is in force, and what rules count, "levee status" shows. "levee explain", "levee show" and
"levee set" take --service. See "levee help services".`

const wrapExample = `  sudo levee wrap unit nginx.service nginx.levee
  sudo levee status`

// env holds the streams and options of the commands.
type env struct {
	*cli.Env
	units    units
	dropIns  string // where drop-ins of the machine's administrator are
	sessions func(pids []int) ([]session.Session, error)
}

// New returns the command `levee wrap`.
func New(with *cli.Env) *cobra.Command {
	e := &env{with, systemctl, "/etc/systemd/system", session.AcceptedBy}
	return cli.Noun("wrap COMMAND", "Give a service a policy of its own", wrapLong, wrapExample,
		newUnit(e), newAttach(e), newContainer(e), newHook(e), newRuntime(e), newSockets(e),
		newRun(e))
}

// read reads the policy of a service and prints what is wrong with it, as an error.
func (e *env) read(file string, sockets bool) (*service.Options, *policy.Policy, error) {
	if file == cli.StdinName {
		return nil, nil, errors.New("a service reads its policy again whenever it starts: it " +
			"takes a file, not standard input")
	}
	var files setfile.Recording
	pr, err := e.ParseThrough(file, &files)
	if err != nil {
		return nil, nil, err
	}
	e.PrintDiagnostics(pr.Diags)
	if pr.Policy == nil {
		return nil, nil, cli.ErrNo
	}
	ds := pr.Policy.ForService(pr.Tree, sockets)
	e.PrintDiagnostics(ds)
	if ds.HasErrors() {
		return nil, nil, cli.ErrNo
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, nil, err
	}
	return &service.Options{PolicyPath: path, Source: pr.Src.Text, Files: files.Files()},
		pr.Policy, nil
}

// spares returns an error for a policy that would cut a session which the service has accepted,
// unless it is forced.
func (e *env) spares(ctx context.Context, o *service.Options, p *policy.Policy, force bool) error {
	if force {
		return nil
	}
	pids, err := cgroup.Processes(o.CGroup)
	var all []session.Session
	if err == nil {
		all, err = e.sessions(pids)
	}
	if err != nil {
		e.Sayf("cannot look for SSH sessions that the policy might cut: %v", err)
	}
	return lockout.Service(ctx, o.Name, p, all, e.Sayf)
}

// forceFlag is that of commands which ask spares.
func forceFlag(cmd *cobra.Command, force *bool) {
	cmd.Flags().BoolVar(force, "force", false, "even if it would cut an SSH session of the service")
}

// put puts a policy in force and says so.
func (e *env) put(ctx context.Context, o *service.Options, p *policy.Policy, json bool) error {
	rep, err := service.Put(ctx, *o, dataplane.Compiler(p))
	if rep == nil {
		return err
	}
	if err != nil {
		e.Sayf("the policy is in force, but cleaning up failed: %v; the next levee command does it",
			err)
	}
	if json {
		return e.PrintJSON(rep)
	}
	fmt.Fprintf(e.Stdout, "%s is in force for %s\n", p.File, rep.Name)
	if rep.Replaced != "" {
		fmt.Fprintf(e.Stdout, "  replaced  %s, in one step\n", rep.Replaced)
	}
	if rep.Filter != "" {
		fmt.Fprintf(e.Stdout, "  sockets   levee wrap run --policy %s -- COMMAND\n",
			strings.TrimPrefix(rep.Name, socketPrefix))
	}
	fmt.Fprintf(e.Stdout, "  counters  levee status\n")
	return nil
}

// removing makes a command whose --remove takes the policy of a service off.
func removing(cmd *cobra.Command, remove *bool, what string) {
	cmd.Flags().BoolVar(remove, "remove", false, "take the policy of the "+what+" off, for good")
	for _, name := range []string{"confirm", "shadow"} {
		cli.RefuseFlag(cmd, name, "a policy of a service has no trial and no shadow: write count "+
			"in the place of drop, and look at levee status (levee help services)")
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		names := []string{"NAME", "FILE"}
		if *remove {
			names = names[:1]
		}
		switch {
		case len(args) < len(names):
			return cli.Usagef(cmd, "%s is missing", names[len(args)])
		case len(args) > len(names):
			return cli.Usagef(cmd, "%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

const attachLong = `Put the policy of a unit in force before it starts. The drop-in that "levee wrap
unit" writes runs it, as the first command of the unit and in its cgroup. Exit status 255 has
systemd take the start for failed, so that the unit does not run without its policy.`

func newAttach(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "attach UNIT FILE",
		Short:   "Put the policy of a unit in force as it starts (systemd runs it)",
		Long:    attachLong,
		Example: "  levee wrap attach nginx.service /etc/levee/nginx.levee",
		Args:    cli.WantArgs("UNIT", "FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := e.Signals()
			defer stop()
			return e.failsStart(e.attach(ctx, args[0], args[1]))
		},
	}
}

func (e *env) attach(ctx context.Context, unit, file string) error {
	in, err := cgroup.Of(0)
	if err != nil {
		return err
	}
	if in, err = cgroup.Within(in, unit); err != nil {
		return fmt.Errorf("%w: systemd runs this command when the unit starts", err)
	}
	dir, err := cgroup.Dir(in)
	if err != nil {
		return err
	}
	// Whatever goes wrong from here on, what is in the cgroup sends nothing.
	if err := service.Shut(dir); err != nil {
		return err
	}
	o, p, err := e.read(file, false)
	if err != nil {
		return err
	}
	o.Name, o.CGroup = unit, dir
	return e.put(ctx, o, p, false)
}

// notStarted is the exit status by which a command of ExecCondition= fails a start
// (systemd.service(5)); with any from 1 to 254 the unit would only be left out.
const notStarted = 255

// failsStart has an error end the start of the unit.
func (e *env) failsStart(err error) error {
	if err == nil {
		return nil
	}
	cli.Report(e.Env, err)
	fmt.Fprintln(e.Stderr, "the unit does not start without its policy: mend that, or "+
		"`levee wrap unit --remove` takes the policy away")
	return &cli.ExitError{Code: notStarted}
}

// programPath returns the file of this program as others can run it.
func (e *env) programPath() (string, error) {
	path, err := e.Executable()
	if err != nil {
		return "", fmt.Errorf("find the file of this program: %w", err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	return path, nil
}
