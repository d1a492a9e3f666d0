package wrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"

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
has no policy until this command gives it one; counters and entries of sets go on then. One that
must not run without its policy names it, and its engine puts it in force ("levee wrap hook").`

const containerExample = `  sudo levee wrap container web web.levee
  sudo levee wrap container --remove web`

func newContainer(e *env) *cobra.Command {
	var remove, asJSON, force bool
	cmd := &cobra.Command{
		Use:     "container (NAME FILE | --remove NAME)",
		Short:   "Give a container that runs a policy",
		Long:    containerLong,
		Example: containerExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !validContainer().MatchString(args[0]) {
				return cli.Usagef(cmd, "%q is no name of a container", args[0])
			}
			if err := e.Privileged(); err != nil {
				return err
			}
			ctx, stop := e.Signals()
			defer stop()
			if remove {
				err := service.Remove(ctx, service.ContainerPrefix+args[0])
				if err == nil {
					fmt.Fprintf(e.Stdout, "%s has no policy of levee's any more\n", args[0])
				}
				return err
			}
			return e.wrapContainer(ctx, args[0], args[1], asJSON, force)
		},
	}
	removing(cmd, &remove, "container")
	forceFlag(cmd, &force)
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

// validContainer matches names and ids of containers that podman and Docker take.
var validContainer = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
})

func (e *env) wrapContainer(ctx context.Context, name, file string, asJSON, force bool) error {
	o, p, err := e.read(file, false)
	if err != nil {
		return err
	}
	c, err := findContainer(ctx, name, engines)
	if err != nil {
		return err
	}
	if err := c.into(o); err != nil {
		return err
	}
	if err := e.spares(ctx, o, p, force); err != nil {
		return err
	}
	return e.put(ctx, o, p, asJSON)
}

// engines are asked for containers.
var engines = []string{"podman", "docker"}

// container is a container as an engine describes it.
type container struct {
	ID    string `json:"Id"`
	Name  string
	State struct{ Pid int } // of its first process; 0: it does not run
}

// minID is the number of digits of a container's number that are unique. Engines tell 64.
const minID = 12

// into has a policy be that of the container, which runs.
func (c *container) into(o *service.Options) error {
	in, err := cgroup.Of(c.State.Pid)
	if err != nil {
		return err
	}
	if in, err = c.cgroup(in); err != nil {
		return err
	}
	o.Name = service.ContainerPrefix + c.Name
	o.CGroup, err = cgroup.Dir(in)
	return err
}

// cgroup returns the cgroup of the container, of the one of its first process: the first part that
// has the number of the container. Below it the container makes others, as systemd in it does. One
// without such a part is in a cgroup of others.
func (c *container) cgroup(of string) (string, error) {
	for at := 1; len(c.ID) >= minID && at < len(of); {
		end := len(of)
		if i := strings.IndexByte(of[at:], '/'); i >= 0 {
			end = at + i
		}
		if strings.Contains(of[at:end], c.ID) {
			return of[:end], nil
		}
		at = end + 1
	}
	return "", kernel.Refuse(nil, "container %s has no cgroup of version 2 of its own: it is in "+
		"%s, and the policy would be of all that is there. Start it without --cgroups=disabled, "+
		"on a machine that was booted with systemd.unified_cgroup_hierarchy=1", c.Name, of)
}

// findContainer returns the container of a name, or of the beginning of its number, that runs.
func findContainer(ctx context.Context, name string, engines []string) (*container, error) {
	var errs []error
	var runs, ended *container
	asked := 0
	for _, engine := range engines {
		c, err := inspect(ctx, engine, name)
		switch {
		case errors.Is(err, exec.ErrNotFound):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", engine, err))
		case c.State.Pid <= 0:
			ended = c
		case runs != nil && runs.ID != c.ID: // podman may stand for docker
			return nil, fmt.Errorf("%s each run a container %s: name it by its number, %s or %s",
				strings.Join(engines, " and "), name, runs.ID[:minID], c.ID[:minID])
		default:
			runs = c
		}
		asked++
	}
	switch {
	case runs != nil:
		return runs, nil
	case ended != nil:
		return nil, fmt.Errorf("container %s does not run: start it, and wrap it then", ended.Name)
	case asked == 0:
		return nil, kernel.Refuse(nil, "this machine has neither %s",
			strings.Join(engines, " nor "))
	}
	return nil, errors.Join(errs...)
}

// inspect asks an engine for a container.
func inspect(ctx context.Context, engine, name string) (*container, error) {
	cmd := exec.CommandContext(ctx, engine, "inspect", "--type", "container", name)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); errors.Is(err, exec.ErrNotFound) {
		return nil, err
	} else if err != nil {
		return nil, errors.New(firstLine(said.String(), err.Error()))
	}
	var all []container
	err := json.Unmarshal(out.Bytes(), &all)
	if err != nil || len(all) != 1 || len(all[0].ID) < minID {
		return nil, fmt.Errorf("it does not tell what %s is: %.200q", name, out.String())
	}
	c := &all[0]
	if c.Name = strings.TrimPrefix(c.Name, "/"); !validContainer().MatchString(c.Name) {
		return nil, fmt.Errorf("it tells a name that none has: %.200q", c.Name)
	}
	return c, nil
}
