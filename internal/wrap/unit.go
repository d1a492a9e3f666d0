package wrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/service"
	"levee/internal/host/atomicfile"
	"levee/internal/host/cgroup"
	"levee/internal/kernel"
)

const unitLong = `Give a unit of systemd a policy of its own, at its cgroup, for what arrives and what
leaves. A drop-in has the unit put it in force before its first command runs: with an error, also in
the file, the unit does not start. Where the unit runs already, the policy is in force at once. The
file stays where it is, and is read at each start.

Done again, with another file or a changed one, it replaces the policy in one step. Counters, limits
and entries of dynamic sets go on, also when the unit is started again. --remove takes policy and
drop-in away.

The sockets of a unit that systemd opens for it (a .socket unit) are not in its cgroup: see "levee
wrap run".`

const unitExample = `  sudo levee wrap unit nginx.service /etc/levee/nginx.levee
  sudo levee wrap unit --remove nginx.service`

func newUnit(e *env) *cobra.Command {
	var remove, json, force bool
	cmd := &cobra.Command{
		Use:     "unit (NAME FILE | --remove NAME)",
		Short:   "Give a unit of systemd a policy",
		Long:    unitLong,
		Example: unitExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := e.Signals()
			defer stop()
			unit, err := unitName(args[0])
			if err != nil {
				return cli.Usagef(cmd, "%v", err)
			}
			if err := e.Privileged(); err != nil {
				return err
			}
			if remove {
				return e.removeUnit(ctx, unit)
			}
			return e.wrapUnit(ctx, unit, args[1], json, force)
		},
	}
	removing(cmd, &remove, "unit")
	forceFlag(cmd, &force)
	cli.JsonFlag(cmd, &json)
	return cmd
}

// validUnit matches the names of services that systemd takes (systemd.unit(5)).
var validUnit = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]+)?\.service$`)
})

// unitName returns the name of a service as systemd has it.
func unitName(name string) (string, error) {
	if !strings.Contains(name, ".") {
		name += ".service"
	}
	switch {
	case strings.HasSuffix(strings.TrimSuffix(name, ".service"), "@"):
		return "", fmt.Errorf("%s is a template: name the unit that runs, such as %s1.service",
			name, strings.TrimSuffix(name, ".service"))
	case !validUnit().MatchString(name) || len(name) > 255:
		return "", fmt.Errorf("%q is no name of a service of systemd", name)
	}
	return name, nil
}

// dropInFile is the name of levee's: it is read before others, so that its command is the first.
const dropInFile = "00-levee.conf"

func (e *env) dropInPath(unit string) string {
	return filepath.Join(e.dropIns, unit+".d", dropInFile)
}

// dropIn returns the text of a drop-in. ExecCondition= comes before ExecStartPre=; the `+` gives
// the command the rights of root, whatever the unit is left. Without levee's program nothing of the
// unit runs, also not what systemd runs after a start that has failed.
func dropIn(program, file string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Made by `levee wrap unit`; `levee wrap unit --remove` takes it away.\n")
	fmt.Fprintf(&b, "[Unit]\nAssertFileIsExecutable=%s\n",
		strings.ReplaceAll(program, "%", "%%"))
	fmt.Fprintf(&b, "[Service]\nExecCondition=+%s wrap attach %%n %s\n", quoted(program),
		quoted(file))
	return b.Bytes()
}

// quoted returns a word as systemd reads command lines (systemd.service(5)).
func quoted(s string) string {
	s = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`, "\n", `\n`).Replace(s)
	return `"` + s + `"`
}

// units asks systemd, by the arguments of systemctl.
type units func(ctx context.Context, args ...string) (string, error)

// systemctl asks the systemd that runs.
func systemctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", kernel.Refuse(err, "this machine has no systemctl: `levee wrap run` and `levee "+
			"wrap container` go without systemd")
	case err != nil:
		return "", kernel.Refuse(nil, "systemctl %s: %s", strings.Join(args, " "),
			firstLine(said.String(), err.Error()))
	}
	return out.String(), nil
}

func firstLine(text, otherwise string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line == "" {
		return otherwise
	}
	return line
}

