package dataplane

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/state"
)

// TestMembersOfTheGroupReadTheState without any capability, and can do no more: not one lock, link
// or map opens for them in a way that changes anything. So it is where root's umask is 077.
func TestMembersOfTheGroupReadTheState(t *testing.T) {
	n := newTestNet(t)
	g, err := user.LookupGroupId("1") // every machine has it, under one name or another
	if err != nil {
		t.Skipf("no group 1: %v", err)
	}
	was := store.Readers
	store.Readers = &store.Group{Name: g.Name}
	defer func() { store.Readers = was }()
	makeWay(t, os.Getenv(store.RunEnv))
	defer unix.Umask(unix.Umask(0o077))
	if err := bringPolicy(t, "lv0", abuserPolicy(10), 0); err != nil {
		t.Fatal(err)
	}
	s := must2(sets.Open(t.Context(), "lv0", "abusers"))
	defer s.Close()
	if err := s.Add(t.Context(), entriesOf("192.0.2.7/32")...); err != nil {
		t.Fatal(err)
	}
	n.from(t, "192.0.2.7")
	for _, replaced := range []bool{false, true} {
		if replaced {
			if err := s.Replace(t.Context(), entriesOf("192.0.2.8/32")); err != nil {
				t.Fatal(err)
			}
		}
		out := string(asReader(t, g.Gid, order{Do: "read", Dev: "lv0", Label: "abuser"}))
		want := "lv0 /etc/test.levee 1\n192.0.2.7 9m"
		if replaced {
			want = "lv0 /etc/test.levee 1\n192.0.2.8 9m"
		}
		if !strings.HasPrefix(out, want) {
			t.Errorf("a reader sees %q, want %q...", out, want)
		}
	}
	for _, path := range []string{"lock", "state/*/sets", "bpf/*/link"} {
		files := must2(filepath.Glob(filepath.Join(os.Getenv(store.RunEnv), path)))
		if len(files) == 0 {
			t.Errorf("no %s", path)
		}
		for _, f := range files {
			if mode := must2(os.Stat(f)).Mode().Perm(); mode&0o077 != 0 {
				t.Errorf("%s has mode %o: who can open it can lock or detach it", f, mode)
			}
		}
	}
	files := must2(filepath.Glob(filepath.Join(os.Getenv(store.RunEnv), "bpf/*/*/*")))
	for _, f := range files {
		if i := must2(os.Stat(f)); i.Mode().Perm()&0o027 != 0 && !i.IsDir() {
			t.Errorf("%s has mode %o: readers can write it", f, i.Mode().Perm())
		}
	}
}

// everything is a policy with all that has a memory, or a program beside the one that judges.
const everything = `
set abusers = dynamic(max 10, lease 10m)
set services = dynamic(of services, max 10)
fragments track
drop from abusers as "abuser"
limit tcp syn port 80 rate 10/s by source as "limited"
cookie tcp port 80 above 100kpps
pass established
drop tcp port 81 proven
divert tcp from abusers port 22
log tcp port 23 as "telnet"
default pass
`

// TestMembersOfTheGroupOpenNothingThatCanBeRunOrHasKeys: programs were pinned for readers, and
// whoever has opened one may run it on packets that he makes up: a leaving ACK opened a connection,
// a budget was used up, and live frames were delivered. Memories have the keys of their hashes, and
// the numbers that half-open connections have to prove.
func TestMembersOfTheGroupOpenNothingThatCanBeRunOrHasKeys(t *testing.T) {
	n := newTestNet(t)
	g, err := user.LookupGroupId("1")
	if err != nil {
		t.Skipf("no group 1: %v", err)
	}
	was := store.Readers
	store.Readers = &store.Group{Name: g.Name}
	defer func() { store.Readers = was }()
	makeWay(t, os.Getenv(store.RunEnv))
	for _, mode := range append(tcModes(t), store.XDPGeneric) {
		n.run(t, string(mode), func(t *testing.T) {
			defer Down(t.Context(), "lv0")
			if err := bringPolicyAt(t, "lv0", mode, everything, 0); err != nil {
				t.Fatal(err)
			}
			shadowUp(t, everything, "lv0")
			if err := bringPolicyAt(t, "lv0", mode, everything, time.Hour); err != nil {
				t.Fatal(err) // with a deadline, and its predecessor
			}
			for _, within := range places(t) {
				touchAs(t, g.Gid, within, "abusers", "counters", "services", "set_abusers",
					"set_services")
			}
			touchAs(t, "65534", nil) // another user
			told := string(asReader(t, g.Gid, order{Do: "memories", Readers: g.Name}))
			if !strings.HasSuffix(told, " 0 true true true true\n") ||
				!strings.HasPrefix(told, "[{") {
				t.Errorf("a reader is told %q", told)
			}
		})
	}
}

