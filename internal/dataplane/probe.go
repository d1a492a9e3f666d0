package dataplane

import (
	"context"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// reading counts the packets that an interface has received, and those that its policies have
// judged, since each began. at is of the monotonic clock.
type reading struct {
	at               time.Duration
	received, judged uint64
}

// reading reads the counters of the interface that gets a policy.
func (u *up) reading() (reading, error) {
	l, err := netlink.LinkByIndex(u.dev.Index)
	if err != nil {
		return reading{}, kernel.Refuse(err, "read what %s has received", u.Dev)
	}
	r := reading{at: inspect.Monotonic(), received: inspect.ReadReceived(l)}
	if u.at != nil {
		if r.judged, err = inspect.Arrived(u.Store, u.at); err != nil {
			return r, err
		}
	}
	return r, nil
}

// carrierWait is for how long `up` waits for a link that the driver has taken down.
const carrierWait = 10 * time.Second

// watchFirst waits until the policy that has just come to its interface has judged a packet, where
// packets are to be expected: some came while it was loaded, or a neighbour was asked for one.
// still is an error if packets come and the program is not asked for them. The policy is off the
// interface then, unless there was one before. The time of a trial begins when it returns.
func (u *up) watchFirst(ctx context.Context, st *staged, t attach.Try) (still, err error) {
	g := st.desc
	c := inspect.Begin(st.judges().desc.Generation, u.dev.Index, u.before.at,
		u.before.received, u.before.judged)
	if u.at != nil && u.at.Current().Mode == g.Mode {
		var was inspect.Comparison
		if store.ReadJSON(u.JudgingFile(u.key), &was) == nil && !was.State.Failed() {
			c.State = was.State
		}
	}
	began := inspect.Monotonic()
	if c.State != inspect.Seen {
		if err := u.compareFirst(ctx, &c, u.bounced(ctx)); err != nil {
			return nil, err
		}
	}
	u.report.Judging = c.Tell(u.dev.Driver, t.Mode)
	if c.State == inspect.Still && t.Mode == store.XDPNative { // of others the driver is not asked
		still = attach.Unfit("%s", u.report.Judging.Why())
		if u.at == nil {
			u.report, u.staged, u.deaf = nil, nil, true
			return still, u.undo()
		}
		u.Note("%v", still)
	}
	if u.Confirm > 0 && inspect.Monotonic()-began > u.Confirm/100 {
		if _, err := st.arm(u.Confirm); err != nil {
			return nil, err
		}
		u.report.deadline = g.Deadline
		if err := store.WriteJSON(u.DescriptionPath(st.key, g.Generation), g); err != nil {
			return nil, err
		}
	}
	_ = store.WriteJSON(u.JudgingFile(u.key), c) // who looks next begins anew
	return nil, nil
}

// bounced waits until a link that was up is up again, for carrierWait at most, and says whether it
// is.
func (u *up) bounced(ctx context.Context) bool {
	for until := inspect.Monotonic() + carrierWait; ; {
		l, err := netlink.LinkByIndex(u.dev.Index)
		switch {
		case err != nil, !u.dev.Up, ctx.Err() != nil:
			return false
		case attach.IsUp(l):
			return true
		case inspect.Monotonic() > until:
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// compareFirst looks until a packet was judged, or there is no reason to wait for one.
func (u *up) compareFirst(ctx context.Context, c *inspect.Comparison, isUp bool) error {
	began, wait := inspect.Monotonic(), time.Duration(0)
	asked := time.Duration(0)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		l, err := netlink.LinkByIndex(u.dev.Index)
		if err != nil {
			return kernel.Refuse(err, "read what %s has received", u.Dev)
		}
		now := inspect.Monotonic()
		if isUp && (asked == 0 || now-asked > inspect.AskAgain) {
			asked = now
			inspect.Ask(u.asks)
			if len(u.asks) > 0 || u.before.received != u.began.received {
				wait = max(wait, inspect.FirstWait)
			}
		}
		a, err := attach.Open(u.Store, u.key)
		if err != nil {
			return err
		}
		judged, err := inspect.Arrived(u.Store, a)
		can, whole := inspect.Comparable(l, u.staged.desc, a.Shown())
		a.Close()
		if err != nil {
			return err
		}
		received := inspect.ReadReceived(l)
		if came := received != c.Received; came && can && isUp {
			wait = max(wait, inspect.Late+inspect.FirstWait)
		}
		c.Look(now, received, judged, can, whole)
		if c.State == inspect.Seen || c.State.Failed() || now-began >= wait || ctx.Err() != nil {
			return nil
		}
		time.Sleep(pause)
	}
}
