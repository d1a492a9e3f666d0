package gen

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/lang/spec"
	"levee/internal/packet/template"
)

// runTemplate sends a flood or a template by the path that was asked for, or the best that can.
func runTemplate(ctx context.Context, c Config, dev device) (Report, error) {
	packets := c.Template
	for _, f := range c.Floods {
		if err := f.complete(dev); err != nil {
			return Report{}, err
		}
		packets = append(packets, f.packet())
	}
	d := template.Defaults{EtherFrom: dev.mac, EtherTo: dev.dst, To4: dev.to4, To6: dev.to6}
	switch {
	case c.To.Is4():
		d.To4 = c.To
	case c.To.IsValid():
		d.To6 = c.To
	}
	t, err := template.Compile(packets, d, c.Seed)
	if err != nil {
		return Report{}, err
	}
	if n := t.Longest(); n > dev.mtu+maxTags {
		return Report{}, fmt.Errorf("a frame of %d bytes: the device takes IP packets of %d", n,
			dev.mtu)
	}
	if c.Path == Sendmmsg {
		w, err := newUDPSender(dev, packets, t)
		if err != nil {
			return Report{}, err
		}
		return runUser(ctx, c, dev, t, w, Sendmmsg)
	}
	if !dev.inLab && !namesReceiver(packets) {
		return Report{}, errors.New("no destination Ethernet address: write `ether to` in " +
			"the packet")
	}
	why := ""
	if c.Path == Auto || c.Path == Live {
		prog, err := t.Program(c.slack(), !c.Dropped)
		switch {
		case err == nil:
			var r Report
			var refused *refusal
			r, err = runLive(ctx, c, dev, prog)
			if c.Path == Live || !errors.As(err, &refused) {
				return r, err
			}
		case c.Path == Live:
			return Report{}, fmt.Errorf("these packets cannot be live frames: %w", err)
		}
		why = err.Error()
	}
	var w wire
	switch c.Path {
	case AFXDP:
		w, err = newAFXDP(ctx, dev, t.Longest())
	case Qdisc:
		w, err = newSender(dev, t.Longest(), through)
	default:
		c.Path = Packet
		w, err = newSender(dev, t.Longest(), past)
	}
	if err != nil {
		return Report{}, err
	}
	r, err := runUser(ctx, c, dev, t, w, c.Path)
	r.Why = why
	return r, err
}

// namesReceiver tells whether all packets say which Ethernet address they are for.
func namesReceiver(packets []spec.Packet) bool {
	for i := range packets {
		p := &packets[i]
		named := p.Frame != nil || p.Spec.EtherTo != nil && *p.Spec.EtherTo != [6]byte{}
		for _, v := range p.Vary {
			named = named || v.Word == "ether to"
		}
		if !named {
			return false
		}
	}
	return true
}

// user is one run from user space.
type user struct {
	Config
	dev      device
	t        *template.Template
	w        wire
	report   Report
	start    uint64 // ns of the monotonic clock
	deadline uint64
	n        uint64 // frames that were handed on
	made     []byte // the last one, where it goes several times
	last     uint64 // when the last batch went
	shown    uint64
}

// burst is the multiple of the rate that a delayed run may reach to catch up.
const burst = 4

func runUser(ctx context.Context, c Config, dev device, t *template.Template, w wire,
	path Path) (Report, error) {
	defer w.close()
	u := &user{Config: c, dev: dev, t: t, w: w, start: monotonic()}
	u.deadline = u.start + uint64(c.Duration)
	if c.share.of > 0 {
		u.start += uint64(c.share.behind(c.Rate))
		u.Rate /= float64(c.share.of)
	}
	err := u.run(ctx)
	err = errors.Join(err, w.finish(&u.report))
	r := &u.report
	r.Path, r.How = path, w.what()
	r.Duration = u.since(monotonic())
	span := r.Duration
	if c.Rate > 0 && u.n > 1 {
		span = time.Duration(u.last - u.start)
	}
	r.Achieved = achieved(r.Sent, span, c.Rate > 0)
	return *r, err
}

func (u *user) run(ctx context.Context) error {
	for u.n < u.Count && ctx.Err() == nil {
		now := monotonic()
		if now >= u.deadline {
			return nil
		}
		k := u.due(now)
		if k == 0 {
			if !u.wait(ctx, now) {
				return nil
			}
			continue
		}
		for range k {
			b, err := u.w.buffer()
			if err != nil {
				return err
			}
			u.w.push(u.frame(b))
			u.n++
		}
		if now = monotonic(); u.last != 0 {
			u.report.Gaps.between(now - u.last)
		}
		u.last = now
		if err := u.w.flush(&u.report); err != nil {
			return err
		}
		if err := u.show(now); err != nil {
			return err
		}
	}
	return nil
}

// frame makes the next frame in a buffer, or copies the one before, and returns its length.
func (u *user) frame(b []byte) int {
	copies := uint64(max(u.Copies, 1))
	if u.n%copies != 0 {
		return copy(b, u.made)
	}
	f := u.t.Frame(b, u.share.number(u.n/copies))
	if copies > 1 {
		u.made = append(u.made[:0], f...)
	}
	return len(f)
}

// since returns the time since the start, which may be still to come.
func (u *user) since(now uint64) time.Duration { return max(0, time.Duration(now-u.start)) }

// due returns how many packets go now: packet n is due n intervals after the start.
func (u *user) due(now uint64) uint64 {
	most := min(uint64(u.w.batch()), u.Count-u.n)
	if u.Rate == 0 {
		return most
	}
	if now < u.start {
		return 0
	}
	due := uint64(float64(now-u.start)*u.Rate/1e9) + 1
	if due <= u.n {
		return 0
	}
	k := min(due-u.n, most)
	if k > 1 && u.last != 0 {
		k = min(k, uint64(float64(now-u.last)*u.Rate*burst/1e9)+1)
	}
	return k
}

// wait waits until the next packet is due, or the run is over; it says whether it goes on.
func (u *user) wait(ctx context.Context, now uint64) bool {
	due := u.start + uint64(float64(u.n)/u.Rate*1e9)
	if due >= u.deadline {
		sleep(ctx, time.Duration(u.deadline-now))
		return false
	}
	if due > now+2*uint64(wake) && !sleep(ctx, time.Duration(due-now)-wake) {
		return false
	}
	for monotonic() < due { // at most a wake, or a late timer
	}
	return true
}

// show tells the progress, and looks whether the device is still there.
func (u *user) show(now uint64) error {
	if now-u.shown < uint64(100*time.Millisecond) {
		return nil
	}
	u.shown = now
	if _, err := netlink.LinkByIndex(u.dev.index); err != nil {
		return fmt.Errorf("the device went away while sending: %w", err)
	}
	if u.Progress != nil {
		u.Progress(Progress{Sent: u.report.Sent, Elapsed: u.since(now)})
	}
	return nil
}
