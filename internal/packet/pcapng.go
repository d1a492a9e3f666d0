package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"
)

// Blocks of pcapng (draft-ietf-opsawg-pcapng section 4).
const (
	blockInterface = 1
	blockPacketOld = 2
	blockSimple    = 3
	blockEnhanced  = 6
	blockSection   = magicNG
	byteOrderMagic = 0x1a2b3c4d
)

// Limits that no capture reaches: a block longer than maxBlock is refused before it is skipped,
// and so is a section with more interfaces than maxInterfaces.
const (
	maxBlock      = 64 << 20
	maxInterfaces = 4096
)

// captureInterface holds the parameters by which records of an interface are read.
type captureInterface struct {
	link    uint16
	snaplen uint32
	resol   uint8 // if_tsresol: a negative power of 10, or of 2 with the highest bit set
	offset  int64 // if_tsoffset: seconds to add
}

// section reads a Section Header Block from its first byte.
func (c *Reader) section() error {
	c.start = c.offset
	h, err := c.head(16, "the section header")
	if err != nil {
		return err
	}
	switch uint32(byteOrderMagic) {
	case binary.LittleEndian.Uint32(h[8:]):
		c.order = binary.LittleEndian
	case binary.BigEndian.Uint32(h[8:]):
		c.order = binary.BigEndian
	default:
		return c.fail(fmt.Errorf("a section header whose byte-order magic is %x", h[8:12]))
	}
	if major := c.order.Uint16(h[12:]); major != 1 {
		return c.fail(fmt.Errorf("pcapng version %d.%d; 1.0 is known", major,
			c.order.Uint16(h[14:])))
	}
	length := c.order.Uint32(h[4:])
	if err := c.checkLength(length, 28); err != nil {
		return err
	}
	c.interfaces = c.interfaces[:0]
	return c.finishBlock(length, 16)
}

func (c *Reader) checkLength(length, least uint32) error {
	if length < least || length%4 != 0 || length > maxBlock {
		return c.fail(fmt.Errorf("a block of %d bytes; lengths are multiples of 4 from %d to %d",
			length, least, maxBlock))
	}
	return nil
}

// finishBlock skips what is left of a block of which used bytes have been read, and holds the
// length at its end against the one at its start.
func (c *Reader) finishBlock(length, used uint32) error {
	if err := c.skip(int64(length-used-4), "a block"); err != nil {
		return err
	}
	b, err := c.head(4, "the length behind a block")
	if err != nil {
		return err
	}
	if again := c.order.Uint32(b[:]); again != length {
		return c.fail(fmt.Errorf("a block that is %d bytes long by its start and %d by its end",
			length, again))
	}
	return nil
}

// nextNG reads blocks up to and including the next packet.
func (c *Reader) nextNG() (Record, error) {
	for {
		c.start = c.offset
		if end, err := c.atEnd(); err != nil || end {
			if end {
				err = io.EOF
			}
			return Record{}, err
		}
		if head, err := c.r.Peek(4); err == nil && binary.BigEndian.Uint32(head) == blockSection {
			if err := c.section(); err != nil {
				return Record{}, err
			}
			continue
		}
		h, err := c.head(8, "a block header")
		if err != nil {
			return Record{}, err
		}
		typ, length := c.order.Uint32(h[:]), c.order.Uint32(h[4:])
		if err := c.checkLength(length, 12); err != nil {
			return Record{}, err
		}
		switch typ {
		case blockEnhanced, blockPacketOld, blockSimple:
			return c.packetBlock(typ, length)
		case blockInterface:
			err = c.interfaceBlock(length)
		default:
			err = c.finishBlock(length, 8)
		}
		if err != nil {
			return Record{}, err
		}
	}
}

// interfaceBlock reads an Interface Description Block behind its length.
func (c *Reader) interfaceBlock(length uint32) error {
	if err := c.checkLength(length, 20); err != nil {
		return err
	}
	if len(c.interfaces) == maxInterfaces {
		return c.fail(fmt.Errorf("more than %d interfaces in a section", maxInterfaces))
	}
	h, err := c.head(8, "an interface description")
	if err != nil {
		return err
	}
	in := captureInterface{link: c.order.Uint16(h[:]), snaplen: c.order.Uint32(h[4:]), resol: 6}
	used := uint32(16)
	for length-4-used >= 4 {
		o, err := c.head(4, "an option")
		if err != nil {
			return err
		}
		used += 4
		code, size := c.order.Uint16(o[:]), c.order.Uint16(o[2:])
		padded := (uint32(size) + 3) &^ 3
		if padded > length-4-used {
			return c.fail(fmt.Errorf("an interface option of %d bytes, longer than its block",
				size))
		}
		if code == 0 {
			break
		}
		if err := c.interfaceOption(&in, code, size, padded); err != nil {
			return err
		}
		used += padded
	}
	c.interfaces = append(c.interfaces, in)
	return c.finishBlock(length, used)
}

