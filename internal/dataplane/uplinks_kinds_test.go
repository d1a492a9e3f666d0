package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
)

// bothSides runs ip(8) in both namespaces, with the names of each side for DEV.
func (n *twoUplinks) bothSides(t *testing.T, here, peer string, commands ...string) {
	t.Helper()
	for ns, dev := range map[netns.NsHandle]string{n.here: here, n.peer: peer} {
		for _, c := range commands {
			run(t, ns, "", "ip", strings.Fields(strings.ReplaceAll(c, "DEV", dev))...)
		}
	}
}

// move gives the addresses of the second uplink, and what goes by it, to one that has come.
func (n *twoUplinks) move(t *testing.T, here, peer string) {
	t.Helper()
	for ns, move := range map[netns.NsHandle][3]string{n.here: {"up0", here, "203.0.113.1/24"},
		n.peer: {"up1", peer, "203.0.113.2/24"}} {
		run(t, ns, "", "ip", "addr", "del", move[2], "dev", move[0])
		giveAddress(t, ns, move[1], move[2])
		run(t, ns, "", "ip", "link", "set", move[1], "up")
	}
	run(t, n.here, "", "ip", "route", "replace", "default", "via", "203.0.113.2", "src",
		uplinkHere)
}

// works is an error unless sessions, and what of some contents is remembered, are those of the
// policy on all of some interfaces.
func (n *twoUplinks) works(t *testing.T, contents []codegen.Contents, devs ...string) (err error) {
	t.Helper()
	for _, what := range contents {
		err = errors.Join(err, shared(t, what, devs...))
	}
	s := n.session(t)
	return errors.Join(err, s.says())
}

// needKind makes a device as `ip link add` does. It skips the test where the kernel lacks the kind.
func needKind(t *testing.T, args ...string) {
	t.Helper()
	b, err := exec.Command("ip", append([]string{"link", "add"}, args...)...).CombinedOutput()
	if strings.Contains(string(b), "Unknown device type") {
		t.Skipf("a kernel with such devices is not at hand: %v: %s", args, b)
	}
	if err != nil {
		t.Fatalf("make a device: %v: %v: %s", args, err, b)
	}
}

// TestUplinksAtDifferentHooks, of kinds of interfaces that differ, and many of them: each has its
// own way to the program, and one memory.
func TestUplinksAtDifferentHooks(t *testing.T) {
	type uplink struct {
		dev  string
		mode store.Mode
	}
	kinds := map[string]func(*testing.T, *twoUplinks) []uplink{
		"a VLAN above one": func(t *testing.T, n *twoUplinks) []uplink {
			needKind(t, "link", "up0", "name", "try.8", "type", "vlan", "id", "8")
			n.bothSides(t, "up0", "up1", "link add link DEV name DEV.7 type vlan id 7")
			n.move(t, "up0.7", "up1.7")
			return []uplink{{"lv0", store.Auto}, {"up0.7", store.Auto}}
		},
		"a bond": func(t *testing.T, n *twoUplinks) []uplink {
			needKind(t, "name", "try0", "type", "bond")
			n.bothSides(t, "bond9", "bond9", "link add DEV type bond mode active-backup")
			for ns, dev := range map[netns.NsHandle]string{n.here: "up0", n.peer: "up1"} {
				run(t, ns, "", "ip", "link", "set", dev, "down")
				run(t, ns, "", "ip", "link", "set", dev, "master", "bond9")
			}
			n.move(t, "bond9", "bond9")
			return []uplink{{"lv0", store.Auto}, {"bond9", store.Auto}}
		},
		"a bridge above one": func(t *testing.T, n *twoUplinks) []uplink {
			n.bothSides(t, "up0", "up1", "link add br9 type bridge", "link set DEV master br9")
			n.move(t, "br9", "br9")
			return []uplink{{"lv0", store.Auto}, {"br9", store.Auto}}
		},
		"eight": func(t *testing.T, n *twoUplinks) []uplink {
			out := []uplink{{"lv0", store.Auto}, {"up0", store.Auto}}
			for i := range 6 {
				dev := fmt.Sprintf("more%d", i)
				addVeth(t, dev, fmt.Sprintf("far%d", i), n.peer)
				out = append(out, uplink{dev, store.Auto})
			}
			return out
		},
	}
	modes := allModes(t)
	for i, a := range modes { // each beside each of two others
		if b := modes[(i+1)%len(modes)]; a != b {
			kinds[string(a)+" and "+string(b)] = func(*testing.T, *twoUplinks) []uplink {
				return []uplink{{"lv0", a}, {"up0", b}}
			}
		}
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			n := newTwoUplinks(t)
			uplinks := kind(t, n)
			var devs []string
			for _, u := range uplinks {
				devs = append(devs, u.dev)
			}
			mixed := slices.ContainsFunc(uplinks,
				func(u uplink) bool { return u.mode != store.Auto })
			up := func(text string) {
				t.Helper()
				if !mixed {
					if err := n.bringOn(devs, devs, text, 0); err != nil {
						t.Fatal(err)
					}
					return
				}
				for _, u := range uplinks { // as they come under --keep
					if _, err := UpAll(t.Context(), []string{u.dev}, UpOptions{Names: devs,
						Mode: u.mode, PolicyPath: "a.levee", Source: []byte(text)},
						compileText(text)); err != nil {
						t.Fatal(err)
					}
				}
			}
			text, contents := uplinkPolicy, []codegen.Contents{state.HoldsFlows}
			switch {
			case len(devs) > 3: // it is the number that is new
				text, contents = quickMemories, quickContents
			case mixed && uplinks[1].mode == store.XDPNative:
				// programs of cookies take long to load
				text, contents = everyMemory, inspect.SharedContents
			}
			up(text)
			if err := n.works(t, contents, devs...); err != nil {
				t.Error(err)
			}
			open := n.session(t)
			up(text + "#\n")
			if err := errors.Join(open.says(), n.works(t, contents, devs...)); err != nil {
				t.Errorf("replaced: %v", err)
			}
		})
	}
}

