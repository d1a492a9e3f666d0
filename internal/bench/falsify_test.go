package bench

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

	"levee/internal/lab"
	"levee/internal/lab/contender"
)

// The rules that make a window invalid, each broken on purpose in a real lab, and what the bench says then.
// Those that need no kernel are in judge_test.go.

// inServer runs f in the receiver's namespace.
func inServer(t *testing.T, b *bench, f func() error) {
	t.Helper()
	if err := b.server.Do(f); err != nil {
		t.Fatal(err)
	}
}

// sysctl sets a value below /proc/sys/net of the receiver's namespace.
func sysctl(t *testing.T, b *bench, name, value string) {
	t.Helper()
	inServer(t, b, func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
}

func TestWithoutGRONothingIsSent(t *testing.T) {
	b := newTestBench(t)
	inServer(t, b, func() error { return lab.SetGRO(b.device, false) })
	w := wantInvalid(t, b, contender.NFTOneRule(floodPort), "GRO of the receiver is off")
	if w.Offered > 0 {
		t.Errorf("%d packets sent to a receiver that cannot take them", w.Offered)
	}
}

func TestASlowGeneratorIsALowerBound(t *testing.T) {
	b := newTestBench(t)
	b.rate = 20_000
	w := oneWindow(t, b, contender.TCDrop())
	if w.Saturated || w.Limit == "" {
		t.Errorf("saturated %v by 20,000 packets a second, limit %q", w.Saturated, w.Limit)
	}
	r := Report{Rounds: minRounds, Families: []string{IPv4}, Traffic: []Traffic{{Name: "udp", Family: IPv4}}, Rungs: []*Rung{{Name: "tc ingress"}}}
	w.Family, w.Traffic, w.Invalid = IPv4, "udp", nil // a busy machine may have invalidated it
	for round := range minRounds {
		w.Round = round
		r.Rungs[0].Windows = append(r.Rungs[0].Windows, *w)
	}
	r.summarise()
	if g := r.Rungs[0]; !g.AtLeast || len(g.Limits) != 1 || g.Limits[0] != w.Limit {
		t.Errorf("at least: %v, because %q", g.AtLeast, g.Limits)
	}
}

// At 20,000 packets a second the ring of 256 is full only if the receiver stands still for 13 ms.
func TestARingThatNeverRefusesIsALowerBound(t *testing.T) {
	b := newTestBench(t)
	b.rate = 20_000
	w := oneWindow(t, b, contender.TCDrop())
	for try := 1; w.Refused > 0; try++ {
		if try == 20 {
			t.Fatalf("the ring refused %d of %d packets: the machine is too busy", w.Refused, w.Offered)
		}
		w = oneWindow(t, b, contender.TCDrop())
	}
	if want := "the ring never refused a packet"; w.Saturated || !strings.Contains(w.Limit, want) {
		t.Errorf("saturated %v, limit %q, want %q", w.Saturated, w.Limit, want)
	}
}

func TestAGeneratorThatHardlySendsGivesNoFigure(t *testing.T) {
	b := newTestBench(t)
	b.rate = 2000
	wantInvalid(t, b, contender.TCDrop(), "the generator offered")
}

func TestAFullConntrackTableIsNoticed(t *testing.T) {
	b := newTestBench(t)
	limit := number("nf_conntrack_max")
	if limit == 0 || limit > 1<<20 {
		t.Skipf("the conntrack table holds %d flows: too many to fill in a test", limit)
	}
	for b.Window = 2 * time.Second; b.Window < 20*time.Second; b.Window *= 2 {
		b.flows = 1 // as if there were room for any window
		w := oneWindow(t, b, contender.RecvmmsgConntrack())
		if got := strings.Join(w.Invalid, "; "); strings.Contains(got, "conntrack table is full") {
			break
		} else if w.Received > uint64(limit) {
			t.Fatalf("%d flows into a table of %d: invalid because %q", w.Received, limit, got)
		} // the machine was too busy
	}
	// The next rung finds it empty.
	inServer(t, b, func() error {
		if n := number("nf_conntrack_count"); n > 0 {
			t.Errorf("%d flows are left", n)
		}
		return nil
	})
}

func TestConntrackWhereNobodyAskedForIt(t *testing.T) {
	b := newTestBench(t)
	tracker := contender.RecvmmsgConntrack()
	defer install(t, b, tracker)()
	wantInvalid(t, b, contender.Recvmmsg(), "conntrack follows the flood")
}

// untracking says that it has conntrack in its path, and has not.
type untracking struct{ contender.Defence }

func (untracking) Tracks() bool { return true }

func TestConntrackThatIsNotInThePath(t *testing.T) {
	wantInvalid(t, newTestBench(t), untracking{contender.RecvmmsgNotrack()}, "conntrack does not follow the flood")
}

// native says that it is in the driver.
type native struct{ contender.Defence }

func (native) Hook() contender.Hook { return contender.XDP }

func TestGenericXDPIsNotTakenForNative(t *testing.T) {
	wantInvalid(t, newTestBench(t), native{contender.XDPGenericDrop()}, "wrong hook mode: XDP on the receiver is generic, not native")
}

func TestReversePathDropsAreNoticed(t *testing.T) {
	b := newTestBench(t)
	sysctl(t, b, "ipv4/conf/all/rp_filter", "1")
	sysctl(t, b, "ipv4/conf/"+b.device+"/rp_filter", "1")
	inServer(t, b, func() error { // no way back to the flood's sources
		return netlink.RouteDel(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}})
	})
	wantInvalid(t, b, contender.IPTablesInput(floodPort), "the kernel's address checks dropped")
}

