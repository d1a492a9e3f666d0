package flood

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/bench"
	"levee/internal/lab"
	"levee/internal/lab/contender"
)

// The rules that make a window invalid, each broken on purpose in a real lab, and what the bench
// says then. Those that need no kernel are in judge_test.go.

// inServer runs f in the receiver's namespace.
func inServer(t *testing.T, l *Lab, f func() error) {
	t.Helper()
	if err := l.Server.Do(f); err != nil {
		t.Fatal(err)
	}
}

// sysctl sets a value below /proc/sys/net of the receiver's namespace.
func sysctl(t *testing.T, l *Lab, name, value string) {
	t.Helper()
	inServer(t, l, func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
}

func TestWithoutGRONothingIsSent(t *testing.T) {
	l := newTestLab(t)
	inServer(t, l, func() error { return lab.SetGRO(l.device, false) })
	w := wantInvalid(t, l, contender.NFTOneRule(Port), "GRO of the receiver is off")
	if w.Offered > 0 {
		t.Errorf("%d packets sent to a receiver that cannot take them", w.Offered)
	}
}

func TestASlowGeneratorIsALowerBound(t *testing.T) {
	l := newTestLab(t)
	w := oneWindow(t, l, contender.TCDrop(), slow)
	for try := 1; w.Limit == "" && try < 20; try++ { // its ring was full on a busy machine
		w = oneWindow(t, l, contender.TCDrop(), slow)
	}
	if w.Saturated || w.Limit == "" {
		t.Errorf("saturated %v by 20,000 packets a second, limit %q", w.Saturated, w.Limit)
	}
	c, g := comparison("tc ingress")
	w.Invalid = nil // a busy machine may have invalidated it
	for round := range bench.MinRounds {
		w.Round = round
		g.Windows = append(g.Windows, *w)
	}
	if f := c.Figures(g, IPv4); !f.AtLeast || len(f.Limits) != 1 || f.Limits[0] != w.Limit {
		t.Errorf("at least: %v, because %q", f.AtLeast, f.Limits)
	}
}

// At 20,000 packets a second the ring of 256 is full only if the receiver stands still for 13 ms.
func TestARingThatNeverRefusesIsALowerBound(t *testing.T) {
	l := newTestLab(t)
	w := oneWindow(t, l, contender.TCDrop(), slow)
	for try := 1; w.Refused > 0 || w.Limit == ""; try++ { // without a limit it was not looked at
		if try == 20 {
			t.Fatalf("the ring refused %d of %d packets: the machine is too busy; %s", w.Refused,
				w.Offered, strings.Join(w.Invalid, "; "))
		}
		w = oneWindow(t, l, contender.TCDrop(), slow)
	}
	if want := "the ring never refused a packet"; w.Saturated || !strings.Contains(w.Limit, want) {
		t.Errorf("saturated %v, limit %q, want %q", w.Saturated, w.Limit, want)
	}
}

func TestAGeneratorThatHardlySendsGivesNoFigure(t *testing.T) {
	l := newTestLab(t)
	wantInvalid(t, l, contender.TCDrop(), "the generator offered",
		func(t *Traffic) { t.Rate = 2000 })
}

func TestAFullConntrackTableIsNoticed(t *testing.T) {
	l := newTestLab(t)
	limit := number("nf_conntrack_max")
	if limit == 0 || limit > 1<<20 {
		t.Skipf("the conntrack table holds %d flows: too many to fill in a test", limit)
	}
	window := &l.Options.Window
	for *window = 2 * time.Second; *window < 20*time.Second; *window *= 2 {
		l.flows = 1 // as if there were room for any window
		w := oneWindow(t, l, contender.RecvmmsgConntrack())
		if got := strings.Join(w.Invalid, "; "); strings.Contains(got, "conntrack table is full") {
			break
		} else if w.Received > uint64(limit) {
			t.Fatalf("%d flows into a table of %d: invalid because %q", w.Received, limit, got)
		} // the machine was too busy
	}
	// The next rung finds it empty.
	inServer(t, l, func() error {
		if n := number("nf_conntrack_count"); n > 0 {
			t.Errorf("%d flows are left", n)
		}
		return nil
	})
}

func TestConntrackWhereNobodyAskedForIt(t *testing.T) {
	l := newTestLab(t)
	tracker := contender.RecvmmsgConntrack()
	defer install(t, l, tracker)()
	wantInvalid(t, l, contender.Recvmmsg(), "conntrack follows the flood")
}

// untracking says that it has conntrack in its path, and has not.
type untracking struct{ contender.Defence }

func (untracking) Tracks() bool { return true }

func TestConntrackThatIsNotInThePath(t *testing.T) {
	wantInvalid(t, newTestLab(t), untracking{contender.RecvmmsgNotrack()},
		"conntrack does not follow the flood")
}

// native says that it is in the driver.
type native struct{ contender.Defence }

func (native) Hook() contender.Hook { return contender.XDP }

func TestGenericXDPIsNotTakenForNative(t *testing.T) {
	wantInvalid(t, newTestLab(t), native{contender.XDPGenericDrop()},
		"wrong hook mode: XDP on the receiver is generic, not native")
}

func TestReversePathDropsAreNoticed(t *testing.T) {
	l := newTestLab(t)
	sysctl(t, l, "ipv4/conf/all/rp_filter", "1")
	sysctl(t, l, "ipv4/conf/"+l.device+"/rp_filter", "1")
	inServer(t, l, func() error { // no way back to the flood's sources
		return netlink.RouteDel(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4zero,
			Mask: net.CIDRMask(0, 32)}})
	})
	wantInvalid(t, l, contender.IPTablesInput(Port), "the kernel's address checks dropped")
}

