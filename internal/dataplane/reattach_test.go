package dataplane

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/keep"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lang/resolve"
)

var (
	recreations = flag.Int("recreations", 8, "how often a device that is kept goes and comes back")
	window      = flag.Duration("window", 0, "fail if one of them is open for longer")
)

// keeping runs Keep in namespace here until the test ends or stop is called, and waits until it is
// ready. How it ended comes through the channel.
func (n *testNet) keeping(t *testing.T, o UpOptions, compile CompileFunc) (stop func(),
	ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan bool, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := netns.Set(n.here); err != nil {
			done <- err
			return
		}
		done <- Keep(ctx, o, compile, nil, KeepEvents{
			Ready:  func([]*Report) { ready <- true },
			Failed: func(dev string, err error) { t.Logf("%s: %v", dev, err) },
		})
	}()
	t.Cleanup(cancel)
	select {
	case <-ready:
	case err := <-done:
		t.Fatalf("not kept: %v", err)
	}
	return cancel, done
}

// drops passes nothing, and has a set.
const drops = "set bad = dynamic(max 100)\ndrop from bad\nessential off\ndefault drop\n"

// comeBack makes lv0 anew, up from the start, with lv1 at the other end, and sends frames as soon
// as that is up. It says how long after that the last of them got through, when none has for a
// while since ready, or when most of time is over.
func (n *testNet) comeBack(t *testing.T, most time.Duration,
	ready func() bool) (open time.Duration, through int) {
	t.Helper()
	la := netlink.NewLinkAttrs()
	la.Name, la.Flags = "lv0", net.FlagUp
	const protocol = 0x88b5
	rx, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		int(uint16(protocol>>8|protocol&0xff<<8)))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(rx)
	stop, sent := make(chan bool), make(chan time.Time, 1)
	var sender sync.WaitGroup
	defer sender.Wait()
	defer close(stop)
	veth := &netlink.Veth{LinkAttrs: la, PeerName: "lv1", PeerNamespace: netlink.NsFd(n.peer)}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	sender.Go(func() { n.sendOn(t, stop, sent) })
	since := <-sent
	for quiet := time.Now(); time.Since(quiet) < 20*time.Millisecond && time.Since(since) < most; {
		if _, _, err := unix.Recvfrom(rx, make([]byte, 100), 0); err == nil {
			through++
			open, quiet = time.Since(since), time.Now()
		} else if !ready() {
			quiet = time.Now()
		}
	}
	return open, through
}

// sendOn brings lv1 up and sends frames there until it is stopped.
func (n *testNet) sendOn(t *testing.T, stop <-chan bool, first chan<- time.Time) {
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
	if err := netns.Set(n.peer); err != nil {
		t.Error(err)
	}
	l := must2(netlink.LinkByName("lv1"))
	if err := netlink.LinkSetUp(l); err != nil {
		t.Error(err)
	}
	first <- time.Now()
	for {
		select {
		case <-stop:
			return
		default:
			_ = unix.Sendto(n.tx, markedFrame(1), 0,
				&unix.SockaddrLinklayer{Ifindex: l.Attrs().Index})
			await.Pass(50*time.Microsecond, "the pace of the traffic")
		}
	}
}

