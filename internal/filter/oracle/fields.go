package oracle

import (
	"levee/internal/lang/field"
	"levee/internal/packet"
)

// Fields are the fields of a packet, for who looks for what packets have in common. Judging asks
// nothing of them.
type Fields struct{ vs values }

// Read takes the fields of a well-formed packet.
func (f *Fields) Read(pkt *packet.Packet) { f.vs.read(pkt) }

// Number returns the value of a field that rules compare as a number; false of a packet without it.
func (f *Fields) Number(of field.Field) (uint64, bool) {
	v := &f.vs[of]
	return v.lo, v.present
}
