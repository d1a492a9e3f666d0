package doctor

import (
	"encoding/binary"
	"slices"
	"strings"
	"unsafe"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of include/uapi/linux/ethtool.h.
const (
	cmdRxFlowHash = 0x29 // ETHTOOL_GRXFH
	flowTCP4      = 0x01
	flowUDP4      = 0x02
	hashSource    = 1 << 4
	hashDest      = 1 << 5
	hashPorts     = 1 << 6 // of the sender: bytes 0 and 1 behind IP
	hashPorts2    = 1 << 7
	rxnfcBytes    = 256 // struct ethtool_rxnfc, and room behind it
)

// spread asks the driver how it chooses a queue; nil where it tells nothing of it.
func spread(e *ethtool.Ethtool, dev string) *Spread {
	s := &Spread{TCP: flowHash(dev, flowTCP4), UDP: flowHash(dev, flowUDP4)}
	if in, err := e.GetIndir(dev); err == nil && in.Size > 0 {
		of := in.RingIndex[:min(int(in.Size), len(in.RingIndex))]
		s.Entries = make([]int, slices.Max(of)+1)
		for _, q := range of {
			s.Entries[q]++
		}
	}
	if s.Entries == nil && s.TCP == "" && s.UDP == "" {
		return nil
	}
	return s
}

// flowHash is what of a kind of packets is hashed, "" where the driver does not say.
func flowHash(dev string, kind uint32) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var arg [rxnfcBytes]byte
	binary.NativeEndian.PutUint32(arg[0:], cmdRxFlowHash)
	binary.NativeEndian.PutUint32(arg[4:], kind)
	var req struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], dev)
	req.data = unsafe.Pointer(&arg)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&req))); errno != 0 {
		return ""
	}
	return letters(binary.NativeEndian.Uint64(arg[8:]))
}

// letters are those of `ethtool -N ... rx-flow-hash`.
func letters(bits uint64) string {
	var b strings.Builder
	for _, l := range []struct {
		bit    uint64
		letter byte
	}{{hashSource, 's'}, {hashDest, 'd'}, {hashPorts, 'f'}, {hashPorts2, 'n'}} {
		if bits&l.bit != 0 {
			b.WriteByte(l.letter)
		}
	}
	return b.String()
}

// Of include/uapi/linux/netfilter/nfnetlink.h, nf_tables.h and audit.h.
const (
	nfTablesGetRule = 10<<8 | 7 // NFNL_SUBSYS_NFTABLES, NFT_MSG_GETRULE
	auditGet        = 1000
	auditEnabledAt  = 4 // in struct audit_status
)

// nfgenmsg is struct nfgenmsg: any family, version 0.
type nfgenmsg [4]byte

func (m nfgenmsg) Len() int          { return len(m) }
func (m nfgenmsg) Serialize() []byte { return m[:] }

// netfilter counts the rules of nf_tables, and tables of the older iptables as one each; nil: it is
// not known.
func netfilter(t tree) *int {
	req := nl.NewNetlinkRequest(nfTablesGetRule, unix.NLM_F_DUMP)
	req.AddData(nfgenmsg{})
	rules, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil
	}
	n := len(rules)
	for _, f := range []string{"/proc/thread-self/net/ip_tables_names",
		"/proc/thread-self/net/ip6_tables_names"} {
		t.lines(f, func(string) { n++ })
	}
	return &n
}

// audit asks whether system calls are logged; nil: nobody may ask. The answer has no port of who
// asked, which the library waits for.
func audit() *bool {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	wait := unix.Timeval{Sec: 1}
	if unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait) != nil {
		return nil
	}
	req := nl.NewNetlinkRequest(auditGet, 0)
	to := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if unix.Sendto(fd, req.Serialize(), 0, to) != nil {
		return nil
	}
	var reply [1024]byte
	n, _, err := unix.Recvfrom(fd, reply[:], 0)
	const status = unix.NLMSG_HDRLEN + auditEnabledAt
	if err != nil || n < status+4 || binary.NativeEndian.Uint16(reply[4:]) != auditGet {
		return nil
	}
	return new(binary.NativeEndian.Uint32(reply[status:]) != 0)
}
