package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// Cut cuts an untagged frame with IPv4 into fragments, as a router does before a link of a smaller
// MTU (RFC 791 section 3.2). Each but the last carries so many bytes behind its IP header, which is
// a multiple of 8 above 0. A frame that carries no more stays whole.
func Cut(frame []byte, carry int) ([][]byte, error) {
	const eth = 14
	if carry <= 0 || carry%8 != 0 {
		return nil, errors.New("fragments carry a multiple of 8 bytes")
	}
	if len(frame) < eth+20 || binary.BigEndian.Uint16(frame[12:]) != 0x0800 {
		return nil, errors.New("not a frame with IPv4")
	}
	head := eth + int(frame[eth]&15)*4
	if frame[eth]>>4 != 4 || head < eth+20 || len(frame) < head ||
		binary.BigEndian.Uint16(frame[eth+6:])&0x3fff != 0 {
		return nil, errors.New("not a whole packet of IPv4")
	}
	var out [][]byte
	for at := head; at == head || at < len(frame); at += carry {
		end := min(at+carry, len(frame))
		f := append(bytes.Clone(frame[:head]), frame[at:end]...)
		ip := f[eth:head]
		binary.BigEndian.PutUint16(ip[2:], uint16(head-eth+end-at))
		place := uint16((at - head) / 8)
		if end < len(frame) {
			place |= 0x2000 // more fragments
		}
		binary.BigEndian.PutUint16(ip[6:], place)
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^sum(ip, 0))
		out = append(out, f)
	}
	return out, nil
}
