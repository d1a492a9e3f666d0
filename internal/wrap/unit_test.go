package wrap

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/cli/clitest"
	"levee/internal/dataplane/service"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/host/cgroup"
	"levee/internal/host/session"
	"levee/internal/kernel"
)

// manager is a systemd of tests: it knows one unit, and reads its drop-ins as systemd does.
type manager struct {
	dropIns string
	is      map[string]string
	own     string // ExecCondition= of the unit itself
	failing string // the command that fails
	reloads int
	starts  func() // goes on with a start that has begun, at the second look
	looks   int
	has     []session.Session // that are accepted at ports of any process
}

func (m *manager) sessions([]int) ([]session.Session, error) { return m.has, nil }

func (m *manager) ask(_ context.Context, args ...string) (string, error) {
	if args[0] == m.failing {
		return "", errors.New("systemd says no")
	}
	if args[0] == "daemon-reload" {
		m.reloads++
		return "", nil
	}
	if m.starts != nil && strings.HasSuffix(args[2], "=SubState") {
		if m.looks++; m.looks == 2 {
			m.starts()
			m.is["SubState"] = "running"
		}
	}
	var b strings.Builder
	for _, name := range strings.Split(strings.TrimPrefix(args[2], "--property="), ",") {
		if name != "ExecCondition" {
			b.WriteString(name + "=" + m.is[name] + "\n")
			continue
		}
		if m.own != "" {
			b.WriteString("ExecCondition={ path=" + m.own + " ; argv[]=" + m.own + " ; }\n")
		}
		text, err := os.ReadFile(filepath.Join(m.dropIns, args[1]+".d", dropInFile))
		if id := m.is["Id"]; errors.Is(err, fs.ErrNotExist) && id != "" { // named by an alias
			text, err = os.ReadFile(filepath.Join(m.dropIns, id+".d", dropInFile))
		}
		if err != nil {
			continue
		}
		_, line, _ := strings.Cut(string(text), "ExecCondition=+")
		program := strings.Trim(strings.Fields(line)[0], `"`)
		b.WriteString("ExecCondition={ path=" + program + " ; argv[]=" +
			strings.ReplaceAll(strings.TrimSpace(line), `"`, "") + " ; }\n")
	}
	return b.String(), nil
}

// wrapping is a command with that systemd, and a policy file.
func wrapping(t *testing.T, m *manager, policy string) (e *env, file string, out *strings.Builder) {
	t.Helper()
	with, _, errs, _ := clitest.New(false)
	out = &strings.Builder{}
	with.Stdout = &cli.Output{W: out}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(errs.String())
		}
	})
	program := filepath.Join(t.TempDir(), "levee")
	m.dropIns = t.TempDir()
	file = filepath.Join(t.TempDir(), "web.levee")
	for path, text := range map[string]string{program: "", file: policy} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	with.Executable = func() (string, error) { return program, nil }
	return &env{with, m.ask, m.dropIns, m.sessions}, file, out
}

func idle() map[string]string {
	return map[string]string{"LoadState": "loaded", "ActiveState": "inactive", "Type": "simple"}
}

const small = "pass tcp port 80\ndefault drop\n"

func TestAUnitGetsADropInThatIsItsFirstCommand(t *testing.T) {
	m := &manager{is: idle()}
	e, file, out := wrapping(t, m, small)
	if err := e.wrapUnit(t.Context(), "web@1.service", file, false, false); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(m.dropIns, "web@1.service.d", dropInFile))
	if err != nil {
		t.Fatal(err)
	}
	program, _ := e.Executable()
	want := "# Made by `levee wrap unit`; `levee wrap unit --remove` takes it away.\n[Unit]\n" +
		"AssertFileIsExecutable=" + program + "\n[Service]\n" +
		"ExecCondition=+\"" + program + "\" wrap attach %n \"" + file + "\"\n"
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
	if m.reloads != 1 || !strings.Contains(out.String(), "from its next start on") {
		t.Errorf("%d reloads, and it says %q", m.reloads, out)
	}
}