// martians is an address that no packet may come from.
var martians = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func TestMartianSourcesAreNoticed(t *testing.T) {
	b := newTestBench(t)
	b.mix[0].flood.Sources = martians
	wantInvalid(t, b, contender.IPTablesInput(floodPort), "the kernel's address checks dropped")
}

func TestStolenTimeIsNoticed(t *testing.T) {
	b := newTestBench(t)
	reads := 0
	b.procStat = func() (string, error) { // each reading 2000 ticks later, of which 300 were stolen
		reads++
		times := fmt.Sprintf("%d 0 0 %d 0 0 0 %d 0 0", 700*reads, 1000*reads, 300*reads)
		return fmt.Sprintf("cpu  %s\ncpu%d %s\n", times, b.receiverCPU, times), nil
	}
	wantInvalid(t, b, contender.TCDrop(), "the hypervisor took 15.0 % of the time (steal)")
}

func TestAQdiscAtTheSenderIsNoticed(t *testing.T) {
	b := newTestBench(t)
	err := b.world.Do(func() error {
		link, err := netlink.LinkByName(b.device)
		if err != nil {
			return err
		}
		return netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: "pfifo", QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		}})
	})
	if err != nil {
		t.Skipf("this kernel has no such qdisc: %v", err)
	}
	wantInvalid(t, b, contender.TCDrop(), "the sender has a qdisc")
}

// install puts a defence in place; the function that it returns removes it.
func install(t *testing.T, b *bench, d contender.Defence) (remove func()) {
	t.Helper()
	if err := d.Install(t.Context(), contender.Site{Host: b.server, Device: b.device, Sink: b.sink}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := d.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// oneWindow installs a defence and takes one window of the first flood.
func oneWindow(t *testing.T, b *bench, d contender.Defence) *Window {
	t.Helper()
	defer install(t, b, d)()
	var w *Window
	err := b.pinned(func() (err error) {
		w, err = b.window(t.Context(), d, b.mix[0])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// wantInvalid takes one window of a defence, which must give a reason.
func wantInvalid(t *testing.T, b *bench, d contender.Defence, reason string) *Window {
	t.Helper()
	w := oneWindow(t, b, d)
	if got := strings.Join(w.Invalid, "; "); !strings.Contains(got, reason) {
		t.Errorf("invalid because %q, want %q", got, reason)
	}
	return w
}
