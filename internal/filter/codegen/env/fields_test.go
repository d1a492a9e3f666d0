package env

import (
	"math/bits"
	"reflect"
	"slices"
	"testing"

	"levee/internal/lang/field"
)

// decodersOwn are the members of struct key that no rule asks for by themselves: what
// decoding needs.
var decodersOwn = []string{"Bytes", "Class", "Frag", "Datagram", "Row",
	"Proof", "Off", "Left"}

func TestEveryMemberOfTheKeyIsAField(t *testing.T) {
	named := map[uintptr]bool{}
	for f := field.None + 1; f < field.NumFields; f++ {
		info, at := f.Info(), places[f]
		if (at.bytes == 0) != (info.Key == "") {
			t.Errorf("%s: member %q of struct key has %d bytes: add it to bpf/parse.h and make "+
				"generate", info.Name, info.Key, at.bytes)
			continue
		}
		if need := bits.Len64(max(info.Values.Highest(), info.Absent)); at.bytes > 0 &&
			need > 8*at.bytes {
			t.Errorf("%s: values have %d bits, the member of struct key %d", info.Name, need,
				8*at.bytes)
		}
		if at.bytes > 0 {
			named[uintptr(at.at-KeyAt)] = true
		}
	}
	key := reflect.TypeFor[parseKey]()
	for i := range key.NumField() {
		m := key.Field(i)
		if m.Name != "_" && !named[m.Offset] && !slices.Contains(decodersOwn, m.Name) {
			t.Errorf("member %s of struct key is no field", m.Name)
		}
	}
}

func TestHotFieldsHaveRegisters(t *testing.T) {
	for f := field.None; f < field.NumFields; f++ {
		if _, ok := hotRegisters[f]; ok != f.Info().Hot {
			t.Errorf("%s: a register %v, hot %v", f.Info().Name, ok, f.Info().Hot)
		}
	}
}
