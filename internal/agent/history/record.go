package history

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
)

// A segment is a magic and records. A record is its length as a uvarint, a CRC-32C of its payload,
// and the payload, which begins with one of these bytes.
const (
	magic   = "levee history 1\n"
	define  = 1 // a number for a series, with what is shown of it
	present = 2 // the series that the following points have, also where they count nothing
	point   = 3
)

var errRecord = errors.New("a record is damaged")

// mostRecord bounds what a length may claim.
const mostRecord = 1 << 20

func sumOf(payload []byte) uint32 {
	return crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli))
}

func appendRecord(out, payload []byte) []byte {
	out = binary.AppendUvarint(out, uint64(len(payload)))
	out = binary.LittleEndian.AppendUint32(out, sumOf(payload))
	return append(out, payload...)
}

// nextRecord cuts a record off.
func nextRecord(b []byte) (payload, rest []byte, err error) {
	n, at := binary.Uvarint(b)
	if at <= 0 || n == 0 || n > mostRecord || uint64(len(b)-at) < 4+n {
		return nil, nil, errRecord
	}
	sum := binary.LittleEndian.Uint32(b[at:])
	payload, rest = b[at+4:at+4+int(n)], b[at+4+int(n):]
	if sumOf(payload) != sum {
		return nil, nil, errRecord
	}
	return payload, rest, nil
}

func appendText(out []byte, s string) []byte {
	out = binary.AppendUvarint(out, uint64(len(s)))
	return append(out, s...)
}

func encodeSeries(number uint32, s *Series) []byte {
	out := binary.AppendUvarint([]byte{define}, uint64(number))
	for _, t := range []string{s.Dev, string(s.Kind), s.ID, s.Label, s.Verdict, s.Text} {
		out = appendText(out, t)
	}
	return binary.AppendUvarint(out, uint64(s.Line))
}

func encodePresent(numbers []uint32) []byte {
	out := binary.AppendUvarint([]byte{present}, uint64(len(numbers)))
	last := uint32(0)
	for _, n := range numbers {
		out = binary.AppendUvarint(out, uint64(n-last))
		last = n
	}
	return out
}

// value holds the counts of a series in a point: its sums, and the most in one second.
type value struct {
	number                 uint32
	packets, bytes         uint64
	peakPackets, peakBytes uint64
}

// head is the header of a point.
type head struct {
	at       int64  // Unix time of its beginning
	observed uint64 // seconds of it
	last     uint64 // the number of the last second in it, of all that were ever kept
}

func encodePoint(h head, all []value, peaks bool) []byte {
	out := binary.AppendVarint([]byte{point}, h.at)
	out = binary.AppendUvarint(out, h.observed)
	out = binary.AppendUvarint(out, h.last)
	last := uint32(0)
	for _, v := range all {
		out = binary.AppendUvarint(out, uint64(v.number-last))
		last = v.number
		out = binary.AppendUvarint(out, v.packets)
		out = binary.AppendUvarint(out, v.bytes)
		if peaks {
			out = binary.AppendUvarint(out, v.peakPackets)
			out = binary.AppendUvarint(out, v.peakBytes)
		}
	}
	return out
}

// decoder reads a payload. What is too short is an error that stays.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	if len(d.b) > 0 && d.b[0] < 0x80 {
		v := d.b[0]
		d.b = d.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(d.b)
	d.took(n)
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	d.took(n)
	return v
}

// took goes on behind n bytes; none or less says that there was no number.
func (d *decoder) took(n int) {
	if n <= 0 {
		d.bad, d.b = true, nil
		return
	}
	d.b = d.b[n:]
}

func (d *decoder) text() string {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) number() uint32 {
	v := d.uvarint()
	if v > math.MaxInt32 {
		d.bad = true
		return 0
	}
	return uint32(v)
}

func (d *decoder) series() (number uint32, s Series) {
	number = d.number()
	s.Dev, s.Kind, s.ID = d.text(), Kind(d.text()), d.text()
	s.Label, s.Verdict, s.Text = d.text(), d.text(), d.text()
	s.Line = int(d.number())
	return number, s
}

func (d *decoder) present() (out []uint32) {
	n, last := d.uvarint(), uint32(0)
	for range min(n, uint64(len(d.b))) {
		last += d.number()
		out = append(out, last)
	}
	return out
}

func (d *decoder) head() head {
	return head{at: d.varint(), observed: d.uvarint(), last: d.uvarint()}
}

// value returns the next of a point; last is the number of the one before.
func (d *decoder) value(last uint32, peaks bool) (v value) {
	v.number = last + d.number()
	v.packets, v.bytes = d.uvarint(), d.uvarint()
	v.peakPackets, v.peakBytes = v.packets, v.bytes
	if peaks {
		v.peakPackets, v.peakBytes = d.uvarint(), d.uvarint()
	}
	return v
}
