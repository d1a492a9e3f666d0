package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/host/cgroup"
	"levee/internal/lang/resolve"
)

// childEnv has this test binary be a service, or a command that kills itself.
const childEnv = "LEVEE_TEST_SERVICE"

// removeAll removes all services.
func removeAll(s *store.Store) error {
	keys, err := s.Keys()
	for _, key := range keys {
		err = errors.Join(err, remove(s, strings.ReplaceAll(key, ",", ".")))
	}
	return err
}

// options are those of a policy of the service "test.service".
func options(dir, text string) Options {
	return Options{Name: "test.service", CGroup: dir, PolicyPath: "/etc/test.levee",
		Source: []byte(text)}
}

func putFrom(ctx context.Context, o Options) (*Report, error) {
	p, ds := resolve.Parse("test.levee", o.Source, nil)
	if ds.HasErrors() {
		return nil, ds.Err()
	}
	return Put(ctx, o, dataplane.Compiler(p))
}

func put(t *testing.T, o Options) *Report {
	t.Helper()
	rep, err := putFrom(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// status is that of the one service.
func status(t *testing.T) *Status {
	t.Helper()
	all, err := All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		t.Fatalf("%d services have a policy", len(all))
	}
	return &all[0]
}

// counted returns the packets that the rule of a label has counted.
func counted(t *testing.T, label string) uint64 {
	t.Helper()
	for _, c := range status(t).Counters {
		if c.Label == label || label == "default" && c.Reason == label && c.ID == label {
			return c.Packets
		}
	}
	t.Fatalf("no rule is labelled %q", label)
	return 0
}

// awaitCount waits until a rule has counted n packets.
func awaitCount(t *testing.T, label string, n uint64) {
	t.Helper()
	await.OK(t, func() error {
		if got := counted(t, label); got != n {
			return fmt.Errorf("%q counts %d packets, want %d", label, got, n)
		}
		return nil
	})
}

const both = `set bad = dynamic(max 64)
drop from bad as "bad"
pass udp port 8002 as "open"
pass tcp port 8001 as "web"
pass established as "answers"
out drop udp port 9 as "discard"
out drop tcp port 7 as "echo"
default drop
`

// TestAServiceIsJudgedAtItsCGroup: what arrives, what leaves, connections, sets, replaces, and a
// service that begins again.
func TestAServiceIsJudgedAtItsCGroup(t *testing.T) {
	enter(t)
	s := begin(t, func(dir string) { put(t, options(dir, both)) })
	if st := status(t); !st.InForce || st.Name != "test.service" || st.Mode != CGroup {
		t.Errorf("status tells %+v", st)
	}
	if got := ask("tcp", "127.0.0.1:8001"); got != "ok" {
		t.Errorf("a visitor gets %q", got)
	}
	datagram(t, "127.0.0.1", 8002)
	awaitCount(t, "open", 1)
	datagram(t, "127.0.0.1", 8003)
	awaitCount(t, "default", 1)
	if got := s.send("udp", "127.0.0.1:9"); !strings.Contains(got, "not permitted") {
		t.Errorf("what the policy drops: the service sends it and sees %q", got)
	}
	awaitCount(t, "discard", 1)
	other, err := net.Listen("tcp4", "127.0.0.1:8010")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go func() {
		if c, err := other.Accept(); err == nil {
			_, _ = io.Copy(c, c)
		}
	}()
	if got := s.send("tcp", "127.0.0.1:8010"); got != "ok" {
		t.Errorf("a connection that the service begins: %q", got)
	}
	if counted(t, "answers") == 0 {
		t.Error("no answer to what the service began was known")
	}

	dev := store.Service("test.service")
	entry := sets.Entry{Prefix: netip.MustParsePrefix("127.0.0.2/32"), Lease: sets.Forever}
	if _, err := sets.Add(t.Context(), dev, "bad", []sets.Entry{entry}); err != nil {
		t.Fatal(err)
	}
	datagram(t, "127.0.0.2", 8002)
	awaitCount(t, "bad", 1)

	// A replace: counters and entries go on. Packets of ports change hands.
	rep := put(t, options(s.dir, strings.Replace(both, "pass udp port 8002",
		"pass udp port 8003", 1)))
	if rep.Generation != 2 || rep.Again {
		t.Errorf("the replace says %+v", rep)
	}
	datagram(t, "127.0.0.2", 8003)
	awaitCount(t, "bad", 2)
	datagram(t, "127.0.0.1", 8003)
	awaitCount(t, "open", 2)

	// The service ends, and its cgroup with it; what it has counted stays.
	s.end()
	await.True(t, "the kernel takes the policy off a cgroup that is gone",
		func() bool { return !status(t).InForce })
	awaitCount(t, "open", 2)
	again := begin(t, func(dir string) {
		rep := put(t, options(dir, strings.Replace(both, "pass udp port 8002",
			"pass udp port 8003", 1)))
		if !rep.Again {
			t.Errorf("the same policy again is %+v", rep)
		}
	})
	datagram(t, "127.0.0.1", 8003)
	awaitCount(t, "open", 3)
	if got := again.send("udp", "127.0.0.1:9"); !strings.Contains(got, "not permitted") {
		t.Errorf("the service sends what the policy drops: %q", got)
	}
	if err := Remove(t.Context(), "test.service"); err != nil {
		t.Fatal(err)
	}
	if got := again.send("udp", "127.0.0.1:9"); got != "ok" {
		t.Errorf("without a policy: %q", got)
	}
	if all, err := All(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("after the removal there is %v, %v", all, err)
	}
	if dir, _ := store.ServicesDirectory(); exists(dir) {
		t.Errorf("%s is left", dir)
	}
	err = Remove(t.Context(), "test.service")
	if !errors.As(err, new(*generation.NoServiceError)) {
		t.Errorf("what is not there is removed: %v", err)
	}
}

// TestAServiceKnowsTheNamesOfQueries: a program at a cgroup reads where the packet ends from what
// the kernel has noted for it, which BPF_PROG_RUN does not do before Linux 6.18.
func TestAServiceKnowsTheNamesOfQueries(t *testing.T) {
	enter(t)
	begin(t, func(dir string) {
		put(t, options(dir, `drop udp port 8002 dns name "evil.example" as "evil"
pass udp port 8002 dns query as "query"
default drop
`))
	})
	for _, name := range []string{"\x04evil\x07example", "\x04good\x07example"} {
		c, err := net.Dial("udp4", "127.0.0.1:8002")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		head := "\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
		if _, err := c.Write([]byte(head + name + "\x00\x00\x01\x00\x01")); err != nil {
			t.Fatal(err)
		}
	}
	awaitCount(t, "evil", 1)
	awaitCount(t, "query", 1)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestWhatIsDroppedOpensNoConnection: the program that notes connections stands behind the one that
// judges what leaves, and runs all the same.
func TestWhatIsDroppedOpensNoConnection(t *testing.T) {
	enter(t)
	// The second policy adds what judges what leaves: it has to come before what notes it.
	const first = "pass established as \"answers\"\ndefault drop\n"
	s := begin(t, func(dir string) { put(t, options(dir, first)) })
	put(t, options(s.dir, "out drop udp port 9 as \"discard\"\n"+first))
	answer, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	if got := s.send("udp", "127.0.0.1:9"); !strings.Contains(got, "not permitted") {
		t.Fatalf("the service sends and sees %q", got)
	}
	before := status(t)
	if c := before.Connections; c == nil || c.Live != 0 {
		t.Errorf("connections after a packet that was dropped: %+v", c)
	}
	if got := s.send("udp", "127.0.0.1:10"); got != "ok" {
		t.Fatal(got)
	}
	if c := status(t).Connections; c == nil || c.Live != 1 {
		t.Errorf("connections after a packet that left: %+v", c)
	}
}

// TestAServiceAnswersAndBeginsNothing: whom it serves it answers, over each protocol.
func TestAServiceAnswersAndBeginsNothing(t *testing.T) {
	enter(t)
	s := begin(t, func(dir string) {
		put(t, options(dir, "default pass\nout pass established as \"answers\"\n"+
			"out default drop\n"))
	})
	if got := ask("tcp", "127.0.0.1:8001"); got != "ok" {
		t.Errorf("a visitor gets %q", got)
	}
	if counted(t, "answers") == 0 {
		t.Error("no packet of the service was an answer")
	}
	if got := s.send("udp", "127.0.0.1:9"); !strings.Contains(got, "not permitted") {
		t.Errorf("the service begins, and sees %q", got)
	}
}

// steps are the names of the steps of a Put.
func steps(t *testing.T, o Options) (all []string) {
	t.Helper()
	ctx := context.WithValue(t.Context(), store.StepsKey{}, store.Steps(func(name string) error {
		all = append(all, name)
		return nil
	}))
	if _, err := putFrom(ctx, o); err != nil {
		t.Fatal(err)
	}
	return all
}

var errStep = errors.New("failed")

// dieAt is a child that puts a policy in force and kills itself at a step: "N DIRECTORY".
func dieAt(order string) {
	var at int
	var dir string
	if _, err := fmt.Sscanf(order, "%d %s", &at, &dir); err != nil {
		panic(err)
	}
	n := 0
	ctx := context.WithValue(context.Background(), store.StepsKey{},
		store.Steps(func(string) error {
			if n == at {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			n++
			return nil
		}))
	if _, err := putFrom(ctx, options(dir, newer)); err != nil {
		panic(err)
	}
}

const (
	older = "count udp port 8002 as \"one\"\nout drop udp port 9 as \"out\"\ndefault pass\n"
	newer = "count udp port 8002 as \"one\"\nout drop udp port 10 as \"out\"\n" +
		"pass udp port 8003\ndefault pass\n"
)

// TestAServiceHasOneWholePolicyAtAnyStep: a replace that fails, or is killed, at any step leaves
// the policy before or the one after, with its counters; the next command leaves nothing else.
func TestAServiceHasOneWholePolicyAtAnyStep(t *testing.T) {
	enter(t)
	s := begin(t, func(dir string) { put(t, options(dir, older)) })
	all := steps(t, options(s.dir, newer))
	var want uint64
	for i, step := range all {
		for _, kill := range []bool{false, true} {
			if kill != (i%2 == 0) && !strings.HasPrefix(step, "swap") {
				continue // one of the two, where no packet is judged otherwise
			}
			put(t, options(s.dir, older))
			before := status(t)
			if kill {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", childEnv, i, s.dir))
				if err := cmd.Run(); err == nil {
					t.Fatalf("a command that was to die at %s has not", step)
				}
			} else {
				n := 0
				ctx := context.WithValue(t.Context(), store.StepsKey{},
					store.Steps(func(string) error {
						if n++; n == i+1 {
							return errStep
						}
						return nil
					}))
				if _, err := putFrom(ctx, options(s.dir, newer)); !errors.Is(err, errStep) {
					t.Fatalf("step %s: %v", step, err)
				}
			}
			what := fmt.Sprintf("step %d (%s), kill %v", i, step, kill)
			st := status(t)
			if !st.InForce || st.Program.ID != before.Program.ID && st.Hash == before.Hash {
				t.Errorf("%s: in force %v, program %d of %s, before %d", what, st.InForce,
					st.Program.ID, st.Hash, before.Program.ID)
			}
			datagram(t, "127.0.0.1", 8002)
			want++
			awaitCount(t, "one", want)
			nine, ten := s.send("udp", "127.0.0.1:9"), s.send("udp", "127.0.0.1:10")
			if (nine == "ok") == (ten == "ok") {
				t.Errorf("%s: the service sends to port 9 %q, to port 10 %q", what, nine, ten)
			}
			put(t, options(s.dir, newer))
			if got := s.send("udp", "127.0.0.1:10"); got == "ok" {
				t.Errorf("%s: the next command: %q", what, got)
			}
			if pins, err := filepath.Glob(pinsOf(t) + "/[0-9]*"); err != nil || len(pins) != 1 {
				t.Errorf("%s: pins %v, %v", what, pins, err)
			}
		}
	}
	t.Log("steps:", all)
}

func pinsOf(t *testing.T) string {
	t.Helper()
	dir, err := store.ServicesDirectory()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "bpf", store.ServiceKey("test.service"))
}

// TestAFailedStartHadNoPolicyForWhatCameAfter: what systemd runs of a unit behind a command that
// has failed was in the cgroup without a policy. A cgroup that is shut takes and sends nothing,
// also where its levee was killed, until there is a policy.
func TestAFailedStartHadNoPolicyForWhatCameAfter(t *testing.T) {
	enter(t)
	shut := func(dir string) {
		for range 100 { // a start, and those that are tried then: the kernel takes 64 programs
			if err := Shut(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := begin(t, shut)
	if got := s.send("udp", "127.0.0.1:9"); got == "ok" {
		t.Error("it sends without a policy")
	}
	if _, err := net.DialTimeout("tcp", "127.0.0.1:8001", 100*time.Millisecond); err == nil {
		t.Error("it takes a connection without a policy")
	}
	put(t, options(s.dir, older))
	if nine, ten := s.send("udp", "127.0.0.1:9"), s.send("udp", "127.0.0.1:10"); nine == "ok" ||
		ten != "ok" {
		t.Errorf("with its policy it sends to port 9 %q, to port 10 %q", nine, ten)
	}
	shut(s.dir)
	put(t, options(s.dir, older)) // the same again
	if ten := s.send("udp", "127.0.0.1:10"); ten != "ok" {
		t.Errorf("after the same policy again: %q", ten)
	}
}

// TestAnotherProgramAboveIsNamed: where one at a cgroup above allows no other, the error says so.
func TestAnotherProgramAboveIsNamed(t *testing.T) {
	enter(t)
	begin(t, func(dir string) {
		c, err := openCGroup(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		at := ebpf.AttachCGroupInetIngress
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupSKB, AttachType: at,
			License:      "Dual BSD/GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
		if err != nil {
			t.Fatal(err)
		}
		defer prog.Close()
		err = link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(c.dir.Fd()),
			Program: prog, Attach: at})
		if err != nil {
			t.Fatal(err)
		}
		below := filepath.Join(dir, "below")
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(below)
		if err := Shut(below); err == nil || !strings.Contains(err.Error(), "allows no other") {
			t.Errorf("beside it: %v", err)
		}
	})
}

// TestARenamedContainerHadTwoPolicies: given a policy under its new name it was judged by that of
// the old one, too.
func TestARenamedContainerHadTwoPolicies(t *testing.T) {
	enter(t)
	s := begin(t, func(dir string) { put(t, options(dir, older)) })
	again := options(s.dir, newer)
	again.Name = "container:renamed"
	_, err := putFrom(t.Context(), again)
	if err == nil || !strings.Contains(err.Error(), "the policy of test.service") {
		t.Fatalf("a second policy at the cgroup: %v", err)
	}
	if nine, ten := s.send("udp", "127.0.0.1:9"), s.send("udp", "127.0.0.1:10"); nine == "ok" ||
		ten != "ok" {
		t.Errorf("it sends to port 9 %q, to port 10 %q", nine, ten)
	}
	all, err := All(t.Context())
	if err != nil || len(all) != 1 {
		t.Errorf("services %v, %v", all, err)
	}
	if err := Remove(t.Context(), "test.service"); err != nil {
		t.Fatal(err)
	}
	if _, err := putFrom(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	// Another container under the old name, whose policy would leave this one.
	other := again
	other.CGroup = filepath.Join(s.dir, "other")
	if err := os.Mkdir(other.CGroup, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(other.CGroup)
	if _, err := putFrom(t.Context(), other); !errors.Is(err, errElsewhere) {
		t.Errorf("the policy goes to another cgroup: %v", err)
	}
	if nine, ten := s.send("udp", "127.0.0.1:9"), s.send("udp", "127.0.0.1:10"); nine != "ok" ||
		ten == "ok" {
		t.Errorf("under its new name it sends to port 9 %q, to port 10 %q", nine, ten)
	}
	if err := Remove(t.Context(), again.Name); err != nil {
		t.Fatal(err)
	}
}

// TestSocketsOfAnOldRunHeldTheNextUp: a socket that outlives its process, as of a connection of
// which the peer says nothing more, keeps the cgroup that systemd has removed in the kernel, and
// the policy at it. The next run of the service is in another one, and was refused its policy.
func TestSocketsOfAnOldRunHeldTheNextUp(t *testing.T) {
	enter(t)
	s := begin(t, func(dir string) { put(t, options(dir, older)) })
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	// The process goes elsewhere; its sockets are still of the cgroup.
	procs := filepath.Join(root, "cgroup.procs")
	if err := os.WriteFile(procs, fmt.Append(nil, s.cmd.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	if !status(t).InForce || !readerSees(t) {
		t.Error("the policy of a service that runs is not in force")
	}
	gone := func(string) bool { return true }
	if err := RemoveEnded(t.Context(), gone); err != nil || !status(t).InForce {
		t.Errorf("a policy in force was removed as one that has gone: %v", err)
	}
	await.True(t, "the cgroup is empty", func() bool { return os.Remove(s.dir) == nil })
	if status(t).InForce || readerSees(t) {
		t.Error("the policy of a service that has ended is in force while a socket is open")
	}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if readerSees(t) {
		t.Error("another cgroup of the name is taken for the one that had the policy")
	}
	if rep := put(t, options(s.dir, older)); !rep.Again {
		t.Errorf("the policy at the new cgroup is %+v", rep)
	}
	if !status(t).InForce || !readerSees(t) {
		t.Error("it is not in force")
	}
}

// readerSees tells whether a process that may only read takes the one policy for one in force.
func readerSees(t *testing.T) bool {
	t.Helper()
	var sees bool
	err := store.TransactServices(t.Context(), func(s *store.Store) error {
		return generation.EachService(s, func(a *attach.Attachment) (err error) {
			reader := *s
			reader.ReadOnly = true
			sees, err = inForce(&reader, nil, a)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return sees
}

// TestStatusOfAnotherMountNamespaceHadNoServices: what is kept is in the host's, and a process that
// has a /run of its own looked there first whether there is any.
func TestStatusOfAnotherMountNamespaceHadNoServices(t *testing.T) {
	enter(t)
	begin(t, func(dir string) { put(t, options(dir, older)) })
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and ends with it
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			above := filepath.Dir(os.Getenv(store.RunEnv))
			if err := unix.Mount("levee", above, "tmpfs", 0, ""); err != nil {
				return err
			}
			all, err := All(t.Context())
			if err == nil && (len(all) != 1 || !all[0].InForce) {
				err = fmt.Errorf("services %+v", all)
			}
			return err
		}()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
