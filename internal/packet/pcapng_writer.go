package packet

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"runtime"
	"time"
)

// NGWriter writes captures as pcapng (draft-ietf-opsawg-pcapng), in little endian with time stamps
// in nanoseconds. Each block is one write.
type NGWriter struct {
	w          io.Writer
	interfaces int
}

// NGInterface is the interface at which packets were taken.
type NGInterface struct {
	Name   string
	Filter string // in words; "" for none
	Link   Link
	Snap   int // bytes that are taken of a packet at most
}

// NGPacket is a packet with what is known of it.
type NGPacket struct {
	Interface int
	At        time.Time
	Data      []byte
	Length    int // on the wire, at least that of Data
	// Judged is the decision on the packet, nil if there was none.
	Judged *NGJudged
}

// NGJudged says which rule decided a packet.
type NGJudged struct {
	Comment string
	ID      uint64
	Queue   uint32
	AtTC    bool
	Code    int // that the program returned
}

// Types of blocks and options that only writers need.
const (
	blockStatistics = 5

	ngComment                                           = 1
	ngHardware, ngOS, ngApplication                     = 2, 3, 4      // of a section
	ngName, ngResolution, ngFilter, ngInterfaceOS       = 2, 9, 11, 12 // of an interface
	ngPacketID, ngQueue, ngVerdict                      = 5, 6, 7      // of a packet
	ngReceived, ngDropped                               = 4, 5         // of statistics
	verdictTC, verdictXDP                         uint8 = 1, 2
)

// ngOptions are options of a block.
type ngOptions []byte

func (o *ngOptions) add(code uint16, value ...byte) {
	b := binary.LittleEndian.AppendUint16(*o, code)
	b = append(binary.LittleEndian.AppendUint16(b, uint16(len(value))), value...)
	*o = append(b, make([]byte, -len(value)&3)...)
}

// text adds one that is not empty.
func (o *ngOptions) text(code uint16, value string) {
	if value != "" {
		o.add(code, []byte(value[:min(len(value), math.MaxUint16)])...)
	}
}

func (o *ngOptions) number(code uint16, v uint64) {
	o.add(code, binary.LittleEndian.AppendUint64(nil, v)...)
}

// NewNGWriter begins a capture, by an application on hardware, which may be "".
func NewNGWriter(w io.Writer, application, hardware string) (*NGWriter, error) {
	var o ngOptions
	o.text(ngApplication, application)
	o.text(ngHardware, hardware)
	o.text(ngOS, runtime.GOOS)
	b := binary.LittleEndian.AppendUint32(nil, byteOrderMagic)
	b = binary.LittleEndian.AppendUint32(b, 1) // version 1.0
	b = binary.LittleEndian.AppendUint64(b, math.MaxUint64)
	n := &NGWriter{w: w}
	return n, n.block(blockSection, b, o)
}

// block writes a block.
func (n *NGWriter) block(typ uint32, body []byte, o ngOptions) error {
	if len(o) > 0 {
		o = append(o, 0, 0, 0, 0) // the end of options
	}
	pad := -len(body) & 3
	length := uint32(12 + len(body) + pad + len(o))
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, length), typ)
	b = append(binary.LittleEndian.AppendUint32(b, length), body...)
	b = append(append(b, make([]byte, pad)...), o...)
	if _, err := n.w.Write(binary.LittleEndian.AppendUint32(b, length)); err != nil {
		return fmt.Errorf("write a block of a capture: %w", err)
	}
	return nil
}

// Interface adds an interface and gives its number.
func (n *NGWriter) Interface(i NGInterface) (number int, err error) {
	var o ngOptions
	o.text(ngName, i.Name)
	if i.Filter != "" {
		o.text(ngFilter, "\x00"+i.Filter) // 0: in words
	}
	o.text(ngInterfaceOS, runtime.GOOS)
	o.add(ngResolution, 9)
	link := uint32(linkEthernet)
	if i.Link == L3 {
		link = linkRaw
	}
	b := binary.LittleEndian.AppendUint32(nil, link)
	n.interfaces++
	return n.interfaces - 1, n.block(blockInterface, binary.LittleEndian.AppendUint32(b,
		uint32(i.Snap)), o)
}

// Packet adds a packet.
func (n *NGWriter) Packet(p *NGPacket) error {
	if p.Interface < 0 || p.Interface >= n.interfaces || len(p.Data) > p.Length {
		return fmt.Errorf("write %d bytes of %d of interface %d, of %d", len(p.Data), p.Length,
			p.Interface, n.interfaces)
	}
	b := append(n.stamp(p.Interface, p.At), make([]byte, 8, 8+len(p.Data))...)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(p.Data)))
	binary.LittleEndian.PutUint32(b[16:], uint32(p.Length))
	var o ngOptions
	if j := p.Judged; j != nil {
		o.text(ngComment, j.Comment)
		o.number(ngPacketID, j.ID)
		o.add(ngQueue, binary.LittleEndian.AppendUint32(nil, j.Queue)...)
		verdict := verdictXDP
		if j.AtTC {
			verdict = verdictTC
		}
		o.add(ngVerdict, binary.LittleEndian.AppendUint64([]byte{verdict},
			uint64(int64(j.Code)))...)
	}
	return n.block(blockEnhanced, append(b, p.Data...), o)
}

// Statistics says how many packets of an interface were received and how many of them lost.
func (n *NGWriter) Statistics(number int, at time.Time, received, dropped uint64) error {
	var o ngOptions
	o.number(ngDropped, dropped)
	o.number(ngReceived, received)
	return n.block(blockStatistics, n.stamp(number, at), o)
}

// stamp returns an interface and a time.
func (n *NGWriter) stamp(number int, at time.Time) []byte {
	ns := uint64(at.UnixNano())
	b := binary.LittleEndian.AppendUint32(nil, uint32(number))
	b = binary.LittleEndian.AppendUint32(b, uint32(ns>>32))
	return binary.LittleEndian.AppendUint32(b, uint32(ns))
}
