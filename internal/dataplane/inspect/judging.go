package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/host/card"
	"levee/internal/kernel"
)

// Judging says for Status whether the packets that an interface receives come to the program.
type Judging struct {
	Driver string // "driver virtio_net"; "" for who may only read
	Mode   store.Mode
	State  JudgingState
	// Ago is the time since the policy was last found to judge; not yet: since it came.
	Ago time.Duration
	// Past counts the packets that came past it, as far as known, while it stands still.
	Past uint64
	// Amiss says, a sentence each, why the program judges otherwise than the policy says, by what
	// was set since it came.
	Amiss []string
	// LargestMTU is up to which MTU the driver lets the interface have while the program is
	// attached, as far as is known; 0: any, or nothing is known.
	LargestMTU int
	// Doubt: packets may have come past it since the last look; Compare tells.
	Doubt bool
	// for how long what differs in whom packets are for may still settle by itself
	settles time.Duration
}

// Failed says that packets of the interface are not judged as the policy says.
func (j *Judging) Failed() bool { return j.State.Failed() || len(j.Amiss) > 0 }

// Why says in a sentence what is wrong, "" if nothing is.
func (j *Judging) Why() string {
	driver := cmp.Or(j.Driver, "the driver")
	switch j.State {
	case Still:
		return fmt.Sprintf("packets come past the policy: %s does not ask its program at %s for "+
			"them; %d came, and none was judged", driver, j.Mode, j.Past)
	case Partly:
		return fmt.Sprintf("packets come past the policy: %s asks its program at %s for less than "+
			"half of them", driver, j.Mode)
	}
	if len(j.Amiss) > 0 {
		return "packets are judged otherwise than the policy says: " + strings.Join(j.Amiss, "; ")
	}
	return ""
}

// Seams of the comparison, for tests: a driver that does not ask a program cannot be made of veth.
var (
	Monotonic    = kernel.Monotonic
	ReadReceived = func(l netlink.Link) uint64 {
		if s := l.Attrs().Statistics; s != nil {
			return s.RxPackets
		}
		return 0
	}
)

// compare looks at an attachment whose interface is l, and keeps what it has found.
func compare(s *store.Store, a *attach.Attachment, l netlink.Link) (Comparison, bool, error) {
	var c Comparison
	g, now := a.Current(), Monotonic()
	judged, err := Arrived(s, a)
	if err != nil {
		return c, false, err
	}
	received := ReadReceived(l)
	err = store.ReadJSON(s.JudgingFile(a.Key), &c)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, false, err
	}
	before, doubt := c, false
	if err != nil || c.Generation != g.Generation || c.Ifindex != a.Ifindex {
		c = Begin(g.Generation, a.Ifindex, now, received, judged)
	} else {
		can, whole := Comparable(l, g, a.Shown())
		doubt = can && c.doubt(received, judged, whole)
		c.Look(now, received, judged, can, whole)
	}
	if c != before {
		_ = store.WriteJSON(s.JudgingFile(a.Key), c) // who looks next tries again
	}
	return c, doubt && !c.State.Failed(), nil
}

// Arrived returns how many packets that arrived all policies of an attachment have judged, since it
// began. What leaves is judged by another program at another hook, and what is only counted or
// logged is in the counter of what decides, too.
func Arrived(s *store.Store, a *attach.Attachment) (n uint64, err error) {
	totals, err := generation.Totals(s, a)
	if err != nil {
		return 0, err
	}
	for _, g := range a.Sorted() {
		for _, slot := range g.Slots {
			if !slot.Judges() {
				delete(totals, slot.Counts())
			}
		}
	}
	for _, cpus := range totals {
		n += generation.SumCPUs(cpus).Packets
	}
	return n, nil
}

// Comparable says whether all that an interface counts as received comes to the hook of a policy on
// it, so that none judged is a failure, and whether it comes there packet by packet.
//
// In the network stack that is so where the driver hands all that it counts to the stack of this
// interface. WireGuard counts keepalives, PPP its own control, a bond what its ports keep to
// themselves (LACP, LLDP), and a card that is a switch what it forwards.
func Comparable(l netlink.Link, g *store.Description, program uint32) (can, whole bool) {
	a := l.Attrs()
	isSwitch := a.PhysSwitchID != 0
	switch {
	case isSwitch:
		return false, false
	case g.Mode == store.XDPNative:
		return true, true
	}
	kinds := []string{"device", "veth", "tuntap", "tun", "bridge", "vlan", "macvlan", "dummy"}
	if !slices.Contains(kinds, l.Type()) {
		return false, false
	}
	if g.Mode == store.XDPGeneric {
		return true, false
	}
	if a.Xdp != nil && a.Xdp.Attached { // it may take all
		return false, false
	}
	ids, err := attach.TcxProgramsAt(a.Index, ebpf.AttachTCXIngress)
	return err == nil && (len(ids) == 0 || ids[0] == program), false
}

// tellJudging returns what Status tells of an attachment whose interface is l; nil: it is
// elsewhere.
func tellJudging(s *store.Store, a *attach.Attachment, l netlink.Link) (*Judging, error) {
	g := a.Current()
	if s.ReadOnly || l == nil {
		var c Comparison
		err := store.ReadJSON(s.JudgingFile(a.Key), &c)
		if errors.Is(err, fs.ErrNotExist) || err == nil && c.Generation != g.Generation {
			return &Judging{Mode: g.Mode, State: NotYet}, nil
		}
		return c.Tell("", g.Mode), err
	}
	c, doubt, err := compare(s, a, l)
	if err != nil {
		return nil, err
	}
	j := c.Tell(attach.Driver(l.Attrs().Name), g.Mode)
	j.Doubt = doubt
	is := card.Read(l.Attrs().Name)
	j.Amiss = attach.Amiss(l, is, g)
	apart, left, err := undelivered(s, a, l)
	if err != nil {
		return nil, err
	}
	j.differs(apart, left)
	bounded := g.Mode == store.XDPNative && (!g.Frags || !is.Fragments())
	if limit, ok := is.RaisedMTU(attach.LinearMTU); ok && bounded {
		j.LargestMTU = limit
	}
	return j, nil
}

func (c *Comparison) Tell(driver string, m store.Mode) *Judging {
	return &Judging{Driver: driver, Mode: m, State: c.State, Ago: max(0, Monotonic()-c.Since),
		Past: c.Past}
}

// Compare looks at the policy on an interface for as long as it takes to be sure whether packets
// come past it: a moment where packets are judged, some seconds where none is.
func Compare(ctx context.Context, dev string) (*Judging, error) {
	began, asked := Monotonic(), time.Duration(0)
	var first *Comparison
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		var c Comparison
		var mode store.Mode
		err := generation.TransactOn(ctx, dev, func(s *store.Store, a *attach.Attachment) error {
			l, err := a.Here()
			if err != nil || l == nil {
				return err
			}
			if now := Monotonic(); asked == 0 || now-asked > AskAgain {
				asked = now
				Ask(Neighbours(l))
			}
			mode = a.Current().Mode
			c, _, err = compare(s, a, l)
			return err
		})
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = &c
		}
		judges := c.State == Seen && c.Judged != first.Judged
		if judges || c.State.Failed() || Monotonic()-began > Late+FirstWait || ctx.Err() != nil {
			return c.Tell(attach.Driver(dev), mode), ctx.Err()
		}
		time.Sleep(pause)
	}
}
