package wrap

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"levee/internal/await"
	"levee/internal/dataplane/service"
	"levee/internal/dataplane/store"
	"levee/internal/host/cgroup"
	"levee/internal/kernel"
)

// created is a process in the cgroup of a container that an engine has made, and the directory
// that the engine's files are below: Docker's, with a label.
func created(t *testing.T, id, name, policy string) (pid int, root string) {
	t.Helper()
	if err := kernel.Privileged(); err != nil {
		t.Skip(err)
	}
	top, err := cgroup.Root()
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(top, id)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe() // it ends with the test
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
		await.True(t, "the cgroup is empty", func() bool { return os.Remove(dir) == nil })
	})
	root = t.TempDir()
	path := filepath.Join(root, "var/lib/docker/containers", id, "config.v2.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"ID": %q, "Name": "/%s", "Config": {"Labels": {"levee.policy": %q}}}`,
		id, name, policy)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, root
}

func mustRoot(t *testing.T) string {
	t.Helper()
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestAContainerBeganWithoutItsPolicy: one that its engine starts again is in a new cgroup, and ran
// without a policy until somebody wrapped it. The hook puts it there before the first process runs,
// and forgets those of containers that have gone.
func TestAContainerBeganWithoutItsPolicy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.levee")
	id := fmt.Sprintf("%064x", os.Getpid())
	pid, root := created(t, id, "web", file)
	t.Setenv(store.RunEnv, filepath.Join(t.TempDir(), "run"))
	e, _, _ := wrapping(t, &manager{is: idle()}, small)
	run := func(state string) error {
		e.Stdin = strings.NewReader(state)
		return e.hook(t.Context(), root)
	}
	state := fmt.Sprintf(`{"ociVersion": "1.0.2", "id": %q, "pid": %d}`, id, pid)
	if err := run(state); err == nil {
		t.Error("without its file it starts")
	}
	if err := os.WriteFile(file, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(state); err != nil {
		t.Fatal(err)
	}
	if pids, err := cgroup.Processes(filepath.Join(mustRoot(t), id)); err != nil ||
		!slices.Equal(pids, []int{pid}) {
		t.Errorf("its processes are %v, %v; want %d", pids, err, pid)
	}
	all, err := service.All(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "container:web" || !all[0].InForce ||
		all[0].Policy != file {
		t.Fatalf("services %+v, %v", all, err)
	}

	// Another container: this one has gone, and no engine has it any more.
	if err := service.Remove(t.Context(), "container:web"); err != nil {
		t.Fatal(err)
	}
	gone, err := os.MkdirTemp(mustRoot(t), "levee-t")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"container:gone", "web.service"} {
		o, p, err := e.read(file, false)
		if err != nil {
			t.Fatal(err)
		}
		o.Name, o.CGroup = name, gone
		if err := e.put(t.Context(), o, p, false); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(gone); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(gone, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if err := run(state); err != nil {
		t.Fatal(err)
	}
	var names []string
	if all, err = service.All(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		names = append(names, s.Name)
		if err := service.Remove(t.Context(), s.Name); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(names, " "); got != "container:web web.service" {
		t.Errorf("policies of %s are kept", got)
	}
}

// TestStatesThatEnginesDoNotTell: what is wrong with one is said, and the container does not start.
func TestStatesThatEnginesDoNotTell(t *testing.T) {
	if err := kernel.Privileged(); err != nil {
		t.Skip(err)
	}
	t.Setenv(store.RunEnv, filepath.Join(t.TempDir(), "run"))
	e, file, _ := wrapping(t, &manager{is: idle()}, small)
	state := func(annotations string) string {
		return fmt.Sprintf(`{"id": %q, "pid": %d, "annotations": %s}`, oneID, os.Getpid(),
			annotations)
	}
	for text, want := range map[string]string{
		"":                                   "read the state",
		`{"id": "` + oneID + `"}`:            "tells no process",
		`{"id": "", "pid": 1}`:               "tells no process",
		state(`{}`):                          "does not name its policy",
		state(`{"levee.policy": "x.levee"}`): "no path from the root",
		state(`{"levee.policy": "/none"}`):   "no such file",
		state(`{"levee.policy": "` + file + `"}`): "no cgroup of version 2 of its own",
	} {
		e.Stdin = strings.NewReader(text)
		if err := e.hook(t.Context(), t.TempDir()); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestTheRuntimeAddsOneHook, the first, to what a container has, and to nothing else.
func TestTheRuntimeAddsOneHook(t *testing.T) {
	for args, want := range map[string]string{
		"--root /run/runc --log x --systemd-cgroup create --bundle /b --pid-file p create": "/b",
		"--log-format json create --bundle=/b web":                                         "/b",
		"run -b /b web":        "/b",
		"create web":           ".",
		"--root r start web":   "",
		"exec --process p run": "",
		"--version":            "",
	} {
		if got, creates := bundleOf(strings.Fields(args)); got != want ||
			creates != (want != "") {
			t.Errorf("%s: %q, %v; want %q", args, got, creates, want)
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "config.json")
	for config, want := range map[string]string{
		`{"ociVersion": "1.0.2"}`:             "/levee",
		`{"hooks": null}`:                     "/levee",
		`{"hooks": {"poststop": [{"a": 1}]}}`: "/levee",
		`{"hooks": {"createRuntime": [{"path": "/gpu", "env": []}], "x": 1}}`: "/levee /gpu",
	} {
		if err := os.WriteFile(path, []byte(config), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := addHook(dir, "/levee"); err != nil {
			t.Fatal(err)
		}
		is, err := os.Stat(path)
		if err != nil || is.Mode().Perm() != 0o640 {
			t.Errorf("the mode is %v, %v", is.Mode(), err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Version string `json:"ociVersion"`
			Hooks   struct {
				CreateRuntime []struct {
					Path string
					Args []string
				} `json:"createRuntime"`
				Poststop []any
			}
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, h := range got.Hooks.CreateRuntime {
			paths = append(paths, h.Path)
		}
		if strings.Join(paths, " ") != want ||
			strings.Join(got.Hooks.CreateRuntime[0].Args, " ") != "/levee wrap hook" ||
			strings.Contains(config, "poststop") != (len(got.Hooks.Poststop) == 1) ||
			strings.Contains(config, "ociVersion") != (got.Version != "") {
			t.Errorf("%s becomes %s", config, text)
		}
	}
	for _, config := range []string{"", "null", "[]", `{"hooks": 1}`, `{"hooks": {"createRuntime": {}}}`} {
		if _, err := withHook([]byte(config), "/levee"); err == nil {
			t.Errorf("%q is a configuration", config)
		}
	}
}