// show returns some properties of a unit.
func (u units) show(ctx context.Context, unit string, names ...string) (map[string]string, error) {
	text, err := u(ctx, "show", unit, "--property="+strings.Join(names, ","))
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if ok && all[name] == "" { // of several commands the first
			all[name] = value
		}
	}
	return all, nil
}

func (e *env) wrapUnit(ctx context.Context, unit, file string, json, force bool) error {
	o, p, err := e.read(file, false)
	if err != nil {
		return err
	}
	is, err := e.units.show(ctx, unit, "Id", "LoadState", "ControlGroup", "TriggeredBy",
		"FileDescriptorStoreMax")
	if err != nil {
		return err
	}
	if err := wrappable(unit, is); err != nil {
		return err
	}
	if unit, err = e.ownName(unit, is["Id"]); err != nil {
		return err
	}
	o.Name = unit
	if _, err := cgroup.Root(); err != nil {
		return kernel.Refuse(err, "find the cgroup of %s", unit)
	}
	program, err := e.programPath()
	if err != nil {
		return err
	}
	path := e.dropInPath(unit)
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return kernel.Refuse(err, "read the drop-in of %s", unit)
	}
	undo := func(err error) error {
		if before != nil {
			return errors.Join(err, e.writeDropIn(context.WithoutCancel(ctx), path, before))
		}
		return errors.Join(err, e.removeDropIn(context.WithoutCancel(ctx), unit))
	}
	if err := e.writeDropIn(ctx, path, dropIn(program, o.PolicyPath)); err != nil {
		return undo(err)
	}
	if err := e.isFirst(ctx, unit, program); err != nil {
		return undo(err)
	}
	// Between the first look and the drop-in it may have started.
	if is, err = e.units.show(ctx, unit, "ControlGroup"); err != nil {
		return undo(err)
	}
	if is["ControlGroup"] == "" {
		if !json {
			fmt.Fprintf(e.Stdout, "%s is in force for %s from its next start on\n", p.File, unit)
			return nil
		}
		return e.PrintJSON(service.Report{Name: unit})
	}
	if o.CGroup, err = cgroup.Dir(is["ControlGroup"]); err != nil {
		return undo(err)
	}
	if err := e.spares(ctx, o, p, force); err != nil {
		return undo(err)
	}
	if err := e.put(ctx, o, p, json); err != nil {
		return undo(err)
	}
	return nil
}

// ownName returns the name by which a unit runs, of one that may have been named by an alias, as
// sshd.service is of ssh.service: its cgroup and its next start have that.
func (e *env) ownName(unit, id string) (string, error) {
	if id == "" || id == unit {
		return unit, nil
	}
	if _, err := os.Stat(e.dropInPath(unit)); err == nil {
		return "", fmt.Errorf("%s is %s, and has a policy by either name: levee wrap unit "+
			"--remove %[1]s takes both away", unit, id)
	}
	e.Sayf("%s is an alias: the unit is %s", unit, id)
	return id, nil
}

// wrappable returns an error for a unit that systemd does not know, or whose packets are not those
// of its cgroup.
func wrappable(unit string, is map[string]string) error {
	switch is["LoadState"] {
	case "loaded":
	case "masked":
		return fmt.Errorf("%s is masked: systemctl unmask %[1]s", unit)
	default:
		return fmt.Errorf("systemd has no unit %s (%s): `systemctl list-units --type=service` "+
			"lists what there is", unit, is["LoadState"])
	}
	if kept := is["FileDescriptorStoreMax"]; kept != "" && kept != "0" {
		return fmt.Errorf("%s may leave sockets with systemd and have them back at its next start "+
			"(FileDescriptorStoreMax=%s): they are of the cgroup of the start before, and their "+
			"packets would come past the policy. FileDescriptorStoreMax=0 in a drop-in ends that",
			unit, kept)
	}
	for _, by := range strings.Fields(is["TriggeredBy"]) {
		if strings.HasSuffix(by, ".socket") {
			return fmt.Errorf("%s is started by %s, whose sockets systemd opens outside of the "+
				"cgroup of the unit: their packets would come past the policy. Give it to the "+
				"sockets: levee wrap sockets NAME FILE, and begin ExecStart= with `levee wrap run "+
				"--policy NAME --`", unit, by)
		}
	}
	return nil
}

