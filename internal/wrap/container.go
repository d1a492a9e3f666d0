package wrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/service"
	"levee/internal/host/cgroup"
	"levee/internal/kernel"
)

const containerLong = `Give a container of podman or Docker that runs a policy of its own, at its
cgroup, for what arrives and what leaves. Done again it replaces the policy in one step. --remove
takes it off.

The policy is in force until the container ends. One that is started again is in a new cgroup, and
has no policy until this command gives it one; counters and entries of sets go on then. A service
that must not run without a policy is better a unit: podman generates them (quadlet), and "levee
wrap unit" wraps those.`

const containerExample = `  sudo levee wrap container web web.levee
  sudo levee wrap container --remove web`

// containerPrefix begins the names of containers among those of services.
const containerPrefix = "container:"

func newContainer(e *env) *cobra.Command {
	var remove, json bool
	cmd := &cobra.Command{
		Use:     "container (NAME FILE | --remove NAME)",
		Short:   "Give a container that runs a policy",
		Long:    containerLong,
		Example: containerExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !validContainer.MatchString(args[0]) {
				return cli.Usagef(cmd, "%q is no name of a container", args[0])
			}
			if err := e.Privileged(); err != nil {
				return err
			}
			ctx, stop := e.Signals()
			defer stop()
			if remove {
				err := service.Remove(ctx, containerPrefix+args[0])
				if err == nil {
					fmt.Fprintf(e.Stdout, "%s has no policy of levee's any more\n", args[0])
				}
				return err
			}
			return e.wrapContainer(ctx, args[0], args[1], json)
		},
	}
	removing(cmd, &remove, "container")
	cli.JsonFlag(cmd, &json)
	return cmd
}

// validContainer is what podman and Docker take for a name or an id.
var validContainer = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

func (e *env) wrapContainer(ctx context.Context, name, file string, json bool) error {
	o, p, err := e.read(file, false)
	if err != nil {
		return err
	}
	pid, err := containerPid(ctx, name, runtimes)
	if err != nil {
		return err
	}
	in, err := cgroup.Of(pid)
	if err != nil {
		return err
	}
	if in == "/" {
		return kernel.Refuse(nil, "container %s is in no cgroup of version 2 of its own: boot "+
			"with systemd.unified_cgroup_hierarchy=1", name)
	}
	o.Name = containerPrefix + name
	if o.CGroup, err = cgroup.Dir(in); err != nil {
		return err
	}
	return e.put(ctx, o, p, json)
}

// runtimes are asked for containers, in this order.
var runtimes = []string{"podman", "docker"}

// containerPid is the first process of a container that runs.
func containerPid(ctx context.Context, name string, runtimes []string) (int, error) {
	var errs []error
	for _, runtime := range runtimes {
		cmd := exec.CommandContext(ctx, runtime, "inspect", "--type", "container", "--format",
			"{{.State.Pid}}", name)
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		err := cmd.Run()
		switch {
		case errors.Is(err, exec.ErrNotFound):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %s", runtime, firstLine(said.String(),
				err.Error())))
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s tells no process of %s: %q", runtime, name,
				out.String()))
			continue
		}
		if pid <= 0 {
			return 0, fmt.Errorf("container %s does not run: start it, and wrap it then", name)
		}
		return pid, nil
	}
	if len(errs) == 0 {
		return 0, kernel.Refuse(nil, "this machine has neither %s",
			strings.Join(runtimes, " nor "))
	}
	return 0, errors.Join(errs...)
}
