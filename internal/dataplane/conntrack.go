package dataplane

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/filter/flow"
	"levee/internal/filter/state"
	"levee/internal/host/connected"
	"levee/internal/host/conntrack"
	"levee/internal/kernel"
	"levee/internal/packet"
)

// adopt notes the connections of this machine and through it that are older than new memories. What
// is not known of them ends nothing else, and so keeps no policy from being put in force.
//
// It is called twice: when the program at egress runs and the policy is not yet in force, and once
// more when it is. The first call finds connections that are older than the program at egress. The
// second finds those that completed their handshake in between, while no program looked at what
// arrived.
func (u *up) adopt(maps []codegen.MapUse, began map[string]*ebpf.Map) error {
	if len(began) == 0 {
		return nil
	}
	if err := u.Step("adopt"); err != nil {
		return err
	}
	return u.eachBegun(maps, began, func(o *state.Older, memory []byte, clock *kernel.Clock) {
		if err := u.older(func(c flow.Older) { o.Adopt(memory, c, clock.Now()) }); err != nil {
			u.Note("%s: not all connections that are older than the policy are known: %v", u.Dev,
				err)
		}
	})
}

// adoptAgain is adopt once the policy is in force. It notes the time from which the policy sees
// every UDP packet that is answered.
func (u *up) adoptAgain() error {
	began := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range began {
			m.Close()
		}
	}()
	for name := range u.staged.plain.Began {
		m, err := u.OpenPinned(u.key, u.staged.desc.Generation, name)
		if err != nil {
			return err
		}
		if m != nil {
			began[name] = m
		}
	}
	maps := u.staged.desc.Maps
	err := u.eachBegun(maps, began, func(o *state.Older, memory []byte, clock *kernel.Clock) {
		o.Settle(memory, clock.Now()+uint64(o.Settling/time.Second)*clock.HZ())
	})
	if err != nil {
		return err
	}
	return u.adopt(maps, began)
}

// eachBegun calls do for memories that have to learn what is older.
func (u *up) eachBegun(maps []codegen.MapUse, began map[string]*ebpf.Map,
	do func(*state.Older, []byte, *kernel.Clock)) error {
	clock, err := u.Jiffies()
	if err != nil {
		return err
	}
	for _, use := range maps {
		if m := began[use.Name]; m != nil {
			err := u.WithMemory(m, func(memory []byte) {
				do(state.Of(use.Holds.What).Older, memory, clock)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// older calls do for connections that conntrack knows, where it tracks any, and for those of
// sockets: both sides have sent, or this one has connected, and what the near side sends leaves by
// the device. What conntrack knows comes first: a socket of UDP does not tell whether it was
// answered.
func (u *up) older(do func(flow.Older)) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return kernel.Refuse(err, "ask for routes")
	}
	defer h.Close()
	if conntrack.On() { // to ask a kernel that tracks no connections would make it begin
		err = conntrack.Each(loader.AdoptFor, func(t *conntrack.Entry) {
			for way, state := range statesOf(t) {
				came := t.Ways[way]
				if state != 0 && u.leads(h, came.From.Addr()) {
					do(flow.Older{Proto: t.Proto, Near: came.To, Far: came.From, State: state})
				}
			}
		})
	}
	return errors.Join(err, connected.Each(loader.AdoptFor, func(s connected.Socket) {
		if u.leads(h, s.Remote.Addr()) {
			do(flow.Older{Proto: s.Proto, Near: s.Local, Far: s.Remote, State: stateOf(s)})
		}
	}))
}

// stateOf returns the state of a socket's connection.
func stateOf(s connected.Socket) uint32 {
	switch {
	case s.Proto == packet.ProtoUDP:
		return flow.OneWay
	case s.Closing:
		return flow.Closing
	}
	return flow.Open
}

// leads reports whether packets to an address leave by the device, or another one that gets the
// policy as one with it: what comes by one may be answered by the other.
func (u *up) leads(h *netlink.Handle, a netip.Addr) bool {
	const enough = 1 << 20 // addresses, some 60 MB
	leads, ok := u.routes[a]
	if ok {
		return leads
	}
	if u.routes == nil || len(u.routes) == enough {
		u.routes = map[netip.Addr]bool{}
	}
	found, err := h.RouteGet(a.AsSlice())
	leads = err == nil && len(found) == 1 && slices.Contains(u.indexes(), found[0].LinkIndex)
	u.routes[a] = leads
	return leads
}

// statesOf returns two states of a connection: for packets that come in the way of its first one,
// and for those that come in the way of the answers. 0 is none. A side that has only sent has none,
// since anybody can send. UDP belongs to the near side only if that has begun.
func statesOf(t *conntrack.Entry) [2]uint32 {
	assured := t.Status&conntrack.Assured != 0
	switch {
	case t.Zone || t.Status&conntrack.SeenReply == 0:
	case t.Proto == packet.ProtoUDP:
		return [2]uint32{flow.Stranger, flow.TwoWay}
	case t.Proto != packet.ProtoTCP || !assured:
	case t.TCP == nl.TCP_CONNTRACK_ESTABLISHED, t.TCP == nl.TCP_CONNTRACK_FIN_WAIT,
		t.TCP == nl.TCP_CONNTRACK_CLOSE_WAIT:
		return [2]uint32{flow.Open, flow.Open}
	case t.TCP == nl.TCP_CONNTRACK_LAST_ACK, t.TCP == nl.TCP_CONNTRACK_TIME_WAIT:
		return [2]uint32{flow.Closing, flow.Closing}
	}
	return [2]uint32{}
}
