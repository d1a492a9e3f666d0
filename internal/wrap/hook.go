package wrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/service"
	"levee/internal/host/account"
)

// policyKey is the annotation of a container that names its policy, or the label of one of
// Docker's.
const policyKey = "levee.policy"

const hookLong = `Put the policy of a container in force before its first process runs. An engine of
containers runs it as a createRuntime hook of the Open Container Initiative, with the state of the
container on standard input. With an error the container does not start.

The annotation "levee.policy" of the container names the file of its policy. podman runs hooks of
/usr/share/containers/oci/hooks.d; Docker has "levee wrap runtime". See "levee help services".`

func newHook(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "hook",
		Short:   "Put the policy of a container in force as it starts (its engine runs it)",
		Long:    hookLong,
		Example: "  levee wrap hook < state.json",
		Args:    cli.WantArgs(),
		RunE: func(*cobra.Command, []string) error {
			if err := e.Privileged(); err != nil {
				return err
			}
			ctx, stop := e.Signals()
			defer stop()
			return e.hook(ctx, "/")
		},
	}
}

// containerState is the state of a container as engines write it to hooks (runtime-spec, state).
type containerState struct {
	ID          string            `json:"id"`
	Pid         int               `json:"pid"`
	Annotations map[string]string `json:"annotations"`
}

// maxState bounds the state of a container, in bytes.
const maxState = 4 << 20

// hook puts the policy of a container in force that an engine has made and not started yet. root
// is where the files of engines are below.
func (e *env) hook(ctx context.Context, root string) error {
	var state containerState
	if err := json.NewDecoder(io.LimitReader(e.Stdin, maxState)).Decode(&state); err != nil {
		return fmt.Errorf("read the state of a container, which engines hand to hooks: %w", err)
	}
	if state.Pid <= 0 || len(state.ID) < minID {
		return fmt.Errorf("the state of container %.80q tells no process or number: levee is a "+
			"createRuntime hook", state.ID)
	}
	c := &container{ID: state.ID, Name: state.ID[:minID]}
	c.State.Pid = state.Pid
	told, err := account.ContainerOf(root, state.ID)
	if err == nil && validContainer().MatchString(told.Name) {
		c.Name = told.Name
	}
	file, err := policyOf(c, state.Annotations, told)
	if err != nil {
		return err
	}
	o, p, err := e.read(file, false)
	if err != nil {
		return err
	}
	if err := c.into(o); err != nil {
		return err
	}
	if err := e.put(ctx, o, p, false); err != nil {
		return err
	}
	if err := forgetContainers(ctx, root); err != nil {
		e.Sayf("policies of containers that have gone are kept: %v", err)
	}
	return nil
}

// policyOf returns the file of the policy that a container asks for.
func policyOf(c *container, annotations map[string]string, told *account.Container) (string,
	error) {
	file := annotations[policyKey]
	if file == "" && told != nil {
		file = told.Labels[policyKey]
	}
	switch {
	case file == "":
		return "", fmt.Errorf("container %s does not name its policy: create it with --annotation "+
			"%s=/etc/levee/%[1]s.levee, or --label for Docker", c.Name, policyKey)
	case !filepath.IsAbs(file):
		return "", fmt.Errorf("container %s has %s=%s, which is no path from the root: the hook "+
			"runs anywhere", c.Name, policyKey, file)
	}
	return file, nil
}

// forgetContainers removes the policies of containers that no engine has any more: each run of
// `podman run --rm` has another name.
func forgetContainers(ctx context.Context, root string) error {
	there, err := account.Containers(root)
	if err != nil {
		return err
	}
	// One that an engine makes from here on is in force, or will be put in force anew.
	return service.RemoveEnded(ctx, func(name string) bool {
		name, is := strings.CutPrefix(name, service.ContainerPrefix)
		return is && there[name] == nil
	})
}

// withHook returns the configuration of a container (runtime-spec, config.json) with levee's hook
// as the first of its kind.
func withHook(config []byte, program string) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(config, &all); err != nil {
		return nil, err
	}
	if all == nil {
		return nil, errors.New("it holds nothing")
	}
	var hooks map[string]json.RawMessage
	if all["hooks"] != nil {
		if err := json.Unmarshal(all["hooks"], &hooks); err != nil {
			return nil, err
		}
	}
	if hooks == nil { // null, too
		hooks = map[string]json.RawMessage{}
	}
	var those []json.RawMessage
	if hooks["createRuntime"] != nil {
		if err := json.Unmarshal(hooks["createRuntime"], &those); err != nil {
			return nil, err
		}
	}
	own, err := json.Marshal(map[string]any{"path": program,
		"args": []string{program, "wrap", "hook"}})
	if err != nil {
		return nil, err
	}
	if hooks["createRuntime"], err = json.Marshal(slices.Insert(those, 0,
		json.RawMessage(own))); err != nil {
		return nil, err
	}
	if all["hooks"], err = json.Marshal(hooks); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
