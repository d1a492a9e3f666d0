// Package conntrack reads the connections that the kernel's conntrack knows.
//
// Nothing goes in but a bound of time, connections come out. It must never ask where conntrack is
// off (On): the question alone would turn it on.
package conntrack

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// Entry is a connection.
type Entry struct {
	Ways   [2]Tuple // of the first packet, and of the answers to it
	Proto  uint8
	Status uint32 // bits: SeenReply, Assured and others
	TCP    uint8  // state, nl.TCP_CONNTRACK_ESTABLISHED and others
	Zone   bool   // it is of a zone, which may have addresses of others
}

// Tuple names the packets of a connection one way.
type Tuple struct{ From, To netip.AddrPort }

// From include/uapi/linux/netfilter/nf_conntrack_common.h: bits of the status.
const (
	SeenReply = 1 << 1
	Assured   = 1 << 2 // of TCP: its handshake is done
)

// On reports whether this network namespace tracks any connection.
func On() bool {
	n, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	return err == nil && string(n) != "0\n"
}

// Each calls do for what the conntrack of this network namespace knows, for as long as most. Each
// call has the same memory. An error matches kernel.ErrRefused where the kernel refuses, which may
// be in the middle.
func Each(most time.Duration, do func(*Entry)) error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	// Kernels that know the filter leave out what has not been answered.
	req.AddData(nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(SeenReply)))
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return kernel.Refuse(err, "read conntrack")
	}
	defer s.Close()
	if err := s.Send(req); err != nil {
		return kernel.Refuse(err, "read conntrack")
	}
	if err := s.SetReceiveTimeout(new(unix.NsecToTimeval(int64(most)))); err != nil {
		return kernel.Refuse(err, "read conntrack")
	}
	begin := time.Now()
	for t := (Entry{}); ; {
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
		if time.Since(begin) > most {
			return fmt.Errorf("read conntrack: it has more than can be read in %v", most)
		}
	}
}

// parse reports whether a message is an entry with ports.
func (t *Entry) parse(message []byte) bool {
	*t = Entry{}
	if len(message) < nl.SizeofNfgenmsg {
		return false
	}
	for kind, value := range attributes(message[nl.SizeofNfgenmsg:]) {
		switch kind {
		case nl.CTA_TUPLE_ORIG, nl.CTA_TUPLE_REPLY:
			t.parseTuple(&t.Ways[kind-nl.CTA_TUPLE_ORIG], value)
		case nl.CTA_STATUS:
			t.Status = number(value)
		case nl.CTA_ZONE:
			t.Zone = t.Zone || number(value) != 0
		case nl.CTA_PROTOINFO:
			for kind, value := range attributes(value) {
				if kind != nl.CTA_PROTOINFO_TCP {
					continue
				}
				for kind, value := range attributes(value) {
					if kind == nl.CTA_PROTOINFO_TCP_STATE {
						t.TCP = uint8(number(value))
					}
				}
			}
		}
	}
	for _, w := range t.Ways {
		if !w.From.IsValid() || !w.To.IsValid() {
			return false
		}
	}
	return true
}

func (t *Entry) parseTuple(w *Tuple, value []byte) {
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
					t.Proto = uint8(number(value))
				case nl.CTA_PROTO_SRC_PORT:
					fromPort = uint16(number(value))
				case nl.CTA_PROTO_DST_PORT:
					toPort = uint16(number(value))
				}
			}
		case zone:
			t.Zone = true
		}
	}
	*w = Tuple{netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort)}
}

// attributes returns the attributes of netlink that follow each other.
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