// interfaceOption reads the value of one option; padded is its size with padding.
func (c *Reader) interfaceOption(in *captureInterface, code, size uint16, padded uint32) error {
	var v [8]byte
	switch {
	case code == 9 && size == 1: // if_tsresol
		if err := c.read(v[:4], "an option"); err != nil {
			return err
		}
		in.resol = v[0]
		if limit := map[bool]uint8{false: 19, true: 63}[v[0]&0x80 != 0]; v[0]&0x7f > limit {
			return c.fail(fmt.Errorf("a time resolution of %#02x, finer than 64 bits can count",
				v[0]))
		}
		return nil
	case code == 14 && size == 8: // if_tsoffset
		if err := c.read(v[:], "an option"); err != nil {
			return err
		}
		in.offset = int64(c.order.Uint64(v[:]))
		return nil
	}
	return c.skip(int64(padded), "an option")
}

// packetBlock reads a packet block behind its length.
func (c *Reader) packetBlock(typ, length uint32) (Record, error) {
	fixed := uint32(20)
	if typ == blockSimple {
		fixed = 4
	}
	if err := c.checkLength(length, 12+fixed); err != nil {
		return Record{}, err
	}
	h, err := c.head(fixed, "a packet block")
	if err != nil {
		return Record{}, err
	}
	var id, captured, original uint32
	switch typ {
	case blockSimple:
		original = c.order.Uint32(h[:])
	case blockPacketOld:
		id = uint32(c.order.Uint16(h[:]))
	case blockEnhanced:
		id = c.order.Uint32(h[:])
	}
	if uint64(id) >= uint64(len(c.interfaces)) {
		return Record{}, c.fail(fmt.Errorf("interface %d; the section has described %d so far", id,
			len(c.interfaces)))
	}
	in := c.interfaces[id]
	var at time.Time
	if typ == blockSimple {
		captured = original
		if in.snaplen > 0 {
			captured = min(original, in.snaplen)
		}
	} else {
		var err error
		if at, err = in.time(
			uint64(c.order.Uint32(h[4:]))<<32 | uint64(c.order.Uint32(h[8:]))); err != nil {
			return Record{}, c.fail(err)
		}
		captured, original = c.order.Uint32(h[12:]), c.order.Uint32(h[16:])
	}
	if captured > length-12-fixed {
		return Record{}, c.fail(fmt.Errorf("a packet of %d captured bytes in a block of %d",
			captured, length))
	}
	rec, err := c.record(in.link, captured, original, at)
	if err != nil {
		return Record{}, err
	}
	return rec, c.finishBlock(length, 8+fixed+captured)
}

// time turns a time stamp in units of the interface into a time.
func (in captureInterface) time(stamp uint64) (time.Time, error) {
	var sec, nsec uint64
	if n := in.resol & 0x7f; in.resol&0x80 != 0 {
		sec = stamp >> n
		hi, lo := bits.Mul64(stamp&(1<<n-1), 1e9)
		nsec = hi<<(64-n) | lo>>n
		if n == 0 {
			nsec = 0
		}
	} else {
		unit := pow10(n)
		sec = stamp / unit
		hi, lo := bits.Mul64(stamp%unit, 1e9)
		nsec, _ = bits.Div64(hi, lo, unit)
	}
	const centuries = 1 << 35 // seconds; about a thousand years
	if sec > centuries || in.offset > centuries || in.offset < -centuries {
		return time.Time{}, errors.New("a time stamp a thousand years from now")
	}
	return time.Unix(int64(sec)+in.offset, int64(nsec)).UTC(), nil
}

// pow10 is 10 to the n, which is at most 19.
func pow10(n uint8) uint64 {
	v := uint64(1)
	for range n {
		v *= 10
	}
	return v
}
