// Package queue puts a queue of bounded rate where a device of a lab sends, and reads the queues of
// a device: what they are called, how fast they let packets go, what waits in them and what they
// have dropped.
//
// In go a host of a lab and a device, out come Queues. They are set by tc(8) and read over netlink,
// as any program could see them. The package must never touch a device outside a lab.
package queue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"levee/internal/lab"
	"levee/internal/lab/contender"
)

// Kinds are the queues that Put can put there. tbf and htb hold a thousand full packets in one
// line; fq_codel, behind htb, and cake keep flows apart and the wait short.
var Kinds = []string{"tbf", "htb", "fq_codel", "cake"}

// held is the size of what a queue of one line holds: a thousand full frames.
const held = 1000

// Put has a device of a host send by a queue of that kind, at so many bits a second. An error that
// matches contender.ErrMissing is about what this machine has not.
func Put(ctx context.Context, h *lab.Host, device, kind string, bits float64) error {
	if err := contender.Need("tc", "iproute2"); err != nil {
		return err
	}
	rate := fmt.Sprintf("%.0fbit", bits)
	root := "qdisc replace dev " + device + " root "
	var lines []string
	switch kind {
	case "tbf":
		// a burst of a millisecond, and of two packets at least
		lines = []string{fmt.Sprintf("%stbf rate %s burst %.0f limit %d", root, rate,
			max(bits/8/1000, 2*1514), held*1514)}
	case "htb", "fq_codel":
		leaf := fmt.Sprintf("pfifo limit %d", held)
		if kind == "fq_codel" {
			leaf = kind
		}
		lines = []string{
			root + "handle 1: htb default 1",
			fmt.Sprintf("class replace dev %s parent 1: classid 1:1 htb rate %s", device, rate),
			fmt.Sprintf("qdisc replace dev %s parent 1:1 %s", device, leaf),
		}
	case "cake":
		lines = []string{root + "cake bandwidth " + rate}
	default:
		return fmt.Errorf("there is no queue %q", kind)
	}
	for i, l := range lines {
		_, err := contender.Run(ctx, h, nil, "tc", strings.Fields(l)...)
		if err != nil && i > 0 { // a half of it bounds the rate, too
			err = errors.Join(err, Remove(context.WithoutCancel(ctx), h, device))
		}
		if err != nil && strings.Contains(err.Error(), "kind is unknown") {
			return fmt.Errorf("this kernel's %s is %w (its module sch_%[1]s)", kind,
				contender.ErrMissing)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Remove gives a device back the queue that it had before Put.
func Remove(ctx context.Context, h *lab.Host, device string) error {
	_, err := contender.Run(ctx, h, nil, "tc", "qdisc", "del", "dev", device, "root")
	return err
}

// Queue is a queueing discipline of a device, and what it has counted.
type Queue struct {
	Kind   string // as tc(8) calls it
	Handle string // 8001:
	Parent string // root, or the class that it is the leaf of, 1:1
	// Rate limits the bits a second that it lets by, 0 where it bounds none.
	Rate float64
	// Waiting packets and bytes are those at the moment of reading, the others have been counted
	// since it is there.
	WaitingPackets, WaitingBytes uint32
	Packets                      uint32
	Bytes                        uint64
	Dropped                      uint32
	Overlimits                   uint32
}

// Read reads the queues of a device, by its index, in the network namespace of the calling thread.
func Read(index int) (all []Queue, err error) {
	messages, err := dump(unix.RTM_GETQDISC, unix.RTM_NEWQDISC, index)
	if err != nil {
		return nil, fmt.Errorf("reading the queues: %w", err)
	}
	for _, m := range messages {
		if q, ok := m.queue(); ok {
			all = append(all, q)
		}
	}
	for i := range all {
		if all[i].Kind != "htb" {
			continue
		}
		classes, err := dump(unix.RTM_GETTCLASS, unix.RTM_NEWTCLASS, index)
		if err != nil {
			return nil, fmt.Errorf("reading the classes of a queue: %w", err)
		}
		for _, c := range classes {
			if c.Parent == netlink.HANDLE_ROOT { // one below another cannot have more
				all[i].Rate += htbRate(c.attrs[nl.TCA_OPTIONS])
			}
		}
	}
	return all, nil
}

// message is one of a dump.
type message struct {
	nl.TcMsg
	attrs map[uint16][]byte
}

func dump(get, answer int, index int) (out []message, err error) {
	req := nl.NewNetlinkRequest(get, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index)})
	list, err := req.Execute(unix.NETLINK_ROUTE, uint16(answer))
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	for _, b := range list {
		if len(b) < nl.SizeofTcMsg {
			continue
		}
		m := message{TcMsg: *nl.DeserializeTcMsg(b)}
		if int(m.Ifindex) != index {
			continue
		}
		if m.attrs, err = attributes(b[nl.SizeofTcMsg:]); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func attributes(b []byte) (map[uint16][]byte, error) {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	out := map[uint16][]byte{}
	for _, a := range list {
		out[a.Attr.Type&nl.NLA_TYPE_MASK] = a.Value
	}
	return out, nil
}

// Attributes of include/uapi/linux/gen_stats.h and pkt_sched.h.
const (
	statsBasic  = 1
	statsQueue  = 3
	tbfParms    = 1
	tbfRate64   = 4
	htbParms    = 1
	htbCeil64   = 7
	cakeRate64  = 2
	netemHead   = 24 // struct tc_netem_qopt stands before the attributes
	netemRate   = 6
	netemRate64 = 8
	rateSpec    = 12 // struct tc_ratespec
	rateWithin  = 8
	handleMajor = 0xffff0000
)

// queue returns what a message says; false of what holds no packets.
func (m *message) queue() (q Queue, ok bool) {
	q.Kind = strings.TrimRight(string(m.attrs[nl.TCA_KIND]), "\x00")
	if q.Kind == "" || q.Kind == "ingress" || q.Kind == "clsact" {
		return q, false
	}
	q.Handle, q.Parent = handle(m.Handle), handle(m.Parent)
	if m.Parent == netlink.HANDLE_ROOT {
		q.Parent = "root"
	}
	options := m.attrs[nl.TCA_OPTIONS]
	switch q.Kind {
	case "tbf":
		q.Rate = rate(options, tbfParms, 0, tbfRate64)
	case "cake":
		q.Rate = rate(options, 0, 0, cakeRate64)
	case "netem":
		if len(options) > netemHead {
			q.Rate = rate(options[netemHead:], netemRate, -rateWithin, netemRate64)
		}
	}
	stats, err := attributes(m.attrs[nl.TCA_STATS2])
	if err != nil {
		return q, true
	}
	if b := stats[statsBasic]; len(b) >= 12 {
		q.Bytes, q.Packets = binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint32(b[8:])
	}
	if b := stats[statsQueue]; len(b) >= 20 {
		word := func(i int) uint32 { return binary.NativeEndian.Uint32(b[4*i:]) }
		q.WaitingPackets, q.WaitingBytes, q.Dropped = word(0), word(1), word(2)
		q.Overlimits = word(4)
	}
	return q, true
}

// handle as tc(8) writes it.
func handle(h uint32) string {
	if h&^handleMajor == 0 {
		return fmt.Sprintf("%x:", h>>16)
	}
	return fmt.Sprintf("%x:%x", h>>16, h&^handleMajor)
}

// htbRate is up to how many bits a second a class of htb may send.
func htbRate(options []byte) float64 { return rate(options, htbParms, rateSpec, htbCeil64) }

// rate is bits a second, from an attribute of 64 bits, or where that is missing from the
// tc_ratespec that stands in another at an offset. Both are bytes a second.
func rate(options []byte, spec uint16, at int, wide uint16) float64 {
	attrs, err := attributes(options)
	if err != nil {
		return 0
	}
	if b := attrs[wide]; len(b) == 8 {
		return 8 * float64(binary.NativeEndian.Uint64(b))
	}
	if b := attrs[spec]; spec != 0 && len(b) >= at+rateWithin+4 {
		return 8 * float64(binary.NativeEndian.Uint32(b[at+rateWithin:]))
	}
	return 0
}
