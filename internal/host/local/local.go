// Package local says which destinations the kernel delivers to this machine itself.
//
// Nothing goes in but the network namespace of the calling thread. Out come prefixes, and a word
// whenever they may have changed. It must never change anything, and never leave out a destination
// because no interface has it as an address: routes deliver too.
package local

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// most is the number of prefixes that are read: a table of local routes as long as the Internet's
// is a mistake, and is not to fill the memory.
const most = 1 << 16

// delivering are the types of routes by which the kernel takes a packet itself.
var delivering = []uint8{unix.RTN_LOCAL, unix.RTN_ANYCAST, unix.RTN_BROADCAST}

// always are destinations of this machine without a route: the broadcast address of every network,
// and the loopback network, which `route_localnet` opens to packets from outside.
var always = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("255.255.255.255/32"),
}

// Prefixes returns the destinations whose packets the kernel takes itself, in order, each once: the
// addresses of all interfaces, also of those that are down, and local, anycast and broadcast routes
// of all tables that rules reach. Multicast is not among them: such packets are for groups that
// programs join and leave, and a router of multicast forwards them too.
func Prefixes() ([]netip.Prefix, error) {
	out, err := addresses()
	if err != nil {
		return nil, kernel.Refuse(err, "list the addresses of this machine")
	}
	out = append(out, always...)
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		tables, err := reached(family)
		if err != nil {
			return nil, kernel.Refuse(err, "list the rules of routing")
		}
		out, err = routes(out, family, tables, delivering...)
		if err != nil {
			return nil, kernel.Refuse(err, "list the local routes of this machine")
		}
		if len(out) > most {
			return nil, fmt.Errorf("this machine has more than %d local routes", most)
		}
	}
	out = slices.DeleteFunc(out, func(p netip.Prefix) bool {
		return p.Addr().IsLoopback() && p != always[0]
	})
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out), nil
}

// tries is the number of readings of a list that was changed meanwhile.
const tries = 20

// consistent reads a list until the kernel says that nothing changed while it was read. Where that
// does not end, the last reading is taken: another follows, as each change is told.
func consistent(read func() error) (err error) {
	for range tries {
		if err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return nil
}

// Links lists the interfaces of this network namespace. One that goes while the list is read leaves
// no other out of it.
func Links() (all []netlink.Link, err error) {
	err = consistent(func() (err error) {
		all, err = netlink.LinkList()
		return err
	})
	if err != nil {
		return nil, kernel.Refuse(err, "list the interfaces of this network namespace")
	}
	return all, nil
}

func addresses() (out []netip.Prefix, err error) {
	err = consistent(func() error {
		addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
		out = nil
		for _, a := range addrs {
			if ip, ok := netip.AddrFromSlice(a.IP); ok {
				ip = ip.Unmap()
				out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
		return err
	})
	return out, err
}

// tables are tables of routes by number, with the destinations for which rules reach each.
type tables map[int][]netip.Prefix

// reached returns the routing tables that rules select for packets that arrive. A table that is
// asked only for a part of the packets to a destination, by their mark, protocol or ports, makes no
// destination this machine's: a transparent proxy takes its part so, and the rest is forwarded.
func reached(family int) (tables, error) {
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if family == unix.AF_INET6 {
		all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	var out tables
	err := consistent(func() error {
		out = tables{}
		rules, err := netlink.RuleList(family)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
			// a kernel without rules of this family asks these
			out = tables{unix.RT_TABLE_LOCAL: {all}, unix.RT_TABLE_MAIN: {all}}
			return nil
		}
		for _, r := range rules {
			if r.Table == unix.RT_TABLE_UNSPEC || !r.Invert && ofAPart(r) {
				continue
			}
			to := all
			if r.Dst != nil && !r.Invert {
				to = prefixOf(r.Dst.IP, maskBits(r))
			}
			if to.IsValid() {
				out[r.Table] = append(out[r.Table], to)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	links, err := Links()
	for _, l := range links {
		if v, ok := l.(*netlink.Vrf); ok { // by the rule of all of them, l3mdev
			out[int(v.Table)] = append(out[int(v.Table)], all)
		}
	}
	return out, err
}

// ofAPart tells rules that only a part of the packets to a destination meet, or packets of this
// machine alone.
func ofAPart(r netlink.Rule) bool {
	return r.Mark != 0 || r.IPProto != 0 || r.Dport != nil || r.Sport != nil || r.Tos != 0 ||
		r.TunID != 0 || r.UIDRange != nil || r.OifName != "" || r.IifName == "lo"
}

func maskBits(r netlink.Rule) int {
	bits, _ := r.Dst.Mask.Size()
	return bits
}

func prefixOf(ip []byte, bits int) netip.Prefix {
	a, _ := netip.AddrFromSlice(ip)
	return netip.PrefixFrom(a, bits).Masked()
}

// routes adds the routes of a family that are of some types, as far as rules reach them. The kernel
// sorts out the others, of which a router may have a million.
func routes(out []netip.Prefix, family int, reached tables, types ...uint8) ([]netip.Prefix,
	error) {
	sock, err := nl.Subscribe(unix.NETLINK_ROUTE) // to nothing
	if err != nil {
		return nil, err
	}
	defer sock.Close()
	if err := unix.SetsockoptInt(sock.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK,
		1); err != nil {
		return nil, err
	}
	before := len(out)
	handle := &nl.SocketHandle{Socket: sock}
	for _, typ := range types {
		at := len(out)
		err := consistent(func() error {
			out = out[:at]
			req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
			req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: handle}
			req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family), Type: typ}})
			return req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE, func(m []byte) bool {
				out = append(out, delivered(m, typ, reached)...)
				return len(out)-before <= most
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// delivered returns what a route of a type delivers, as far as rules reach its table.
func delivered(m []byte, typ uint8, reached tables) (out []netip.Prefix) {
	msg := nl.DeserializeRtMsg(m)
	attrs, err := nl.ParseRouteAttr(m[msg.Len():])
	if err != nil || msg.Type != typ {
		return nil
	}
	to, table := make([]byte, 4), int(msg.Table)
	if msg.Family == unix.AF_INET6 {
		to = make([]byte, 16)
	}
	for _, a := range attrs {
		switch {
		case a.Attr.Type == unix.RTA_DST:
			to = a.Value
		case a.Attr.Type == unix.RTA_TABLE && len(a.Value) == 4:
			table = int(nl.NativeEndian().Uint32(a.Value))
		}
	}
	route := prefixOf(to, int(msg.Dst_len))
	for _, limit := range reached[table] {
		switch {
		case !route.IsValid() || !route.Overlaps(limit):
		case limit.Bits() > route.Bits():
			out = append(out, limit)
		default:
			out = append(out, route)
		}
	}
	return out
}