// A device that is kept goes and comes back under traffic: it has the same program each time, which
// counts on, with the same entries, and what got through before is measured.
func TestADeviceThatComesBackHasItsPolicy(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "veth", func(t *testing.T) {
		p, ds := resolve.Parse("kept.levee", []byte(drops), nil)
		if ds.HasErrors() {
			t.Fatal(ds.Err())
		}
		o := UpOptions{Names: []string{"lv0"}, PolicyPath: "/etc/kept.levee"}
		stop, ended := n.keeping(t, o, Compiler(p))
		first := status(t)
		bad := []sets.Entry{{Prefix: netip.PrefixFrom(address(7), 32)}}
		if _, err := sets.Add(t.Context(), "lv0", "bad", bad); err != nil {
			t.Fatal(err)
		}
		back := func() bool { return len(must(inspect.Status(t.Context(), false))) > 0 }
		var open []time.Duration
		frames := 0
		for range *recreations {
			if err := netlink.LinkDel(must2(netlink.LinkByName("lv0"))); err != nil {
				t.Fatal(err)
			}
			after, through := n.comeBack(t, time.Minute, back)
			if after > 59*time.Second {
				t.Fatalf("open for a minute, for %d frames", through)
			}
			open, frames = append(open, after), frames+through
			a := status(t)
			if a.Program.ID != first.Program.ID || a.Sets[0].Entries != 1 {
				t.Fatalf("back with program %d and %d entries, before %d and 1",
					a.Program.ID, a.Sets[0].Entries, first.Program.ID)
			}
		}
		slices.Sort(open)
		t.Logf("%d times: open for %v at most, %v in the middle; %d frames got through in all",
			len(open), open[len(open)-1], open[len(open)/2], frames)
		if *window > 0 && open[len(open)-1] > *window {
			t.Errorf("open for %v, want %v at most", open[len(open)-1], *window)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if a := status(t); a.Program.ID != first.Program.ID {
			t.Error("the end of the keeper has changed what is in force")
		}
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Error(err)
		}
		runDirIsGone(t)
	})
	// Without a keeper the frames are seen.
	n.run(t, "open", func(t *testing.T) {
		if err := netlink.LinkDel(must2(netlink.LinkByName("lv0"))); err != nil {
			t.Fatal(err)
		}
		never := func() bool { return false }
		if _, through := n.comeBack(t, 100*time.Millisecond, never); through == 0 {
			t.Error("nothing got through where nothing drops")
		}
	})
}

// What a policy has beside the program that judges comes back too, and nothing is loaded for that:
// entries stay, and what leaves the interface from then on is known.
func TestADeviceThatComesBackHasWhatStandsBesideItsPolicy(t *testing.T) {
	n := newTestNet(t)
	for _, c := range []struct {
		name, rule string
		egress     store.Mode
		mode       store.Mode
		known      bool
	}{
		{name: "egress", rule: "pass established", known: true},
		{name: "egress beside TCX", rule: "pass established", mode: store.TCX, known: true},
		{name: "egress by a filter", rule: "pass established", egress: store.Clsact, known: true},
		{name: "sockets", rule: "divert tcp to 192.0.2.1 port 22"},
		{name: "both", rule: "pass established\ndivert tcp to 192.0.2.1 port 22", known: true},
	} {
		n.run(t, c.name, func(t *testing.T) {
			if err := kernel.TCX.Check(); c.mode == store.TCX && err != nil {
				t.Skip(err)
			}
			text := strings.Replace(drops, "default", c.rule+"\ndefault", 1)
			p, ds := resolve.Parse("kept.levee", []byte(text), nil)
			if ds.HasErrors() {
				t.Fatal(ds.Err())
			}
			o := UpOptions{Names: []string{"lv0"}, PolicyPath: "/etc/kept.levee", Mode: c.mode,
				egressMode: c.egress}
			stop, ended := n.keeping(t, o, Compiler(p))
			first := status(t)
			bad := []sets.Entry{{Prefix: netip.PrefixFrom(address(7), 32)}}
			if _, err := sets.Add(t.Context(), "lv0", "bad", bad); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if err := netlink.LinkDel(must2(netlink.LinkByName("lv0"))); err != nil {
					t.Fatal(err)
				}
				addVeth(t, "lv0", "lv1", n.peer)
				await.True(t, "the policy is back", func() bool {
					return len(must(inspect.Status(t.Context(), false))) > 0
				})
				a := status(t)
				if a.Program.ID != first.Program.ID || a.Sets[0].Entries != 1 {
					t.Fatalf("back with program %d and %d entries, before %d and 1",
						a.Program.ID, a.Sets[0].Entries, first.Program.ID)
				}
				if !c.known {
					continue
				}
				n.ask(t, 5000+i)
				if got := status(t).Connections.Live; got != i+1 {
					t.Errorf("%d connections known, want %d", got, i+1)
				}
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Error(err)
			}
			runDirIsGone(t)
		})
	}
}

