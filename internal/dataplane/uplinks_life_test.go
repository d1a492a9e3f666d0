package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/flow"
	"levee/internal/filter/state"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// memoriesOf are the ids of the memories of one kind, by interface.
func memoriesOf(t testing.TB, what codegen.Contents) map[string]uint32 {
	t.Helper()
	out := map[string]uint32{}
	err := store.Transact(context.Background(), func(s *store.Store) error {
		return generation.Sweep(s, "", func(a *attach.Attachment) error {
			g := a.Current()
			name, ok := codegen.MapOf(g.Maps, what)
			if !ok {
				return nil
			}
			m, err := s.OpenPinned(a.Key, g.Generation, name)
			if err != nil {
				return err
			}
			defer m.Close()
			id, err := store.MapID(m)
			out[g.Dev] = uint32(id)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// shared is an error if interfaces have more than one memory of a kind, or not all have it.
func shared(t testing.TB, what codegen.Contents, devs ...string) error {
	t.Helper()
	ids := memoriesOf(t, what)
	for _, dev := range devs {
		if ids[dev] == 0 || ids[dev] != ids[devs[0]] {
			return fmt.Errorf("%s: %v", what, ids)
		}
	}
	return nil
}

// session opens one to here by lv0, whose answers leave by up0.
func (n *twoUplinks) session(t testing.TB) ends {
	t.Helper()
	l := in(t, n.here, func() (net.Listener, error) { return net.Listen("tcp", uplinkHere+":22") })
	defer l.Close()
	far := in(t, n.peer, func() (net.Conn, error) {
		d := net.Dialer{Timeout: hangs,
			LocalAddr: &net.TCPAddr{IP: net.ParseIP(uplinkFar)}}
		return d.Dial("tcp", uplinkHere+":22")
	})
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close(); near.Close() })
	return ends{"asymmetric", far, near}
}

// rollBack ends the trial on an interface.
func rollBack(t testing.TB, dev string) error {
	for _, a := range must(inspect.Status(t.Context(), false)) {
		if a.Dev == dev {
			_, err := generation.RollBack(t.Context(), dev, a.Generation)
			return err
		}
	}
	return fmt.Errorf("no policy on %s", dev)
}

const everyMemory = `prove "a" udp port 27015 reply echo 4 bytes at 0 in request at 0
set attackers = dynamic(max 100, lease 10m)
fragments track
cookie tcp port 80
divert tcp port 9000 from attackers
drop tcp port 81 stream contains "evil"
pass established as "known"
greylist udp port 1012 after 100ms within 10s
limit udp not proven flow rate 1/s
pass tcp syn port 22
default drop
`

// quickMemories is a policy with memories whose programs are loaded in no time.
const quickMemories = `set attackers = dynamic(max 100, lease 10m)
fragments track
divert tcp port 9000 from attackers
limit udp rate 1/s
pass arp
pass tcp
default drop
`

var quickContents = []codegen.Contents{state.HoldsTrap, state.HoldsLimit, state.HoldsFragments,
	state.HoldsDiverted}

// TestEachUplinkHasMemoriesOfItsOwn: whatever a policy remembers is there once, after each command.
// Programs that know connections and proofs take long to load: with these, the steps are fewer.
func TestEachUplinkHasMemoriesOfItsOwn(t *testing.T) {
	n := newTwoUplinks(t)
	addVeth(t, "up2", "up3", n.peer)
	before := kernelObjects(t)
	three := append(slices.Clone(n.devs), "up2")
	for _, c := range []struct {
		text  string
		what  []codegen.Contents
		steps []string // nil: all
	}{
		{quickMemories, quickContents, nil},
		{everyMemory, inspect.SharedContents, []string{"up", "replace in another order", "trial",
			"roll back", "come later"}},
	} {
		group := func(devs ...string) func() error {
			return func() error { return n.bringOn(devs, devs, c.text, 0) }
		}
		trial := func() error { return n.bring(t, c.text, time.Hour) }
		each := func(do func(dev string) error) func() error {
			return func() error { return errors.Join(do("lv0"), do("up0")) }
		}
		var open *ends
		for _, step := range []struct {
			name string
			do   func() error
			devs []string // that share then
		}{
			{"up", group("lv0", "up0"), n.devs},
			{"replace", group("lv0", "up0"), n.devs},
			{"replace in another order", group("up0", "lv0"), n.devs},
			{"add", group("up2", "lv0", "up0"), three},
			{"remove", group("lv0", "up0"), n.devs},
			{"first trial", trial, n.devs},
			{"confirm", each(func(dev string) error {
				_, err := Confirm(context.Background(), dev)
				return err
			}), n.devs},
			{"trial", trial, n.devs},
			{"roll back", each(func(dev string) error { return rollBack(t, dev) }), n.devs},
			{"down", func() error {
				_, err := Down(context.Background(), "up2")
				return err
			}, n.devs},
			{"come later", func() error { // by --keep
				return n.bringOn([]string{"up2"}, n.devs, c.text, 0)
			}, three},
		} {
			if c.steps != nil && !slices.Contains(c.steps, step.name) {
				continue
			}
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			for _, what := range c.what {
				if err := shared(t, what, step.devs...); err != nil {
					t.Errorf("%s: %v", step.name, err)
				}
				ids := memoriesOf(t, what)
				if step.name == "remove" && ids["up2"] == ids["lv0"] {
					t.Errorf("who is left behind shares with who has left: %v", ids)
				}
			}
			if open == nil {
				s := n.session(t)
				open = &s
			}
			if err := open.says(); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
			n.session(t)
		}
		for _, dev := range three {
			if _, err := Down(context.Background(), dev); err != nil {
				t.Error(err)
			}
		}
	}
	await.OK(t, func() error { return nothingAdded(t, before) })
	runDirIsGone(t)
}

// TestAPolicyForOneOfTwoUplinksEndsSessions: an interface that gets another policy takes a copy of
// what is remembered along. Who stays keeps the memory, and neither sees what the other notes.
func TestAPolicyForOneOfTwoUplinksEndsSessions(t *testing.T) {
	n := newTwoUplinks(t)
	if err := n.bring(t, everyMemory, 0); err != nil {
		t.Fatal(err)
	}
	open := n.session(t)
	was := memoriesOf(t, state.HoldsFlows)["up0"]
	if err := n.bringOn([]string{"lv0"}, []string{"lv0"}, everyMemory+"#\n", 0); err != nil {
		t.Fatal(err)
	}
	for _, what := range inspect.SharedContents {
		ids := memoriesOf(t, what)
		if ids["lv0"] == ids["up0"] {
			t.Errorf("%s: %v", what, ids)
		}
	}
	if is := memoriesOf(t, state.HoldsFlows)["up0"]; is != was {
		t.Errorf("who stays has memory %d, had %d", is, was)
	}
	if err := open.says(); err != nil {
		t.Error(err)
	}
}

// TestWhoComesWhileAnInterfaceLeaves: its memory was copied as its program was made. Until that
// judged, who came was noted in the other one, and what he was answered opened a connection.
func TestWhoComesWhileAnInterfaceLeaves(t *testing.T) {
	const text = `connections max 16384
pass udp established as "known"
limit udp port 53 rate 10/d burst 4 as "limit"
pass udp port 53 as "asked"
default drop
`
	for _, trial := range []time.Duration{0, time.Hour} {
		t.Run(fmt.Sprint("trial of ", trial), func(t *testing.T) {
			n := newTwoUplinks(t)
			heard := passing(t)
			if err := n.bring(t, text, 0); err != nil {
				t.Fatal(err)
			}
			tx, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(tx)
			lv0, err := netlink.LinkByName("lv0")
			if err != nil {
				t.Fatal(err)
			}
			// A client's, of a port, and the other way around; and what this side asks.
			frame := func(from, to string, fromPort, toPort uint16) []byte {
				f, err := packet.Build(packet.Spec{From: netip.MustParseAddr(from),
					To: netip.MustParseAddr(to), FromPort: &fromPort, ToPort: &toPort})
				if err != nil {
					t.Error(err)
				}
				return f
			}
			ask := func(port uint16) []byte { return frame(uplinkFar, uplinkHere, port, 53) }
			leave := func(fromPort, toPort uint16) error {
				return unix.Sendto(tx, frame(uplinkHere, uplinkFar, fromPort, toPort), 0,
					&unix.SockaddrLinklayer{Ifindex: lv0.Attrs().Index})
			}
			waits := 0
			ctx := stepping(t.Context(), func(step string) error {
				switch step {
				case "swap": // the shared memory judges
					n.sendBy(t, 0, ask(5000))
					return errors.Join(heard(53), leave(40000, 7))
				case "wait": // its own does, and what leaves is noted in both
					if waits++; waits > 1 {
						return nil
					}
					n.sendBy(t, 0, ask(5001))
					return errors.Join(heard(53), leave(53, 5001))
				}
				return nil
			})
			if _, err := UpAll(ctx, []string{"lv0"}, UpOptions{Names: []string{"lv0"},
				Confirm: trial, PolicyPath: "/etc/test.levee", Source: []byte(text)},
				compileText(text)); err != nil {
				t.Fatal(err)
			}
			if err := leave(53, 5000); err != nil {
				t.Fatal(err)
			}
			n.sendBy(t, 0, ask(5000))
			wantTotal(t, "asked", 3)
			n.sendBy(t, 1, ask(5001)) // by who stays
			wantTotal(t, "asked", 4)
			n.sendBy(t, 0, frame(uplinkFar, uplinkHere, 7, 40000))
			wantTotal(t, "known", 1)
			// Of the four that the limit pays one has left; the other interface has paid two.
			for range 4 {
				n.sendBy(t, 0, ask(5002))
			}
			wantTotal(t, "limit", 3)
		})
	}
}

// TestACopiedMemoryHoldsWhatItsOriginalDoes, to the byte, but for the end of the head: until when
// somebody may have been forgotten.
func TestACopiedMemoryHoldsWhatItsOriginalDoes(t *testing.T) {
	n := newTwoUplinks(t)
	if err := n.bring(t, everyMemory, 0); err != nil {
		t.Fatal(err)
	}
	n.session(t)
	read := func(dev string) (out []byte) {
		t.Helper()
		err := generation.TransactOn(t.Context(), dev,
			func(s *store.Store, a *attach.Attachment) error {
				g := a.Current()
				name, _ := codegen.MapOf(g.Maps, state.HoldsFlows)
				m, err := s.OpenPinned(a.Key, g.Generation, name)
				if err != nil {
					return err
				}
				defer m.Close()
				return s.WithMemory(m, func(memory []byte) {
					out = bytes.Clone(memory)
					clear(out[flow.HeadBytes-8 : flow.HeadBytes])
				})
			})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if err := n.bringOn([]string{"lv0"}, []string{"lv0"}, everyMemory, time.Hour); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read("lv0"), read("up0")) {
		t.Error("they differ")
	}
}

// TestTwoPoliciesThatBecomeOneKeepTheirSessions: the sockets of this machine are asked for.
func TestTwoPoliciesThatBecomeOneKeepTheirSessions(t *testing.T) {
	n := newTwoUplinks(t)
	open := n.session(t)
	for _, dev := range n.devs {
		if err := n.bringOn([]string{dev}, []string{dev}, uplinkPolicy, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i, devs := range [][]string{n.devs, {"up0", "lv0"}} {
		reps, err := UpAll(t.Context(), devs, UpOptions{Names: devs, PolicyPath: "/etc/test.levee",
			Source: []byte(uplinkPolicy)}, compileText(uplinkPolicy))
		if err != nil {
			t.Fatal(err)
		}
		if notes := reps[0].Notes; i == 0 != (len(notes) == 1 &&
			strings.HasPrefix(notes[0], "up0 remembers with lv0 from now on")) {
			t.Errorf("said %q", notes)
		}
		if err := errors.Join(shared(t, state.HoldsFlows, devs...), open.says()); err != nil {
			t.Error(err)
		}
	}
}

// TestDeathWhileUplinksGetAPolicyEndsSessions: killed at any step, a command leaves sessions that
// go on, and the next one finds one memory. Programs that know connections take long to load: with
// these, it is killed where programs change hands, and with others at each step.
func TestDeathWhileUplinksGetAPolicyEndsSessions(t *testing.T) {
	n := newTwoUplinks(t)
	open := n.session(t)
	down := func() {
		_, _, _ = inspect.Status(t.Context(), true) // cleans up
		for _, dev := range n.devs {
			_, _ = Down(t.Context(), dev)
		}
	}
	hands := []string{"link", "swap", "adopt"}
	for _, c := range []struct {
		text    string
		what    codegen.Contents
		replace bool
		each    bool
	}{
		{limitPolicy, state.HoldsLimit, false, true},
		{limitPolicy, state.HoldsLimit, true, true},
		{uplinkPolicy, state.HoldsFlows, false, false},
		{uplinkPolicy, state.HoldsFlows, true, false},
	} {
		do := order{Do: "up", Devs: n.devs, File: "a.levee", Text: c.text}
		down()
		if c.replace {
			if err := do.run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		steps, leaves := recordLeft(t, do)
		// Before this, nothing is there that another interface could share.
		from := slices.Index(steps, "describe")
		for i, step := range steps {
			behind := i > 0 && slices.Contains(hands, steps[i-1])
			switch {
			case i < from, !c.each && !behind:
				continue
			case i > from && leaves[i] == leaves[i-1] && !behind:
				continue // to die before the step between is the same
			}
			if !c.replace {
				down()
			}
			inject(t, do, i, true)
			what := fmt.Sprintf("%s, replace %v, killed at step %d (%s)", c.what, c.replace, i,
				step)
			if err := open.says(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if err := do.run(t.Context()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if err := errors.Join(open.says(), shared(t, c.what, n.devs...)); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
}

const limitPolicy = `limit udp rate 1/h
pass arp
pass tcp
default drop
`

// recordLeft runs an order and lists its steps, and what lies in the runtime directory before each.
func recordLeft(t *testing.T, o order) (steps, leaves []string) {
	t.Helper()
	ctx := stepping(t.Context(), func(step string) error {
		var left strings.Builder
		note := func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				fmt.Fprintln(&left, path, info.ModTime().UnixNano(), info.Size())
			}
			return err
		}
		err := filepath.WalkDir(os.Getenv(store.RunEnv), note)
		steps, leaves = append(steps, step), append(leaves, left.String())
		return err
	})
	if err := o.run(ctx); err != nil {
		t.Fatal(err)
	}
	return steps, leaves
}

// TestSharedStateIsCountedTwice: one of the interfaces tells of it, also when another has gone.
func TestSharedStateIsCountedTwice(t *testing.T) {
	n := newTwoUplinks(t)
	if err := n.bring(t, everyMemory, 0); err != nil {
		t.Fatal(err)
	}
	n.session(t)
	told := func() (open, limits int, with []string) {
		for _, a := range must(inspect.Status(t.Context(), false)) {
			if a.Connections != nil {
				open += a.Connections.Open
			}
			limits += len(a.Limits)
			with = append(with, a.SharedWith)
		}
		return open, limits, with
	}
	first := must(inspect.Status(t.Context(), false))[0].Dev
	if open, limits, with := told(); open != 1 || limits != 1 || !slices.Equal(with,
		[]string{"", first}) {
		t.Errorf("%d connections, %d limits, told by %q", open, limits, with)
	}
	if _, err := Down(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if open, limits, with := told(); open != 1 || limits != 1 || with[0] != "" {
		t.Errorf("%d connections, %d limits, told by %q", open, limits, with)
	}
}

// TestAShadowOfTwoUplinksSeesHalfOfASession: shadows on interfaces remember together, too, also
// when they follow a policy.
func TestAShadowOfTwoUplinksSeesHalfOfASession(t *testing.T) {
	n := newTwoUplinks(t)
	if err := n.bring(t, "default pass\n", 0); err != nil {
		t.Fatal(err)
	}
	p, ds := resolve.Parse("shadow.levee", []byte(uplinkPolicy), nil)
	if p == nil {
		t.Fatal(ds)
	}
	if _, err := UpShadow(t.Context(), n.devs, UpOptions{Names: n.devs, PolicyPath: "shadow.levee",
		Source: []byte(uplinkPolicy)}, p); err != nil {
		t.Fatal(err)
	}
	dropped := func() (n uint64) {
		for _, a := range must(inspect.Status(t.Context(), false)) {
			for i := range a.Shadow.Pairs {
				if w := &a.Shadow.Pairs[i]; w.Differs() && w.Would.Rule == "shadow.levee:3" {
					n += w.Packets
				}
			}
		}
		return n
	}
	for _, what := range []string{"first", "following"} {
		s := n.session(t)
		if err := s.says(); err != nil {
			t.Fatal(err)
		}
		if got := dropped(); got != 0 {
			t.Errorf("%s: would drop %d packets of a session", what, got)
		}
		if err := n.bring(t, "default pass\n#\n", 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAClientProvenByOneUplinkHasToProveItselfByTheOther: an answer of one is proven by the other,
// and who is proven is so to both.
func TestAClientProvenByOneUplinkHasToProveItselfByTheOther(t *testing.T) {
	n := newTwoUplinks(t)
	echoServer(t, n.here, uplinkHere+":22")
	if err := n.bring(t, "pass established\ncookie tcp port 22 as \"asked\"\n"+
		"pass tcp syn port 22 as \"proven\"\ndefault drop\n", 0); err != nil {
		t.Fatal(err)
	}
	// What proves, a RST, takes the other way.
	run(t, n.peer, "table ip ways { chain out { type route hook output priority 0; "+
		"tcp flags & rst == rst meta mark set 1; }; }", "nft", "-f", "-")
	run(t, n.peer, "", "ip", "rule", "add", "fwmark", "1", "table", "100")
	run(t, n.peer, "", "ip", "route", "add", "table", "100", "default", "via", "203.0.113.1")
	if err := reaches(t, n.peer, uplinkFar, uplinkHere+":22"); err != nil {
		t.Fatal(err)
	}
	asked, proven := total(t, "asked"), total(t, "proven")
	if asked == 0 || proven == 0 {
		t.Fatalf("asked %d times, proven %d", asked, proven)
	}
	run(t, n.peer, "", "ip", "route", "change", "198.51.100.0/24", "via", "203.0.113.1", "src",
		uplinkFar)
	if err := reaches(t, n.peer, uplinkFar, uplinkHere+":22"); err != nil {
		t.Fatal(err)
	}
	if again := total(t, "asked"); again != asked {
		t.Errorf("asked %d times more", again-asked)
	}
}

// TestCommandsInAnyOrderPartMemories: interfaces share exactly when they have their policy as one.
func TestCommandsInAnyOrderPartMemories(t *testing.T) {
	n := newTwoUplinks(t)
	r := rand.New(rand.NewPCG(1, 2))
	all := []string{"lv0", "up0"}
	for i := range 20 {
		devs := [][]string{all, {"up0", "lv0"}, {"lv0"}, {"up0"}}[r.IntN(4)]
		var what string
		var err error
		switch r.IntN(5) {
		case 0:
			what = "down"
			_, _ = Down(t.Context(), devs[0])
		case 1:
			what = "trial and back"
			err = n.bringOn(devs, devs, limitPolicy, time.Hour)
			for _, dev := range devs {
				err = errors.Join(err, rollBack(t, dev))
			}
		default:
			what = "up"
			err = n.bringOn(devs, devs, limitPolicy, 0)
		}
		if err != nil {
			t.Fatalf("%d: %s of %v: %v", i, what, devs, err)
		}
		running := must(inspect.Status(t.Context(), false))
		ids := memoriesOf(t, state.HoldsLimit)
		if len(running) < 2 {
			continue
		}
		one := running[0].Together != "" && running[0].Together == running[1].Together
		if (ids["lv0"] == ids["up0"]) != one {
			t.Errorf("%d: %s of %v: as one %v, memories %v", i, what, devs, one, ids)
		}
	}
}
