package wrap

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"levee/internal/cli"
	"levee/internal/host/atomicfile"
	"levee/internal/kernel"
)

const runtimeLong = `Be the runtime by which Docker starts containers, so that each has its policy
before its first process runs: the hook of "levee wrap hook" is added to a container that is
created, and the runtime proper does everything else. Docker has no hooks of its own.

It is for /etc/docker/daemon.json; "docker run --runtime levee --label levee.policy=FILE" starts a
container by it. Without a policy, or with an error in it, the container does not start.`

const runtimeExample = `  levee wrap runtime --with crun -- list`

func newRuntime(e *env) *cobra.Command {
	var with string
	cmd := &cobra.Command{
		Use:     "runtime [--with RUNTIME] -- ARGUMENT...",
		Short:   "Start containers of Docker behind their policy (Docker runs it)",
		Long:    runtimeLong,
		Example: runtimeExample,
		Args:    cli.WantSome("ARGUMENT"),
		RunE: func(_ *cobra.Command, args []string) error {
			return e.runtime(with, args)
		},
	}
	cmd.Flags().StringVar(&with, "with", "runc", "the `runtime` proper, such as crun")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// runtime becomes the runtime proper.
func (e *env) runtime(with string, args []string) error {
	path, err := exec.LookPath(with)
	if err != nil {
		return kernel.Refuse(err, "find the runtime of containers")
	}
	if bundle, creates := bundleOf(args); creates {
		program, err := e.programPath()
		if err != nil {
			return err
		}
		if err := addHook(bundle, program); err != nil {
			return err
		}
	}
	err = unix.Exec(path, append([]string{with}, args...), os.Environ())
	return kernel.Refuse(err, "run %s", path)
}

// commands are those of runtimes, as runc has them.
var commands = []string{"checkpoint", "create", "delete", "events", "exec", "features", "kill",
	"list", "pause", "ps", "restore", "resume", "run", "spec", "start", "state", "update"}

// bundleOf returns the directory of the container that a runtime is to create, by its arguments:
// flags, a command, flags and a number. "run" and "restore" create, too.
func bundleOf(args []string) (bundle string, creates bool) {
	at := slices.IndexFunc(args, func(arg string) bool { return slices.Contains(commands, arg) })
	if at < 0 || !slices.Contains([]string{"create", "run", "restore"}, args[at]) {
		return "", false
	}
	args, bundle = args[at+1:], "."
	for i, arg := range args {
		name, value, has := strings.Cut(arg, "=")
		if name != "--bundle" && name != "-b" {
			continue
		}
		if !has && i+1 < len(args) {
			value = args[i+1]
		}
		bundle = value
	}
	return bundle, true
}

// addHook adds levee's hook to the configuration of a container.
func addHook(bundle, program string) error {
	path := filepath.Join(bundle, "config.json")
	is, err := os.Stat(path)
	if err != nil {
		return kernel.Refuse(err, "find the configuration of a container")
	}
	config, err := os.ReadFile(path)
	if err != nil {
		return kernel.Refuse(err, "read the configuration of a container")
	}
	if config, err = withHook(config, program); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := atomicfile.Write(path, config, is.Mode().Perm()); err != nil {
		return kernel.Refuse(err, "write the configuration of a container")
	}
	return nil
}
