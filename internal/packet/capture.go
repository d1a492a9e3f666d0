package packet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// maxCaptured is the most bytes that one record may hold. It is the largest snap length that
// libpcap takes (MAXIMUM_SNAPLEN in pcap-int.h), so no capture program writes more.
const maxCaptured = 262144

// Record is one packet of a capture file.
type Record struct {
	Number int       // in the file, from 1
	Time   time.Time // when it was captured; the zero time if the file does not say
	Data   []byte    // Ethernet frame as far as captured; valid until the next call of Next
	Length int       // bytes of the frame on the wire, at least len(Data)
}

// Whole returns the frame at its length on the wire. Where the capture's snap length has cut it,
// zero bytes stand for what is missing: a policy never looks at payload, so the verdict is that of
// the packet itself as long as the headers were captured. The cut frame alone would be judged as a
// truncated packet, which it was not. buf is used if it is large enough; missing is the number of
// zero bytes. A length above 262,144 is not believed, and the frame is returned as it is.
func (r Record) Whole(buf []byte) (frame []byte, missing int) {
	if r.Length <= len(r.Data) || r.Length > maxCaptured {
		return r.Data, 0
	}
	if cap(buf) < r.Length {
		buf = make([]byte, r.Length)
	}
	buf = buf[:r.Length]
	clear(buf[copy(buf, r.Data):])
	return buf, r.Length - len(r.Data)
}

// CaptureError says where a capture file is wrong. It wraps io.ErrUnexpectedEOF when the file
// ends too early.
type CaptureError struct {
	Packet int   // the record that could not be read, from 1; 0 before the first
	Offset int64 // bytes from the start of the file
	Err    error
}

func (e *CaptureError) Error() string {
	switch {
	case e.Packet == 0:
		return fmt.Sprintf("capture file, byte %d: %v", e.Offset, e.Err)
	case errors.Is(e.Err, io.ErrUnexpectedEOF):
		return fmt.Sprintf("capture file, packet %d, byte %d: %v; whole packets before it: %d",
			e.Packet, e.Offset, e.Err, e.Packet-1)
	}
	return fmt.Sprintf("capture file, packet %d, byte %d: %v", e.Packet, e.Offset, e.Err)
}

func (e *CaptureError) Unwrap() error { return e.Err }

// earlyEnd is io.ErrUnexpectedEOF in words.
type earlyEnd struct{ text string }

func (e *earlyEnd) Error() string { return e.text }
func (e *earlyEnd) Unwrap() error { return io.ErrUnexpectedEOF }

func early(format string, args ...any) error { return &earlyEnd{fmt.Sprintf(format, args...)} }

// Reader reads pcap and pcapng files of link types Ethernet, raw IP and Linux cooked capture. It
// holds one record, and never more than maxCaptured bytes for it.
type Reader struct {
	r      *bufio.Reader
	offset int64 // of the next byte
	start  int64 // of the record or block being read
	n      int   // records returned
	order  binary.ByteOrder
	buf    []byte   // of a record, behind room for an Ethernet header
	fixed  [24]byte // of a header, until the next is read
	begun  bool     // the file's header has been read
	scan   func() (Record, error)
	failed error // what Next returns from now on

	// Classic pcap.
	link     uint16
	fraction time.Duration // unit of the second half of a time stamp

	// pcapng: interfaces of the section.
	interfaces []captureInterface
}

// Magic numbers of the files that NewReader knows, and of some that it can name.
const (
	magicMicro    = 0xa1b2c3d4
	magicNano     = 0xa1b23c4d
	magicModified = 0xa1b2cd34
	magicNG       = 0x0a0d0d0a // the same in both byte orders
)

// NewReader reads the header of a capture file. The error is a *CaptureError, or what r returned.
func NewReader(r io.Reader) (*Reader, error) {
	c := &Reader{r: bufio.NewReaderSize(r, 64<<10)}
	head, err := c.r.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(head) < 4 {
		return nil, c.fail(early("the file has %d bytes and is no capture", len(head)))
	}
	if binary.BigEndian.Uint32(head) == magicNG {
		c.scan = c.nextNG
		return c.begin(c.section)
	}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		switch order.Uint32(head) {
		case magicMicro, magicNano:
			c.order = order
			c.scan = c.nextClassic
			return c.begin(c.classicHeader)
		case magicModified:
			return nil, c.fail(errors.New("a pcap file of the modified kind of 1999 (magic " +
				"a1b2cd34); convert it with `editcap -F pcap`"))
		}
	}
	if head[0] == 0x1f && head[1] == 0x8b {
		return nil, c.fail(errors.New("a gzip file; unpack it first"))
	}
	return nil, c.fail(fmt.Errorf("no pcap or pcapng file: it begins with %x", head))
}

