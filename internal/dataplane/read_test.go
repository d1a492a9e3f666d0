package dataplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMembersOfTheGroupReadTheState without any capability, and can do no more: not one lock, link
// or map opens for them in a way that changes anything. So it is where root's umask is 077.
func TestMembersOfTheGroupReadTheState(t *testing.T) {
	n := newTestNet(t)
	g, err := user.LookupGroupId("1") // every machine has it, under one name or another
	if err != nil {
		t.Skipf("no group 1: %v", err)
	}
	was := readers
	readers = &group{name: g.Name}
	defer func() { readers = was }()
	makeWay(t, os.Getenv(RunEnv))
	defer unix.Umask(unix.Umask(0o077))
	if err := bringPolicy(t, "lv0", abuserPolicy(10), 0); err != nil {
		t.Fatal(err)
	}
	s := must2(OpenSet(t.Context(), "lv0", "abusers"))
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
		files := must2(filepath.Glob(filepath.Join(os.Getenv(RunEnv), path)))
		if len(files) == 0 {
			t.Errorf("no %s", path)
		}
		for _, f := range files {
			if mode := must2(os.Stat(f)).Mode().Perm(); mode&0o077 != 0 {
				t.Errorf("%s has mode %o: who can open it can lock or detach it", f, mode)
			}
		}
	}
	files := must2(filepath.Glob(filepath.Join(os.Getenv(RunEnv), "bpf/*/*/*")))
	for _, f := range files {
		if i := must2(os.Stat(f)); i.Mode().Perm()&0o027 != 0 && !i.IsDir() {
			t.Errorf("%s has mode %o: readers can write it", f, i.Mode().Perm())
		}
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
func asReader(t *testing.T, gid string, o order) []byte {
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
	cmd := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--groups="+gid,
		"--inh-caps=-all", "--bounding-set=-all", self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(b))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr.Bytes())
	}
	return out
}

// TestThePinOfASetIsThatOfItsMemory whatever step a replace of its contents ends at: without
// CAP_SYS_ADMIN nothing else leads to the memory.
func TestThePinOfASetIsThatOfItsMemory(t *testing.T) {
	newTestNet(t)
	if err := bringPolicy(t, "lv0", abuserPolicy(10), 0); err != nil {
		t.Fatal(err)
	}
	for i, at := range []string{"put", "repin", "put", "repin", "repin", ""} {
		testHook = func(step string) error {
			if step == at {
				return errors.New("injected")
			}
			return nil
		}
		s := must2(OpenSet(t.Context(), "lv0", "abusers"))
		err := s.Replace(t.Context(), entriesOf(fmt.Sprintf("192.0.2.%d/32", i)))
		testHook = nil
		if (err != nil) != (at == "put") {
			t.Errorf("step %s: %v", at, err)
		}
		var id uint32
		place := s.maps[0].places[0]
		if err := place.outer.Lookup(place.key, &id); err != nil {
			t.Fatal(err)
		}
		pins := 0
		for _, dir := range []string{pinMemory, pinNext} {
			if m := must2(place.pinned(dir, id)); m != nil {
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
