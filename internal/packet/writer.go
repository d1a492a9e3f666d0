package packet

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// Writer writes Ethernet frames as a classic pcap file with time stamps in nanoseconds.
type Writer struct {
	w io.Writer
}

// NewWriter writes the file header to w.
func NewWriter(w io.Writer) (*Writer, error) {
	h := binary.LittleEndian.AppendUint32(nil, magicNano)
	h = binary.LittleEndian.AppendUint16(h, 2)
	h = binary.LittleEndian.AppendUint16(h, 4)
	h = append(h, make([]byte, 8)...)
	h = binary.LittleEndian.AppendUint32(h, maxCaptured)
	h = binary.LittleEndian.AppendUint32(h, linkEthernet)
	if _, err := w.Write(h); err != nil {
		return nil, fmt.Errorf("write the header of a capture file: %w", err)
	}
	return &Writer{w}, nil
}

// Write adds one frame, captured at the time at; length is its length on the wire, 0 if that is
// len(frame). The file cannot hold times before 1970 or after 2106, nor frames above 262,144
// bytes: those are errors.
func (w *Writer) Write(frame []byte, length int, at time.Time) error {
	length = max(length, len(frame))
	sec := at.Unix()
	if at.IsZero() {
		sec = 0
	}
	if sec < 0 || sec > 1<<32-1 {
		return fmt.Errorf("write a packet of %s: a pcap file holds 1970 to 2106", at)
	}
	if len(frame) > maxCaptured || length > 1<<32-1 {
		return fmt.Errorf("write a packet of %d bytes: a pcap file holds up to %d", len(frame),
			maxCaptured)
	}
	b := make([]byte, 0, 16+len(frame))
	b = binary.LittleEndian.AppendUint32(b, uint32(sec))
	b = binary.LittleEndian.AppendUint32(b, uint32(at.Nanosecond()))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(frame)))
	b = binary.LittleEndian.AppendUint32(b, uint32(length))
	if _, err := w.w.Write(append(b, frame...)); err != nil {
		return fmt.Errorf("write a packet to a capture file: %w", err)
	}
	return nil
}