func TestSystemdReadsAQuotedWordAsItIs(t *testing.T) {
	for word, want := range map[string]string{
		`/etc/a b.levee`: `"/etc/a b.levee"`,
		`/etc/50%$HOME`:  `"/etc/50%%$$HOME"`,
		`/etc/"x"\y`:     `"/etc/\"x\"\\y"`,
	} {
		if got := quoted(word); got != want {
			t.Errorf("%s is quoted %s, want %s", word, got, want)
		}
	}
}

// TestAUnitThatCannotBeWrappedIsLeftAsItWas: nothing is half applied, and the error says what to
// do.
func TestAUnitThatCannotBeWrappedIsLeftAsItWas(t *testing.T) {
	with := func(name, value string) map[string]string {
		is := idle()
		is[name] = value
		return is
	}
	for name, tt := range map[string]struct {
		m      manager
		policy string
		want   string // of the error
	}{
		"not there": {manager{is: with("LoadState", "not-found")}, small, "has no unit"},
		"masked":    {manager{is: with("LoadState", "masked")}, small, "systemctl unmask"},
		"activated": {manager{is: with("TriggeredBy", "x.timer web.socket")}, small, "wrap run"},
		"keeps sockets": {manager{is: with("FileDescriptorStoreMax", "8")}, small,
			"FileDescriptorStoreMax=0"},
		"a condition":  {manager{is: idle(), own: "/bin/true"}, small, "ExecStartPre="},
		"no reload":    {manager{is: idle(), failing: "daemon-reload"}, small, "says no"},
		"no policy":    {manager{is: idle()}, "pass tcp port\n", ""},
		"not of units": {manager{is: idle()}, "drop vlan 7\n" + small, ""},
		"an interface": {manager{is: idle()}, "interface eth0\n" + small, ""},
		"ended cgroup": {manager{is: with("ControlGroup", "/levee-there-is-none")}, small, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := tt.m
			e, file, _ := wrapping(t, &m, tt.policy)
			err := e.wrapUnit(t.Context(), "web.service", file, false, false)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
			left, err := os.ReadDir(m.dropIns)
			if err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// TestAnotherFileThatFailsLeavesTheDropInBefore: a unit that has a policy keeps it.
func TestAnotherFileThatFailsLeavesTheDropInBefore(t *testing.T) {
	m := &manager{is: idle()}
	e, file, _ := wrapping(t, m, small)
	if err := e.wrapUnit(t.Context(), "web.service", file, false, false); err != nil {
		t.Fatal(err)
	}
	path := e.dropInPath("web.service")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := file + ".new"
	if err := os.WriteFile(other, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	m.is["ControlGroup"] = "/levee-there-is-none"
	if err := e.wrapUnit(t.Context(), "web.service", other, false, false); err == nil {
		t.Fatal("a cgroup that is not there got a policy")
	}
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(before) {
		t.Errorf("the drop-in is %q, %v; was %q", after, err, before)
	}
}

// TestAUnitNamedByAnAlias: its drop-in runs levee with the unit's own name, so that the next start
// had a second policy, which no removal by the alias took off.
func TestAUnitNamedByAnAlias(t *testing.T) {
	if err := kernel.Privileged(); err != nil {
		t.Skip(err)
	}
	root, err := cgroup.Root()
	if err != nil {
		t.Skip(err)
	}
	t.Setenv(store.RunEnv, filepath.Join(t.TempDir(), "run"))
	dir, err := os.MkdirTemp(root, "levee-t")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	is := idle()
	is["Id"], is["ControlGroup"] = "ssh.service", "/"+filepath.Base(dir)
	m := &manager{is: is}
	e, file, _ := wrapping(t, m, small)
	if err := e.wrapUnit(t.Context(), "sshd.service", file, false, false); err != nil {
		t.Fatal(err)
	}
	all, err := service.All(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "ssh.service" {
		t.Errorf("policies of %+v, %v", all, err)
	}
	if _, err := os.Stat(e.dropInPath("sshd.service")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the drop-in of the alias: %v", err)
	}
	if err := e.removeUnit(t.Context(), "sshd.service"); err != nil {
		t.Fatal(err)
	}
	if all, err := service.All(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("after the removal there is %v, %v", all, err)
	}

	// Of a levee that did not know of aliases there is a drop-in by each name.
	if err := e.writeDropIn(t.Context(), e.dropInPath("sshd.service"), nil); err != nil {
		t.Fatal(err)
	}
	err = e.wrapUnit(t.Context(), "sshd.service", file, false, false)
	if err == nil || !strings.Contains(err.Error(), "takes both away") {
		t.Errorf("with the drop-in of an alias: %v", err)
	}
	if err := e.removeUnit(t.Context(), "sshd.service"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(m.dropIns); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestARemovalLeftAUnitShut: of a start that has failed the cgroup is shut, and stays where the
// unit leaves processes behind. Its next start was without a policy, and took and sent nothing.
func TestARemovalLeftAUnitShut(t *testing.T) {
	if err := kernel.Privileged(); err != nil {
		t.Skip(err)
	}
	root, err := cgroup.Root()
	if err != nil {
		t.Skip(err)
	}
	t.Setenv(store.RunEnv, filepath.Join(t.TempDir(), "run"))
	dir, err := os.MkdirTemp(root, "levee-t")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	m := &manager{is: idle()}
	e, file, _ := wrapping(t, m, small)
	if err := e.wrapUnit(t.Context(), "web.service", file, false, false); err != nil {
		t.Fatal(err)
	}
	if err := service.Shut(dir); err != nil {
		t.Fatal(err)
	}
	m.is["ControlGroup"] = "/" + filepath.Base(dir)
	if err := e.removeUnit(t.Context(), "web.service"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []ebpf.AttachType{ebpf.AttachCGroupInetIngress,
		ebpf.AttachCGroupInetEgress} {
		all, err := link.QueryPrograms(link.QueryOptions{Target: int(f.Fd()), Attach: at})
		if err != nil || len(all.Programs) > 0 {
			t.Errorf("%v: %+v, %v", at, all, err)
		}
	}
}

// TestAStartPutThePolicyOfARemovalBack: it had begun with the drop-in, and its command came after
// the removal. The unit was judged, and said to be without a policy.
func TestAStartPutThePolicyOfARemovalBack(t *testing.T) {
	if err := kernel.Privileged(); err != nil {
		t.Skip(err)
	}
	root, err := cgroup.Root()
	if err != nil {
		t.Skip(err)
	}
	t.Setenv(store.RunEnv, filepath.Join(t.TempDir(), "run"))
	dir, err := os.MkdirTemp(root, "levee-t")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	m := &manager{is: idle()}
	e, file, _ := wrapping(t, m, small)
	if err := e.wrapUnit(t.Context(), "web.service", file, false, false); err != nil {
		t.Fatal(err)
	}
	starts := func() {
		o, p, err := e.read(file, false)
		if err != nil {
			t.Fatal(err)
		}
		o.Name, o.CGroup = "web.service", dir
		if err := e.put(t.Context(), o, p, false); err != nil {
			t.Fatal(err)
		}
	}
	m.is["SubState"], m.starts = "condition", starts
	if err := e.removeUnit(t.Context(), "web.service"); err != nil {
		t.Fatal(err)
	}
	if m.is["SubState"] == "condition" {
		starts()
	}
	if all, err := service.All(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("after the removal there is %v, %v", all, err)
	}
	_ = service.Remove(t.Context(), "web.service")

	// Who does not wait for the start is told what to do.
	if err := e.wrapUnit(t.Context(), "web.service", file, false, false); err != nil {
		t.Fatal(err)
	}
	m.is["SubState"], m.starts = "condition", nil
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := e.removeUnit(ctx, "web.service"); err == nil ||
		!strings.Contains(err.Error(), "remove it again") {
		t.Errorf("interrupted: %v", err)
	}
}

// TestAWrappedSSHServerLockedItsClientsOut: the policy of an interface that would end a session is
// refused, and that of the service which has accepted it was not.
func TestAWrappedSSHServerLockedItsClientsOut(t *testing.T) {
	if err := kernel.Privileged(); err != nil {
		t.Skip(err)
	}
	root, err := cgroup.Root()
	if err != nil {
		t.Skip(err)
	}
	t.Setenv(store.RunEnv, filepath.Join(t.TempDir(), "run"))
	dir, err := os.MkdirTemp(root, "levee-t")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	m := &manager{is: idle(), has: []session.Session{{What: "an SSH session",
		Local:  netip.MustParseAddrPort("192.0.2.1:22"),
		Remote: netip.MustParseAddrPort("192.0.2.7:40000")}}}
	e, file, _ := wrapping(t, m, small)
	m.is["ControlGroup"] = "/" + filepath.Base(dir)
	err = e.wrapUnit(t.Context(), "ssh.service", file, false, false)
	if err == nil || !strings.Contains(err.Error(), "an SSH session, from 192.0.2.7:40000") ||
		!strings.Contains(err.Error(), "--force") {
		t.Errorf("a policy that cuts a session: %v", err)
	}
	if _, err := os.Stat(e.dropInPath("ssh.service")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its drop-in is left: %v", err)
	}
	const held = "set bad = dynamic(max 9)\ndrop from bad\npass tcp port 22\ndefault drop\n"
	for _, tt := range []struct {
		policy string
		force  bool
		says   string
	}{
		{held, false, ""}, // no policy yet: the set is empty
		{small, true, ""},
		{held, false, ""},
		{held + "# \n", false, "an SSH session"}, // with an entry
		{"pass tcp port 22\ndefault drop\n", false, ""},
	} {
		if tt.says != "" {
			set, err := sets.Open(t.Context(), store.Service("ssh.service"), "bad")
			if err != nil {
				t.Fatal(err)
			}
			if err := set.Add(t.Context(), sets.Entry{Prefix: netip.MustParsePrefix(
				"192.0.2.7/32")}); err != nil {
				t.Fatal(err)
			}
			if err := set.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := os.WriteFile(file, []byte(tt.policy), 0o600); err != nil {
			t.Fatal(err)
		}
		err := e.wrapUnit(t.Context(), "ssh.service", file, false, tt.force)
		if (err == nil) != (tt.says == "") ||
			err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q, force %v: %v", tt.policy, tt.force, err)
		}
	}
	if err := e.removeUnit(t.Context(), "ssh.service"); err != nil {
		t.Error(err)
	}
}

// TestTrialsOfServicesAreRefused, with what to do in their place.
func TestTrialsOfServicesAreRefused(t *testing.T) {
	e, file, _ := wrapping(t, &manager{is: idle()}, small)
	for _, make := range []func(*env) *cobra.Command{newUnit, newContainer, newSockets} {
		for _, flag := range []string{"--confirm=60s", "--shadow=" + file} {
			cmd := make(e)
			err := cmd.ParseFlags([]string{"web", file, flag})
			if err == nil || !strings.Contains(err.Error(), "count in the place of drop") {
				t.Errorf("%s %s: %v", cmd.Name(), flag, err)
			}
		}
	}
}

func TestNamesOfUnits(t *testing.T) {
	for name, want := range map[string]string{
		"nginx": "nginx.service", "nginx.service": "nginx.service", "a@b.service": "a@b.service",
		"system-x\\x2dy.service": "system-x\\x2dy.service",
		"a@.service":             "", "x.socket": "", "../x.service": "", "": "", "a b.service": "",
	} {
		if got, err := unitName(name); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", name, got, err, want)
		}
	}
}