// TestWhatIsJudgedTwiceIsSaid: an interface and one that is built on it have a policy as one. Each
// packet is judged by both, and sessions go on.
func TestWhatIsJudgedTwiceIsSaid(t *testing.T) {
	n := newTwoUplinks(t)
	n.bothSides(t, "up0", "up1", "link add br9 type bridge", "link set DEV master br9")
	n.move(t, "br9", "br9")
	devs := []string{"lv0", "up0", "br9"}
	reps, err := UpAll(t.Context(), devs, UpOptions{Names: devs, PolicyPath: "a.levee",
		Source: []byte(uplinkPolicy)}, compileText(uplinkPolicy))
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	for _, rep := range reps {
		for _, note := range rep.Notes {
			if strings.HasPrefix(note, "what comes by br9 came by up0 before") {
				said++
			}
		}
	}
	if said != 1 {
		t.Errorf("said %d times", said)
	}
	if err := n.works(t, []codegen.Contents{state.HoldsFlows}, devs...); err != nil {
		t.Error(err)
	}
	echoServer(t, n.here, "203.0.113.1:22")
	if err := reaches(t, n.peer, "203.0.113.2", "203.0.113.1:22"); err != nil {
		t.Errorf("a session that is judged twice: %v", err)
	}
}

// TestATrapForTwoUplinks: a policy on two interfaces diverts to one trap, of one process that names
// both. Another process is told, and takes over when the first has gone.
func TestATrapForTwoUplinks(t *testing.T) {
	n := newTwoUplinks(t)
	text := "set attackers = dynamic(max 100, lease 10m)\n" +
		"divert tcp port 9000 from attackers as \"trap\"\npass established\n" +
		"pass tcp syn port 9000\npass arp\ndefault drop\n"
	if err := n.bring(t, text, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := sets.Add(t.Context(), "lv0", "attackers", entriesOf(uplinkFar+"/32")); err != nil {
		t.Fatal(err)
	}
	n.listen(t, "[::]:9000", "service")
	first := n.listen(t, "[::]:9022", "first")
	traps := map[string]*tap.Trap{}
	for _, dev := range n.devs {
		trap, err := tap.NewTrap(dev, []net.Listener{first})
		if err != nil {
			t.Fatal(err)
		}
		n.join(t, trap, true)
		traps[dev] = trap
	}
	reached := func() string {
		return in(t, n.peer, func() (string, error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(uplinkFar)}}
			c, err := d.DialContext(context.Background(), "tcp4", uplinkHere+":9000")
			if err != nil {
				return "refused", nil
			}
			defer c.Close()
			b := make([]byte, 20)
			k, err := c.Read(b)
			return string(b[:k]), err
		})
	}
	if got := reached(); got != "first" {
		t.Errorf("reached %s", got)
	}
	if err := shared(t, state.HoldsTrap, n.devs...); err != nil {
		t.Error(err)
	}
	second := n.listen(t, "[::]:9023", "second")
	other, err := tap.NewTrap("up0", []net.Listener{second})
	if err != nil {
		t.Fatal(err)
	}
	if joined, err := other.Join(t.Context()); joined || err == nil ||
		!strings.Contains(err.Error(), "Interfaces of one policy have one trap") ||
		!strings.Contains(err.Error(), "--divert lv0 --divert up0") {
		t.Errorf("the second process: %v, %v", joined, err)
	}
	first.Close()
	n.join(t, other, true)
	if got := reached(); got != "second" {
		t.Errorf("reached %s", got)
	}
}