// places are the namespaces in which a reader is tried, as commands to run him by: the host's, and
// where he may make a user namespace, one of users, processes and mounts in which he is root.
func places(t *testing.T) [][]string {
	out := [][]string{nil}
	container := []string{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount",
		"--mount-proc"}
	nobody := []string{"--reuid=65534", "--regid=65534", "--clear-groups"}
	try := slices.Concat(nobody, container, []string{"true"})
	if err := exec.Command("setpriv", try...).Run(); err != nil {
		t.Logf("no user namespaces for users: %v", err)
		return out
	}
	return append(out, container)
}

// touchAs has a member of a group touch what there is, who opens what opens names.
func touchAs(t *testing.T, gid string, within []string, opens ...string) {
	t.Helper()
	var opened []string
	for path := range strings.FieldsSeq(string(asReader(t, gid, order{Do: "touch", Dev: "lv0"},
		within...))) {
		opened = append(opened, filepath.Base(path))
	}
	slices.Sort(opened)
	if opened = slices.Compact(opened); !slices.Equal(opened, opens) {
		t.Errorf("%v: a user of group %s opens %q, want %q", within, gid, opened, opens)
	}
}

// TestReadersSeeTheStateWhileItIsReplaced: what a member of the group read was told to be gone, or
// counted twice, where a policy or the contents of a set took the place of others meanwhile.
func TestReadersSeeTheStateWhileItIsReplaced(t *testing.T) {
	n := newTestNet(t)
	g, err := user.LookupGroupId("1")
	if err != nil {
		t.Skipf("no group 1: %v", err)
	}
	was := store.Readers
	store.Readers = &store.Group{Name: g.Name}
	defer func() { store.Readers = was }()
	makeWay(t, os.Getenv(store.RunEnv))
	bring := func(i int) {
		t.Helper()
		// another max: another memory, and another place for it
		if err := bringPolicy(t, "lv0", abuserPolicy(10+i%2), 0); err != nil {
			t.Fatal(err)
		}
	}
	bring(0)
	s := must2(sets.Open(t.Context(), "lv0", "abusers"))
	if err := s.Add(t.Context(), entriesOf("192.0.2.7/32")...); err != nil {
		t.Fatal(err)
	}
	n.from(t, "192.0.2.7")
	cmd := readerCommand(t, g.Gid, order{Do: "read on", Dev: "lv0", Label: "abuser"})
	out := must2(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	if lines.Text() != "reading" {
		t.Fatalf("a reader says %q", lines.Text())
	}
	for i := range 8 {
		bring(i + 1)
		for range 5 {
			if err := s.Replace(t.Context(), entriesOf("192.0.2.7/32")); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Close()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if lines.Scan() {
		t.Errorf("a reader says %q", lines.Text())
	}
	_ = cmd.Wait()
}

// readOnce looks as a reader does, and says what is not as it is all the time.
func readOnce(ctx context.Context, dev, label string) error {
	all, _, err := inspect.Status(ctx, false)
	if err != nil {
		return err
	}
	if len(all) != 1 || packets(&all[0], label) != 1 || all[0].Sets[0].Entries != 1 {
		return fmt.Errorf("status says %+v", all)
	}
	sets, err := sets.List(ctx, dev, "abusers")
	if err != nil {
		return err
	}
	if len(sets) != 1 || len(sets[0].Entries) != 1 {
		return fmt.Errorf("the set holds %+v", sets)
	}
	return nil
}

// TestWhereReadingIsWritingNothingIsForReaders: a program of somebody without capabilities wrote a
// map that he had opened to read; and where he could pin it in a bpf file system that is open to
// all, as they are without mode=, his pin opened to write.
func TestWhereReadingIsWritingNothingIsForReaders(t *testing.T) {
	n := newTestNet(t)
	g, err := user.LookupGroupId("1")
	if err != nil {
		t.Skipf("no group 1: %v", err)
	}
	wasReaders, was := store.Readers, store.ReadersWrite
	store.Readers = &store.Group{Name: g.Name}
	defer func() { store.Readers, store.ReadersWrite = wasReaders, was }()
	makeWay(t, os.Getenv(store.RunEnv))
	for _, c := range []struct {
		name                string
		at, after, replaced bool // it is so at up, and when root looks, or a set is replaced, then
		opens               []string
	}{
		{"never", false, false, false, []string{"abusers", "counters", "set_abusers"}},
		{"at up", true, true, true, nil},
		{"later", false, true, true, nil},
		{"when a set is replaced", false, false, true, []string{"counters", "set_abusers"}},
	} {
		n.run(t, c.name, func(t *testing.T) {
			defer Down(t.Context(), "lv0")
			store.ReadersWrite = func() bool { return c.at }
			if err := bringPolicy(t, "lv0", abuserPolicy(10), 0); err != nil {
				t.Fatal(err)
			}
			store.ReadersWrite = func() bool { return c.after }
			if _, _, err := inspect.Status(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			store.ReadersWrite = func() bool { return c.replaced }
			s := must2(sets.Open(t.Context(), "lv0", "abusers"))
			defer s.Close()
			if err := s.Replace(t.Context(), entriesOf("192.0.2.7/32")); err != nil {
				t.Fatal(err)
			}
			touchAs(t, g.Gid, nil, c.opens...)
		})
	}
	if store.PinMode(state.HoldsFlows, false) != store.SecretMode ||
		store.PinMode("of tomorrow", false) != store.SecretMode {
		t.Error("readers open what holds no counts")
	}
}

// makeWay lets everybody go to a path in a directory of a test.
func makeWay(t *testing.T, path string) {
	t.Helper()
	for dir := filepath.Dir(path); len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// asReader runs an order without capabilities, as a member of the group.
func asReader(t *testing.T, gid string, o order, wrapper ...string) []byte {
	t.Helper()
	cmd := readerCommand(t, gid, o, wrapper...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr.Bytes())
	}
	return out
}

// readerCommand is a command that runs an order so; the wrapper runs without capabilities, too.
func readerCommand(t *testing.T, gid string, o order, wrapper ...string) *exec.Cmd {
	t.Helper()
	// The test binary lies where only root may go.
	self := filepath.Join(t.TempDir(), "reader")
	makeWay(t, self)
	if err := os.WriteFile(self, must2(os.ReadFile("/proc/self/exe")), 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat([]string{"--reuid=65534", "--regid=65534", "--groups=" + gid,
		"--inh-caps=-all", "--bounding-set=-all"}, wrapper, []string{self})
	cmd := exec.Command("setpriv", args...)
	cmd.Env = append(os.Environ(), childEnv+"="+string(b))
	return cmd
}

// TestThePinOfASetIsThatOfItsMemory whatever step a replace of its contents ends at: without
// CAP_SYS_ADMIN nothing else leads to the memory.
func TestThePinOfASetIsThatOfItsMemory(t *testing.T) {
	newTestNet(t)
	if err := bringPolicy(t, "lv0", abuserPolicy(10), 0); err != nil {
		t.Fatal(err)
	}
	for i, at := range []string{"put", "repin", "put", "repin", "repin", ""} {
		s := must2(sets.Open(stepping(t.Context(), failing(at)), "lv0", "abusers"))
		err := s.Replace(t.Context(), entriesOf(fmt.Sprintf("192.0.2.%d/32", i)))
		if (err != nil) != (at == "put") {
			t.Errorf("step %s: %v", at, err)
		}
		var id uint32
		place := s.Maps[0].Places[0]
		if err := place.Outer.Lookup(place.Key, &id); err != nil {
			t.Fatal(err)
		}
		pins := 0
		for _, dir := range []string{sets.PinMemory, sets.PinNext} {
			if m := must2(place.Pinned(dir, id)); m != nil {
				pins++
				m.Close()
			}
		}
		if pins != 1 {
			t.Errorf("after step %s the memory has %d pins", at, pins)
		}
		s.Close()
	}
	if got := listed(t, "lv0"); got != "192.0.2.5/32" {
		t.Errorf("it holds %s", got)
	}
}
