package packet

import (
	"encoding/binary"
	"fmt"
)

// Link types (https://www.tcpdump.org/linktypes.html) that can be turned into Ethernet.
const (
	// BSD loopback, its address family in the byte order of the machine that captured
	linkNull     = 0
	linkEthernet = 1
	linkRawBSD   = 12 // DLT_RAW where it was written without being translated
	linkRawOBSD  = 14
	linkRaw      = 101
	linkLoop     = 108 // OpenBSD loopback, the family in network byte order
	linkSLL      = 113
	linkIPv4     = 228
	linkIPv6     = 229
	linkSLL2     = 276
)

// linkRoom is the space in front of a captured packet for an Ethernet header.
const linkRoom = 14

var linkNames = map[uint16]string{
	9: "PPP", 105: "IEEE 802.11", 127: "IEEE 802.11 radiotap",
	189: "USB", 192: "PPI", 195: "IEEE 802.15.4", 201: "Bluetooth", 220: "USB", 239: "NFLOG",
	253: "netlink",
}

// knownLink refuses a link type that has no Ethernet form.
func knownLink(link uint16) error {
	switch link {
	case linkNull, linkLoop, linkEthernet, linkRawBSD, linkRawOBSD, linkRaw, linkSLL, linkIPv4,
		linkIPv6, linkSLL2:
		return nil
	}
	name := linkNames[link]
	if name != "" {
		name = " (" + name + ")"
	}
	return fmt.Errorf("link type %d%s; known are Ethernet (1), BSD loopback (0, 108), raw IP "+
		"(101, 228, 229) and Linux cooked capture (113, 276)", link, name)
}

// toEthernet makes an Ethernet frame of a captured packet, in place. b is linkRoom bytes of space
// and then the packet. Addresses that the capture does not have are zero.
func toEthernet(link uint16, b []byte) ([]byte, error) {
	if err := knownLink(link); err != nil {
		return nil, err
	}
	pkt := b[linkRoom:]
	switch link {
	case linkEthernet:
		return pkt, nil
	case linkNull, linkLoop:
		return fromLoopback(b)
	case linkSLL: // packet type, ARPHRD, address length, 8 bytes of address, protocol
		if len(pkt) < 16 {
			return nil, fmt.Errorf("%d bytes are less than the 16 of a Linux cooked header",
				len(pkt))
		}
		return ethernetInFront(b[16:], cookedSource(binary.BigEndian.Uint16(pkt[4:]), pkt[6:14]),
			binary.BigEndian.Uint16(pkt[14:])), nil
	case linkSLL2: // protocol, reserved, interface, ARPHRD, packet type, address length, address
		if len(pkt) < 20 {
			return nil, fmt.Errorf("%d bytes are less than the 20 of a Linux cooked header, "+
				"version 2", len(pkt))
		}
		return ethernetInFront(b[20:], cookedSource(uint16(pkt[11]), pkt[12:20]),
			binary.BigEndian.Uint16(pkt)), nil
	}
	// Raw IP says no more than its version. What is neither is left for Decode to refuse.
	etherType := uint16(EtherIPv4)
	if link == linkIPv6 || link != linkIPv4 && len(pkt) > 0 && pkt[0]>>4 == 6 {
		etherType = EtherIPv6
	}
	return ethernetInFront(b, [6]byte{}, etherType), nil
}

// fromLoopback is toEthernet for loopback of the BSDs: 4 bytes of address family, and the packet.
// IPv6 has a number of its own on each of these systems.
func fromLoopback(b []byte) ([]byte, error) {
	pkt := b[linkRoom:]
	if len(pkt) < 4 {
		return nil, fmt.Errorf("%d bytes are less than the 4 of a loopback header", len(pkt))
	}
	// families are below 256
	family := min(binary.BigEndian.Uint32(pkt), binary.LittleEndian.Uint32(pkt))
	switch family {
	case 2:
		return ethernetInFront(b[4:], [6]byte{}, EtherIPv4), nil
	case 10, 24, 28, 30: // Linux; NetBSD and OpenBSD; FreeBSD; macOS
		return ethernetInFront(b[4:], [6]byte{}, EtherIPv6), nil
	}
	return nil, fmt.Errorf("address family %d behind a loopback header; known are IPv4 and IPv6",
		family)
}

// cookedSource returns the link-layer address of the sender, if it is an Ethernet address.
func cookedSource(length uint16, addr []byte) (mac [6]byte) {
	if length == 6 {
		copy(mac[:], addr)
	}
	return mac
}

// ethernetInFront writes an Ethernet header into the first 14 bytes of b.
func ethernetInFront(b []byte, src [6]byte, etherType uint16) []byte {
	clear(b[:6])
	copy(b[6:12], src[:])
	binary.BigEndian.PutUint16(b[12:], etherType)
	return b
}