// ask sends a datagram out of lv0, which gets an address for it.
func (n *testNet) ask(t *testing.T, port int) {
	t.Helper()
	there := must2(netlink.NewHandleAt(n.peer))
	defer there.Close()
	if err := there.LinkSetUp(must2(there.LinkByName("lv1"))); err != nil {
		t.Fatal(err)
	}
	l := must2(netlink.LinkByName("lv0"))
	to := net.IPv4(192, 0, 2, 9)
	addr := must2(netlink.ParseAddr("192.0.2.1/24"))
	neigh := &netlink.Neigh{LinkIndex: l.Attrs().Index, IP: to, State: netlink.NUD_PERMANENT,
		HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}}
	for _, err := range []error{netlink.AddrReplace(l, addr), netlink.LinkSetUp(l),
		netlink.NeighSet(neigh)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c := must2(net.DialUDP("udp", nil, &net.UDPAddr{IP: to, Port: port}))
	defer c.Close()
	if _, err := c.Write([]byte("asked")); err != nil {
		t.Fatal(err)
	}
}

// putting is a binding that looks before and after it puts its policy in force.
type putting struct {
	binding
	look func()
}

func (p *putting) Put(ctx context.Context, devs []string) ([]*Report, error) {
	p.look()
	defer p.look()
	return p.binding.Put(ctx, devs)
}

func TestKeepingEndsWhenThePolicyIsTakenOff(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "down", func(t *testing.T) {
		o := UpOptions{Names: []string{"lv0"}, PolicyPath: "/etc/kept.levee"}
		_, ended := n.keeping(t, o, compileHand(named("kept.levee", "one")))
		err := Keep(t.Context(), o, compileHand(named("kept.levee", "one")), nil, KeepEvents{})
		if err == nil ||
			!strings.Contains(err.Error(), "is kept already") {
			t.Errorf("kept twice: %v", err)
		}
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, keep.ErrUnkept) {
			t.Errorf("ended with %v", err)
		}
		runDirIsGone(t)
	})
	n.run(t, "starting", func(t *testing.T) {
		starting := func() bool {
			kept, err := keep.List(t.Context())
			if err != nil || len(kept) != 1 || !kept[0].Running {
				t.Errorf("%+v, %v", kept, err)
			}
			return len(kept) == 1 && kept[0].Starting
		}
		o := UpOptions{Names: []string{"lv0"}, PolicyPath: "/etc/kept.levee"}
		b := &putting{binding{UpOptions: o, compile: compileHand(named("kept.levee", "one"))},
			func() {
				if !starting() {
					t.Error("it is said to be kept before it is in force")
				}
			}}
		err := keep.Run(t.Context(), o.Names, o.PolicyPath, b, KeepEvents{
			Ready: func([]*Report) {
				if starting() {
					t.Error("it is said to be starting when it is in force")
				}
				if _, err := Down(t.Context(), "lv0"); err != nil {
					t.Error(err)
				}
			}})
		if !errors.Is(err, keep.ErrUnkept) {
			t.Errorf("ended with %v", err)
		}
	})
	n.run(t, "while it starts", func(t *testing.T) {
		o := UpOptions{Names: []string{"lv0"}, PolicyPath: "/etc/kept.levee"}
		looks := 0
		b := &putting{binding{UpOptions: o, compile: compileHand(named("kept.levee", "one"))},
			func() {
				if looks++; looks == 2 { // it is in force, and nobody has been told
					if _, err := Down(t.Context(), "lv0"); err != nil {
						t.Error(err)
					}
				}
			}}
		err := keep.Run(t.Context(), o.Names, o.PolicyPath, b, KeepEvents{
			Ready: func([]*Report) { t.Error("it is said to be in force, and was taken off") }})
		if !errors.Is(err, keep.ErrUnkept) {
			t.Errorf("ended with %v", err)
		}
	})
	n.run(t, "waiting", func(t *testing.T) {
		o := UpOptions{Names: []string{"nosuch"}, PolicyPath: "/etc/kept.levee"}
		_, ended := n.keeping(t, o, compileHand(named("kept.levee", "one")))
		kept, err := keep.List(t.Context())
		if err != nil || len(kept) != 1 || !kept[0].Running ||
			!slices.Equal(kept[0].Waiting, o.Names) {
			t.Errorf("%+v, %v", kept, err)
		}
		if _, err := Down(t.Context(), "nosuch"); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, keep.ErrUnkept) {
			t.Errorf("ended with %v", err)
		}
		runDirIsGone(t)
	})
}

