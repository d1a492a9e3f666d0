package dataplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"levee/internal/filter/codegen"
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
	was := readers
	readers = &group{name: g.Name}
	defer func() { readers = was }()
	makeWay(t, os.Getenv(RunEnv))
	for _, mode := range append(tcModes(t), XDPGeneric) {
		n.run(t, string(mode), func(t *testing.T) {
			defer Down(t.Context(), "lv0")
			if err := bringPolicyAt(t, "lv0", mode, everything, 0); err != nil {
				t.Fatal(err)
			}
			if err := bringPolicyAt(t, "lv0", mode, everything, time.Hour); err != nil {
				t.Fatal(err) // with a deadline, and its predecessor
			}
			if _, _, err := Status(t.Context(), false); err != nil { // who may, looks
				t.Fatal(err)
			}
			out := strings.Fields(string(asReader(t, g.Gid, order{Do: "touch", Readers: g.Name})))
			var opened []string
			for _, path := range out {
				opened = append(opened, filepath.Base(path))
			}
			slices.Sort(opened)
			want := []string{"abusers", "abusers", "counters", "counters", "services", "services",
				"set_abusers", "set_abusers", "set_services", "set_services"}
			if !slices.Equal(opened, want) {
				t.Errorf("a reader opens %q, want %q", opened, want)
			}
			told := string(asReader(t, g.Gid, order{Do: "memories", Readers: g.Name}))
			if !strings.HasSuffix(told, " 0 true true true true\n") ||
				!strings.HasPrefix(told, "[{") {
				t.Errorf("a reader is told %q", told)
			}
		})
	}
}

// TestWhereAnybodyLoadsProgramsNoMapIsForReaders: a program of somebody without capabilities wrote
// a map that he had opened to read.
func TestWhereAnybodyLoadsProgramsNoMapIsForReaders(t *testing.T) {
	for _, holds := range []codegen.Contents{codegen.Counters, codegen.DynamicSet,
		codegen.DynamicSets, codegen.Flows, codegen.Limit} {
		if mode := pinMode(holds, true); mode != secretMode {
			t.Errorf("%s: %o", holds, mode)
		}
	}
}

// touch tries what a hostile member of the group would with each file of the runtime directory. It
// prints what can be opened, and fails for what can be changed or run.
func touch(dir string) error {
	var did []error
	fail := func(path, what string) { did = append(did, fmt.Errorf("%s: %s", path, what)) }
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		for _, how := range []string{"x", ".x"} {
			if d.IsDir() && os.WriteFile(filepath.Join(path, how), nil, 0o600) == nil {
				fail(path, "a file can be made in it")
			}
		}
		if os.Rename(path, path+".moved") == nil || os.Remove(path) == nil {
			fail(path, "can be removed")
		}
		if f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err == nil {
			f.Close()
			fail(path, "can be written")
		}
		if d.IsDir() || !strings.HasPrefix(path, filepath.Join(dir, "bpf")) {
			return nil
		}
		for _, o := range []ebpf.LoadPinOptions{{}, {ReadOnly: true}, {WriteOnly: true}} {
			if p, err := ebpf.LoadPinnedProgram(path, &o); err == nil {
				p.Close()
				fail(path, "is a program that can be run")
			}
			if l, err := link.LoadPinnedLink(path, &o); err == nil {
				l.Close()
				fail(path, "is a link that can be detached")
			}
			m, err := ebpf.LoadPinnedMap(path, &o)
			if err != nil {
				continue
			}
			if !o.ReadOnly {
				fail(path, "is a map that can be written")
			}
			fmt.Println(path)
			value := make([]byte, m.ValueSize())
			if m.Put(uint32(0), value) == nil || m.Delete(uint32(0)) == nil || m.Freeze() == nil {
				fail(path, "can be changed")
			}
			for _, prot := range []int{unix.PROT_WRITE, unix.PROT_READ | unix.PROT_WRITE} {
				if _, err := unix.Mmap(m.FD(), 0, len(value), prot, unix.MAP_SHARED); err == nil {
					fail(path, "can be mapped to be written")
				}
			}
			m.Close()
		}
		return nil
	})
	return errors.Join(append(did, err)...)
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