// martians is an address that no packet may come from.
var martians = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func TestMartianSourcesAreNoticed(t *testing.T) {
	l := newTestLab(t)
	wantInvalid(t, l, contender.IPTablesInput(Port), "the kernel's address checks dropped",
		func(t *Traffic) { t.Flood.Sources = martians })
}

func TestStolenTimeIsNoticed(t *testing.T) {
	l := newTestLab(t)
	reads := 0
	l.procStat = func() (string, error) { // each reading 2000 ticks later, of which 300 were stolen
		reads++
		times := fmt.Sprintf("%d 0 0 %d 0 0 0 %d 0 0", 700*reads, 1000*reads, 300*reads)
		return fmt.Sprintf("cpu  %s\ncpu%d %s\n", times, l.ReceiverCPU, times), nil
	}
	wantInvalid(t, l, contender.TCDrop(), "the hypervisor took 15.0 % of the time (steal)")
}

func TestAQdiscAtTheSenderIsNoticed(t *testing.T) {
	l := newTestLab(t)
	err := l.World.Do(func() error {
		link, err := netlink.LinkByName(l.device)
		if err != nil {
			return err
		}
		return netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: "pfifo",
			QdiscAttrs: netlink.QdiscAttrs{
				LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0),
				Parent: netlink.HANDLE_ROOT,
			}})
	})
	if err != nil {
		t.Skipf("this kernel has no such qdisc: %v", err)
	}
	wantInvalid(t, l, contender.TCDrop(), "the sender has a qdisc")
}

// install puts a defence in place; the function that it returns removes it.
func install(t *testing.T, l *Lab, d contender.Defence) (remove func()) {
	t.Helper()
	if err := d.Install(t.Context(), contender.Site{Host: l.Server, Device: l.device,
		Application: l.app}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := d.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// slow is a generator that limits itself.
func slow(t *Traffic) { t.Rate = 20_000 }

// oneWindow installs a defence and takes one window of UDP, as it is changed.
func oneWindow(t *testing.T, l *Lab, d contender.Defence, change ...func(*Traffic)) (w *Window) {
	t.Helper()
	defer install(t, l, d)()
	udp := Floods([]string{"udp"}, IPv4, l.In())[0]
	for _, c := range change {
		c(&udp)
	}
	err := l.Pinned(func() (err error) {
		w, err = l.Window(t.Context(), d, &udp)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// wantInvalid takes a window of a defence, which must give a reason: one of some, as a busy machine
// may give another that goes before it.
func wantInvalid(t *testing.T, l *Lab, d contender.Defence, reason string,
	change ...func(*Traffic)) *Window {
	t.Helper()
	for try := 1; ; try++ {
		w := oneWindow(t, l, d, change...)
		got := strings.Join(w.Invalid, "; ")
		if strings.Contains(got, reason) {
			return w
		}
		if try == 20 {
			t.Errorf("invalid because %q, want %q", got, reason)
			return w
		}
		if err := l.Server.Forget(); err != nil { // or its table of flows is full the next time
			t.Fatal(err)
		}
	}
}