// TestADamagedRecordOfAKeeperHeldUpEverything: no policy could be taken off, and none was shown.
func TestADamagedRecordOfAKeeperHeldUpEverything(t *testing.T) {
	n := newTestNet(t)
	o := UpOptions{Names: []string{"lv0"}, PolicyPath: "/etc/kept.levee"}
	_, ended := n.keeping(t, o, compileHand(named("kept.levee", "one")))
	files := must2(filepath.Glob(filepath.Join(os.Getenv(store.RunEnv), "keep", "*.json")))
	if len(files) != 1 {
		t.Fatal(files)
	}
	if err := os.WriteFile(files[0], []byte(`{"netns":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if kept, err := keep.List(t.Context()); err != nil || len(kept) != 0 {
		t.Errorf("kept %v, %v", kept, err)
	}
	if err := <-ended; !errors.Is(err, keep.ErrUnkept) {
		t.Errorf("the keeper ended with %v", err)
	}
	if a := status(t); a.Policy != "/etc/kept.levee" {
		t.Errorf("in force: %+v", a)
	}
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Error(err)
	}
	runDirIsGone(t)
}

// A keeper that is killed leaves what it kept for the next one.
func TestAKeeperThatWasKilledIsFollowed(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "kill", func(t *testing.T) {
		o := UpOptions{Names: []string{"lv*"}, PolicyPath: "/etc/kept.levee"}
		stop, ended := n.keeping(t, o, compileHand(named("kept.levee", "one")))
		first := status(t)
		stop() // what a killed one leaves: its record, without its lock
		<-ended
		if err := store.Transact(t.Context(), func(s *store.Store) error {
			netns, err := attach.NetnsCookie()
			r := store.Record{Netns: netns, Names: o.Names, Policy: o.PolicyPath, Pid: 1}
			return errors.Join(err, store.WriteJSON(s.Keeps(r.ID()+".json"), r))
		}); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkDel(must2(netlink.LinkByName("lv0"))); err != nil {
			t.Fatal(err)
		}
		if all := must(inspect.Status(t.Context(), true)); len(all) != 0 {
			t.Errorf("%d policies in force", len(all))
		}
		stop, ended = n.keeping(t, o, compileHand(named("kept.levee", "one")))
		n.comeBack(t, 10*time.Second,
			func() bool { return len(must(inspect.Status(t.Context(), false))) > 0 })
		if a := status(t); a.Program.ID != first.Program.ID {
			t.Errorf("back with program %d, before %d", a.Program.ID, first.Program.ID)
		}
		stop()
		<-ended
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Error(err)
		}
		runDirIsGone(t)
	})
}

// A device that comes back and does not take the program of the one before gets another. What was
// kept for that one stayed beside it until the next command.
func TestADeviceThatRefusesItsProgramLeavesNothingOfTheOneBefore(t *testing.T) {
	n := newTestNet(t)
	for name, rule := range map[string]string{"alone": "", "egress": "pass established\n"} {
		n.run(t, name, func(t *testing.T) {
			p, ds := resolve.Parse("kept.levee", []byte(rule+drops), nil)
			if ds.HasErrors() {
				t.Fatal(ds.Err())
			}
			o := UpOptions{Names: []string{"lv0"}, PolicyPath: "/etc/kept.levee"}
			stop, ended := n.keeping(t, o, Compiler(p))
			stop()
			<-ended
			r := store.Record{Netns: must2(attach.NetnsCookie()), Names: o.Names,
				Policy: o.PolicyPath,
				Pid:    1}
			if err := store.Transact(t.Context(), func(s *store.Store) error {
				return store.WriteJSON(s.Keeps(r.ID()+".json"), r)
			}); err != nil {
				t.Fatal(err)
			}
			if err := netlink.LinkDel(must2(netlink.LinkByName("lv0"))); err != nil {
				t.Fatal(err)
			}
			addVeth(t, "lv0", "lv1", n.peer)
			ctx := stepping(t.Context(), failing("come back"))
			err := store.Transact(ctx, func(s *store.Store) error {
				if adopted, err := adopt(s, "lv0"); adopted || err != nil {
					t.Errorf("adopted %v, %v", adopted, err)
				}
				err := keep.End(s, &r) // until then its sets wait for a policy that fits
				keys, kerr := s.Keys()
				if len(keys) != 0 {
					t.Errorf("left: %v", keys)
				}
				return errors.Join(err, kerr)
			})
			if err != nil {
				t.Error(err)
			}
			runDirIsGone(t)
		})
	}
}
