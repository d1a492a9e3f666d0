package trap

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
)

// Bounds of a client's packets before the key exchange.
const (
	maxIdentification = 255   // RFC 4253, 4.2, with its end of line
	maxPacket         = 35000 // RFC 4253, 6.1: what every implementation takes
	kexinit           = 20    // RFC 4253, 12: the number of the message
	cookie            = 16    // bytes before its lists
	maxAlgorithms     = 2048  // bytes that are recorded
)

// opening reads what a client sends first: its identification, and in its first packet the
// algorithms that it offers (RFC 4253, 4.2 and 7.1). It keeps nothing of what follows.
type opening struct {
	buf  []byte
	done bool

	client     string // without "SSH-2.0-"
	hassh      string
	algorithms string
}

var (
	errNotSSH = errors.New("it did not speak SSH")
	errLarge  = errors.New("its first packet was too large")
)

// take is given what was read, and fails where no client of SSH would send that.
func (o *opening) take(b []byte) error {
	if o.done {
		return nil
	}
	o.buf = append(o.buf, b...)
	line, rest, whole := bytes.Cut(o.buf, []byte("\n"))
	switch {
	case len(line) >= maxIdentification:
		return o.fail(errNotSSH)
	case !whole:
		return nil
	}
	id := strings.TrimSuffix(string(line), "\r")
	version, name, _ := strings.Cut(strings.TrimPrefix(id, "SSH-"), "-")
	if !strings.HasPrefix(id, "SSH-") || version != "2.0" && version != "1.99" {
		return o.fail(errNotSSH)
	}
	o.client = name
	if len(rest) < 4 {
		return nil
	}
	size := binary.BigEndian.Uint32(rest)
	if size > maxPacket {
		return o.fail(errLarge)
	}
	if uint32(len(rest)-4) < size {
		return nil
	}
	o.hassh, o.algorithms = fingerprint(rest[4 : 4+size])
	return o.fail(nil)
}

// fail ends the reading.
func (o *opening) fail(err error) error {
	o.done, o.buf = true, nil
	return err
}

// fingerprint returns the HASSH of a packet with a client's offer, and the text below that MD5: key
// exchange, encryption, authentication and compression, as the client would send with them
// (github.com/salesforce/hassh). It is empty for another packet.
func fingerprint(packet []byte) (hassh, algorithms string) {
	if len(packet) < 2+cookie || packet[1] != kexinit {
		return "", ""
	}
	padding := int(packet[0])
	lists := packet[2+cookie:]
	if padding > len(lists) {
		return "", ""
	}
	lists = lists[:len(lists)-padding]
	var names [8]string // in the order of RFC 4253, 7.1, of which the odd ones are the server's
	for i := range names {
		if len(lists) < 4 {
			return "", ""
		}
		n := binary.BigEndian.Uint32(lists)
		if uint64(n) > uint64(len(lists)-4) {
			return "", ""
		}
		names[i], lists = string(lists[4:4+n]), lists[4+n:]
	}
	offer := strings.Join([]string{names[0], names[2], names[4], names[6]}, ";")
	sum := md5.Sum([]byte(offer))
	return hex.EncodeToString(sum[:]), offer[:min(len(offer), maxAlgorithms)]
}
