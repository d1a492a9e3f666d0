package env

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/cilium/ebpf/asm"

	"levee/internal/lang/field"
)

// places are the offsets of the fields in struct key, by the names of its members in the table of
// fields.
var places = func() (out [field.NumFields]struct {
	at    int16 // from R10 in the main function
	bytes int
}) {
	key := reflect.TypeFor[parseKey]()
	for f := range out {
		name := strings.ReplaceAll(field.Field(f).Info().Key, "_", "")
		m, ok := key.FieldByNameFunc(func(member string) bool {
			return strings.EqualFold(member, name)
		})
		if !ok {
			continue
		}
		out[f].at, out[f].bytes = KeyAt+int16(m.Offset), int(m.Type.Size())
		if nth := field.Field(f).Info().Byte; nth > 0 {
			out[f].at, out[f].bytes = out[f].at+int16(nth)-1, 1
		}
	}
	return out
}()

// FieldAt returns the place of a field in struct key, from R10 in the main function, and its bytes.
func (c *Code) FieldAt(f field.Field) (at int16, n int) {
	if f >= field.NumFields || places[f].bytes == 0 {
		panic(Unknown(f))
	}
	return places[f].at, places[f].bytes
}

func Unknown(f field.Field) string {
	return fmt.Sprintf("there is no code that asks for field %d (%q)", f, f.Info().Name)
}

// SizeOf returns a load or store of n bytes.
func SizeOf(n int) asm.Size {
	switch n {
	case 1:
		return asm.Byte
	case 2:
		return asm.Half
	case 4:
		return asm.Word
	}
	return asm.DWord
}

// hotRegisters hold fields while rules are tried. No packet has two of those that share one.
var hotRegisters = map[field.Field]asm.Register{
	field.SrcAddr: RegSrc, field.DstAddr: RegDst, field.SrcPort: RegSrcPort,
	field.DstPort: RegDstPort, field.ICMPType: RegDstPort, field.ICMP6Type: RegDstPort,
}

// HotRegister returns the register of a field that has one.
func HotRegister(f field.Field) (asm.Register, bool) {
	if !f.Info().Hot {
		return 0, false
	}
	return hotRegisters[f], true
}