// isFirst returns an error if another command of the unit runs before the one that puts its policy
// in force.
func (e *env) isFirst(ctx context.Context, unit, program string) error {
	is, err := e.units.show(ctx, unit, "ExecCondition")
	if err != nil {
		return err
	}
	first := is["ExecCondition"]
	switch {
	case first == "":
		return kernel.Refuse(nil, "systemd has not taken the drop-in of %s; it knows "+
			"ExecCondition= from version 243 on", unit)
	case !strings.Contains(first, "path="+program) || !strings.Contains(first, "wrap attach"):
		return fmt.Errorf("%s has an ExecCondition= of its own, which would run before the "+
			"policy is in force: make it an ExecStartPre=", unit)
	}
	return nil
}

// writeDropIn writes a drop-in and has systemd read it.
func (e *env) writeDropIn(ctx context.Context, path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return kernel.Refuse(err, "make the directory of the drop-in")
	}
	if err := atomicfile.Write(path, text, 0o644); err != nil {
		return kernel.Refuse(err, "write the drop-in")
	}
	_, err := e.units(ctx, "daemon-reload")
	return err
}

// removeDropIn removes levee's drop-in, and its directory if nothing else is there.
func (e *env) removeDropIn(ctx context.Context, unit string) error {
	path := e.dropInPath(unit)
	err := os.Remove(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return kernel.Refuse(err, "remove the drop-in of %s", unit)
	}
	_ = os.Remove(filepath.Dir(path)) // others may have drop-ins there
	_, err = e.units(ctx, "daemon-reload")
	return err
}

func (e *env) removeUnit(ctx context.Context, unit string) error {
	names := []string{unit}
	// Without systemd there are no aliases.
	if is, err := e.units.show(ctx, unit, "Id"); err == nil && is["Id"] != "" && is["Id"] != unit {
		names = append(names, is["Id"])
	}
	dropped, had := false, false
	for _, name := range names {
		if _, err := os.Stat(e.dropInPath(name)); err != nil {
			continue
		}
		dropped, had = true, true
		// First: a start in between is without a policy, as the user wanted.
		if err := e.removeDropIn(ctx, name); err != nil {
			return err
		}
	}
	if dropped {
		if err := e.settled(ctx, unit); err != nil {
			return err
		}
	}
	var none error // of the name that was given
	for i, name := range names {
		err := service.Remove(ctx, name)
		switch {
		case err == nil:
			had = true
		case !errors.As(err, new(*generation.NoServiceError)):
			return err
		case i == 0:
			none = err
		}
	}
	if !had {
		return none
	}
	if dropped {
		if err := e.openUnit(ctx, unit); err != nil {
			return err
		}
	}
	fmt.Fprintf(e.Stdout, "%s has no policy of levee's any more\n", unit)
	return nil
}

// startPause is between two looks at a unit that starts.
const startPause = 20 * time.Millisecond

// settled waits for a start of a unit that began while it had a drop-in: its command would put the
// policy in force after the removal. New starts have none.
func (e *env) settled(ctx context.Context, unit string) error {
	for {
		is, err := e.units.show(ctx, unit, "SubState")
		if err != nil || is["SubState"] != "condition" { // ExecCondition= runs
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is starting, with its policy: remove it again when it runs: %w",
				unit, ctx.Err())
		case <-time.After(startPause):
		}
	}
}

// openUnit opens the cgroup of a unit that a start which has failed has shut. It is there still
// where the unit leaves processes behind (KillMode= of systemd.kill(5)).
func (e *env) openUnit(ctx context.Context, unit string) error {
	is, err := e.units.show(ctx, unit, "ControlGroup")
	if err != nil || is["ControlGroup"] == "" {
		return err
	}
	dir, err := cgroup.Dir(is["ControlGroup"])
	if err != nil {
		return err
	}
	return service.Open(dir)
}
