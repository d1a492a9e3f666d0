package around

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"levee/internal/filter/sender"
	"levee/internal/lang/policy"
)

// TestAUserWhoIsGoneTookGroupsAlong: where the machine did not know one user of a policy, its
// groups and containers were nobody either, so that rules that drop them let them go.
func TestAUserWhoIsGoneTookGroupsAlong(t *testing.T) {
	n, err := sendersOf(&policy.Senders{Users: []string{"levee-no-one", "root"},
		Groups: []string{"levee-none", "root"}, Containers: []string{"levee-box"}})
	if err == nil {
		t.Error("nothing is said of who is not there")
	}
	if want := []uint32{sender.NoID, 0}; !slices.Equal(n.Users, want) ||
		!slices.Equal(n.Groups, want) || len(n.Containers) != 1 {
		t.Errorf("%+v", *n)
	}
}

// TestWhoCannotBeLookedUpWasRoot: a file that cannot be read made a name stand for uid 0.
func TestWhoCannotBeLookedUpWasRoot(t *testing.T) {
	refused := errors.New("too many open files")
	all, err := numbersOf("user", []string{"postfix"},
		func(string) (uint32, error) { return 0, refused })
	if !errors.Is(err, refused) || !slices.Equal(all, []uint32{sender.NoID}) {
		t.Errorf("%d, %v", all, err)
	}
}

// TestUpSaidNothingOfAUnitThatIsNotThere: a rule about an alias, or about a unit or a container
// that the machine does not have, held for nothing, and nobody said so.
func TestUpSaidNothingOfAUnitThatIsNotThere(t *testing.T) {
	root := t.TempDir()
	units := filepath.Join(root, "usr/lib/systemd/system")
	if err := os.MkdirAll(units, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(units, "ssh.service"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("ssh.service", filepath.Join(units, "sshd.service")); err != nil {
		t.Fatal(err)
	}
	notes := nobody(root, &policy.Senders{Services: []string{"ssh.service", "sshd.service",
		"sshh.service"}, Containers: []string{"web"}})
	for i, want := range []string{`write service "ssh.service"`, "no unit sshh.service",
		"no container web"} {
		if i >= len(notes) || !strings.Contains(notes[i], want) {
			t.Errorf("no %q in %q", want, notes)
		}
	}
	if len(notes) != 3 {
		t.Errorf("%q", notes)
	}
}

// TestAServiceOfInstancesIsNobody: postfix.service of Debian 12 has no process, and what sends mail
// is postfix@-.service. Rules that named the first held for nothing, and nobody said so.
func TestAServiceOfInstancesIsNobody(t *testing.T) {
	root := t.TempDir()
	units := filepath.Join(root, "usr/lib/systemd/system")
	cgroups := filepath.Join(root, "sys/fs/cgroup/system.slice")
	for _, dir := range []string{units, filepath.Join(cgroups, "ssh.service"),
		filepath.Join(cgroups, "system-postfix.slice/postfix@-.service"),
		filepath.Join(cgroups, `system-open\x2dvpn.slice/open-vpn@home.service`)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"postfix.service", "postfix@.service", "ssh.service",
		"ssh@.service", "open-vpn.service"} {
		if err := os.WriteFile(filepath.Join(units, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ names, want []string }{
		{[]string{"postfix.service", "ssh.service"}, []string{`write service "postfix@-.service"`}},
		{[]string{"open-vpn.service"}, []string{`write service "open-vpn@home.service"`}},
		{[]string{"postfix.service", "postfix@-.service"}, nil},
	} {
		notes := nobody(root, &policy.Senders{Services: c.names})
		if len(notes) != len(c.want) || len(notes) > 0 && !strings.Contains(notes[0], c.want[0]) {
			t.Errorf("%q: %q", c.names, notes)
		}
	}
}
