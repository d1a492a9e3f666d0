package dataplane

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"os"
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
	"levee/internal/kernel"
	"levee/internal/packet"
)

// adopt notes the connections through this machine that are older than new memories: the kernel has
// no socket of them. What is not known of them ends nothing else, and so keeps no policy from being
// put in force.
//
// It is called when the program at egress is there, before the policy is in force, and once more
// after that. The first time finds what was answered before the program noted it. The second finds
// those whose handshake has ended in between, where nobody looked at what came in.
func (u *up) adopt(maps []codegen.MapUse, began map[string]*ebpf.Map) error {
	if len(began) == 0 {
		return nil
	}
	if err := u.Step("adopt"); err != nil {
		return err
	}
	return u.eachBegun(maps, began, func(o *state.Older, memory []byte, clock *kernel.Clock) {
		if err := u.older(func(c flow.Older) { o.Adopt(memory, c, clock.Now()) }); err != nil {
			u.Note("%s: not all connections through this machine that are older than the policy "+
				"are known: %v", u.Dev, err)
		}
	})
}

// adoptAgain is adopt when the policy is in force. It notes since when that has seen all that is
// answered over UDP.
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

// older calls do for connections that conntrack knows and that go through the device, where it
// tracks any: both sides have sent, and what the near side sends leaves by the device.
func (u *up) older(do func(flow.Older)) error {
	// To ask a kernel that tracks no connections would make it begin.
	n, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if err != nil || string(n) == "0\n" {
		return nil
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return kernel.Refuse(err, "ask for routes")
	}
	defer h.Close()
	return eachTracked(func(t *tracked) {
		for way, state := range t.states() {
			came := t.ways[way]
			if state != 0 && u.leads(h, came.from.Addr()) {
				do(flow.Older{Proto: t.proto, Near: came.to, Far: came.from, State: state})
			}
		}
	})
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

// tracked is an entry of conntrack.
type tracked struct {
	ways   [2]tuple // of the first packet, and of the answers to it
	proto  uint8
	status uint32
	tcp    uint8 // state
	zone   bool  // it is of a zone, which may have addresses of others
}

// tuple names the packets of a connection one way.
type tuple struct{ from, to netip.AddrPort }

// states are two states of a connection: for packets that come in the way of its first one, and for
// those that come in the way of the answers. 0 is none. A side that has only sent has none, since
// anybody can send. UDP belongs to the near side only if that has begun.
func (t *tracked) states() [2]uint32 {
	assured := t.status&ctAssured != 0
	switch {
	case t.zone || t.status&ctSeenReply == 0:
	case t.proto == packet.ProtoUDP:
		return [2]uint32{flow.Stranger, flow.TwoWay}
	case t.proto != packet.ProtoTCP || !assured:
	case t.tcp == nl.TCP_CONNTRACK_ESTABLISHED, t.tcp == nl.TCP_CONNTRACK_FIN_WAIT,
		t.tcp == nl.TCP_CONNTRACK_CLOSE_WAIT:
		return [2]uint32{flow.Open, flow.Open}
	case t.tcp == nl.TCP_CONNTRACK_LAST_ACK, t.tcp == nl.TCP_CONNTRACK_TIME_WAIT:
		return [2]uint32{flow.Closing, flow.Closing}
	}
	return [2]uint32{}
}

// From include/uapi/linux/netfilter/nf_conntrack_common.h: bits of the status.
const (
	ctSeenReply = 1 << 1
	ctAssured   = 1 << 2 // of TCP: its handshake is done
)

// eachTracked calls do for what the conntrack of this network namespace knows. Each call has the
// same memory.
func eachTracked(do func(*tracked)) error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	// Kernels that know the filter leave out what has not been answered.
	req.AddData(nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(ctSeenReply)))
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return kernel.Refuse(err, "read conntrack")
	}
	defer s.Close()
	if err := s.Send(req); err != nil {
		return kernel.Refuse(err, "read conntrack")
	}
	if err := s.SetReceiveTimeout(new(unix.NsecToTimeval(int64(loader.AdoptFor)))); err != nil {
		return kernel.Refuse(err, "read conntrack")
	}
	begin := time.Now()
	for t := (tracked{}); ; {
		messages, _, err := s.Receive()
		if err != nil {
			return kernel.Refuse(err, "read conntrack")
		}
		for _, m := range messages {
			switch {
			case m.Header.Type == unix.NLMSG_DONE, m.Header.Type == unix.NLMSG_ERROR:
				if len(m.Data) < 4 || binary.NativeEndian.Uint32(m.Data) == 0 {
					return nil
				}
				errno := unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
				return kernel.Refuse(errno, "read conntrack")
			case t.parse(m.Data):
				do(&t)
			}
		}
		if time.Since(begin) > loader.AdoptFor {
			return fmt.Errorf("read conntrack: it has more than can be read in %v", loader.AdoptFor)
		}
	}
}

// parse reports whether a message is an entry with ports.
func (t *tracked) parse(message []byte) bool {
	*t = tracked{}
	if len(message) < nl.SizeofNfgenmsg {
		return false
	}
	for kind, value := range attributes(message[nl.SizeofNfgenmsg:]) {
		switch kind {
		case nl.CTA_TUPLE_ORIG, nl.CTA_TUPLE_REPLY:
			t.parseTuple(&t.ways[kind-nl.CTA_TUPLE_ORIG], value)
		case nl.CTA_STATUS:
			t.status = number(value)
		case nl.CTA_ZONE:
			t.zone = t.zone || number(value) != 0
		case nl.CTA_PROTOINFO:
			for kind, value := range attributes(value) {
				if kind != nl.CTA_PROTOINFO_TCP {
					continue
				}
				for kind, value := range attributes(value) {
					if kind == nl.CTA_PROTOINFO_TCP_STATE {
						t.tcp = uint8(number(value))
					}
				}
			}
		}
	}
	for _, w := range t.ways {
		if !w.from.IsValid() || !w.to.IsValid() {
			return false
		}
	}
	return true
}

func (t *tracked) parseTuple(w *tuple, value []byte) {
	const zone = 3 // CTA_TUPLE_ZONE
	var from, to netip.Addr
	var fromPort, toPort uint16
	for kind, value := range attributes(value) {
		switch kind {
		case nl.CTA_TUPLE_IP:
			for kind, value := range attributes(value) {
				switch kind {
				case nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC:
					from, _ = netip.AddrFromSlice(value)
				case nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST:
					to, _ = netip.AddrFromSlice(value)
				}
			}
		case nl.CTA_TUPLE_PROTO:
			for kind, value := range attributes(value) {
				switch kind {
				case nl.CTA_PROTO_NUM:
					t.proto = uint8(number(value))
				case nl.CTA_PROTO_SRC_PORT:
					fromPort = uint16(number(value))
				case nl.CTA_PROTO_DST_PORT:
					toPort = uint16(number(value))
				}
			}
		case zone:
			t.zone = true
		}
	}
	*w = tuple{netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort)}
}

// attributes are the attributes of netlink that follow each other.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			n := int(binary.NativeEndian.Uint16(b))
			if n < unix.SizeofRtAttr || n > len(b) {
				return
			}
			kind := binary.NativeEndian.Uint16(b[2:]) & nl.NLA_TYPE_MASK
			if !yield(kind, b[unix.SizeofRtAttr:n]) {
				return
			}
			b = b[min(len(b), (n+3)&^3):]
		}
	}
}

// number is one of netfilter's, in the order of bytes of networks.
func number(b []byte) (n uint32) {
	for _, c := range b {
		n = n<<8 | uint32(c)
	}
	return n
}
