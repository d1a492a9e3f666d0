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
	cmdHashKey    = 0x46 // ETHTOOL_GRSSH
	flowTCP4      = 0x01
	flowUDP4      = 0x02
	hashSource    = 1 << 4
	hashDest      = 1 << 5
	hashPorts     = 1 << 6 // of the sender: bytes 0 and 1 behind IP
	hashPorts2    = 1 << 7
	rxnfcBytes    = 256 // struct ethtool_rxnfc, and room behind it
	rxfhBytes     = 24  // struct ethtool_rxfh, without its table and key
	rxfhRoom      = 4096
	hashToeplitz  = 1 // ETH_RSS_HASH_TOP
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
	s.Key = hashKey(dev)
	if s.Entries == nil && s.TCP == "" && s.UDP == "" && s.Key == "" {
		return nil
	}
	return s
}

// hashKey says whether both directions of a flow have one hash: Symmetric, oneWay, or "" where the
// driver does not tell.
func hashKey(dev string) KeyKind {
	var arg [rxfhBytes + rxfhRoom]byte
	ask := func() bool {
		binary.NativeEndian.PutUint32(arg[0:], cmdHashKey)
		return ethtoolCall(dev, arg[:])
	}
	if !ask() { // it says how long the table and the key are
		return ""
	}
	entries := 4 * int(binary.NativeEndian.Uint32(arg[8:]))
	key := int(binary.NativeEndian.Uint32(arg[12:]))
	if key == 0 || entries+key > rxfhRoom || !ask() {
		return ""
	}
	return keyKind(arg[16], arg[17], arg[rxfhBytes+entries:][:key])
}

// keyKind of a hash function, what is done to its input (RXH_XFRM_*), and its key. Toeplitz gives
// both directions one hash where the key repeats every 16 bits, since then an address and a port
// weigh the same in either place.
func keyKind(function, transform uint8, key []byte) KeyKind {
	switch {
	case transform != 0: // symmetric-xor, symmetric-or-xor: Linux 6.8, 6.17
		return Symmetric
	case function != hashToeplitz:
		return ""
	}
	for i := range len(key) - 2 {
		if key[i] != key[i+2] {
			return oneWay
		}
	}
	return Symmetric
}

// flowHash returns what of a type of flow is hashed, "" where the driver does not say.
func flowHash(dev string, flowType uint32) string {
	var arg [rxnfcBytes]byte
	binary.NativeEndian.PutUint32(arg[0:], cmdRxFlowHash)
	binary.NativeEndian.PutUint32(arg[4:], flowType)
	if !ethtoolCall(dev, arg[:]) {
		return ""
	}
	return letters(binary.NativeEndian.Uint64(arg[8:]))
}

// ethtoolCall asks the driver, whose answer is in arg; false: it refuses.
func ethtoolCall(dev string, arg []byte) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var req struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], dev)
	req.data = unsafe.Pointer(&arg[0])
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&req)))
	return errno == 0
}

// letters returns the letters of `ethtool -N ... rx-flow-hash`.
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

// audit asks whether system calls are logged; nil: nobody may ask. The library waits for an answer
// to its port, and this one names none.
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