// begin reads the file's header.
func (c *Reader) begin(header func() error) (*Reader, error) {
	if err := header(); err != nil {
		return nil, err
	}
	c.begun = true
	return c, nil
}

// Next reads one record. At the end of the file it returns io.EOF; anything else that is wrong
// with the file is a *CaptureError, and stays.
func (c *Reader) Next() (Record, error) {
	if c.failed != nil {
		return Record{}, c.failed
	}
	rec, err := c.scan()
	if err != nil {
		c.failed = err
		return Record{}, err
	}
	c.n++
	rec.Number = c.n
	return rec, nil
}

// fail says where err was met: in which record, and where that begins.
func (c *Reader) fail(err error) error {
	n := 0
	if c.begun {
		n = c.n + 1
	}
	return &CaptureError{Packet: n, Offset: c.start, Err: err}
}

// read fills b; what says what b is, for the error.
func (c *Reader) read(b []byte, what string) error {
	n, err := io.ReadFull(c.r, b)
	c.offset += int64(n)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return c.fail(early("the file ends after %d of %d bytes of %s", n, len(b), what))
	}
	return err
}

// head is read for the n bytes of a header, at most 24; they stay until the next is read.
func (c *Reader) head(n uint32, what string) ([]byte, error) {
	b := c.fixed[:n]
	return b, c.read(b, what)
}

// skip discards n bytes.
func (c *Reader) skip(n int64, what string) error {
	done, err := c.r.Discard(int(n))
	c.offset += int64(done)
	if err == io.EOF {
		return c.fail(early("the file ends after %d of %d bytes of %s", done, n, what))
	}
	return err
}

// atEnd says whether the file ends here, between two records.
func (c *Reader) atEnd() (bool, error) {
	_, err := c.r.Peek(1)
	if err == io.EOF {
		return true, nil
	}
	return false, err
}

// record reads captured bytes of the link type and makes the frame of them; Next numbers it.
func (c *Reader) record(link uint16, captured, original uint32, at time.Time) (Record, error) {
	if captured > maxCaptured {
		return Record{}, c.fail(fmt.Errorf("the record claims %d captured bytes, above the %d "+
			"that any capture holds", captured, maxCaptured))
	}
	if need := linkRoom + int(captured); cap(c.buf) < need {
		c.buf = make([]byte, need, max(need, 4096))
	}
	b := c.buf[:linkRoom+int(captured)]
	if err := c.read(b[linkRoom:], "the packet"); err != nil {
		return Record{}, err
	}
	frame, err := toEthernet(link, b)
	if err != nil {
		return Record{}, c.fail(err)
	}
	grown := len(frame) - int(captured)
	return Record{Time: at, Data: frame, Length: max(int(original)+grown, len(frame))}, nil
}

func (c *Reader) classicHeader() error {
	h, err := c.head(24, "the file header")
	if err != nil {
		return err
	}
	if major := c.order.Uint16(h[4:]); major != 2 {
		return c.fail(fmt.Errorf("pcap version %d.%d; 2.4 is known", major, c.order.Uint16(h[6:])))
	}
	c.fraction = time.Microsecond
	if c.order.Uint32(h[:]) == magicNano {
		c.fraction = time.Nanosecond
	}
	// Above the low 16 bits stands the length of an FCS (draft-ietf-opsawg-pcap section 4). It is
	// not cut off: behind an IP packet it is padding.
	c.link = uint16(c.order.Uint32(h[20:]))
	if err := knownLink(c.link); err != nil {
		return c.fail(err)
	}
	return nil
}

func (c *Reader) nextClassic() (Record, error) {
	c.start = c.offset
	if end, err := c.atEnd(); err != nil || end {
		if end {
			err = io.EOF
		}
		return Record{}, err
	}
	h, err := c.head(16, "the record header")
	if err != nil {
		return Record{}, err
	}
	at := time.Unix(int64(c.order.Uint32(h[:])), int64(c.order.Uint32(h[4:]))*int64(c.fraction))
	return c.record(c.link, c.order.Uint32(h[8:]), c.order.Uint32(h[12:]), at.UTC())
}
