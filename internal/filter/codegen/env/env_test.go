package env

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf/btf"

	"levee/internal/lang/field"
)

// TestGoAndCAgreeOnTheEnvironment compares where and how wide generated code reads with what
// clang wrote into the object of the decoder.
func TestGoAndCAgreeOnTheEnvironment(t *testing.T) {
	spec, err := loadDecoders()
	if err != nil {
		t.Fatal(err)
	}
	var env, key *btf.Struct
	for name, to := range map[string]**btf.Struct{"env": &env, "key": &key} {
		if err := spec.Types.TypeByName(name, to); err != nil {
			t.Fatalf("struct %s: %v", name, err)
		}
	}
	if n := int16(env.Size); n != -64-At || n%8 != 0 {
		t.Errorf("struct env has %d bytes, generated code reckons with %d", n, -64-At)
	}
	if key.Size != KeySize {
		t.Errorf("struct key has %d bytes, generated code reckons with %d", key.Size, KeySize)
	}
	type place struct{ at, size int16 }
	there := map[string]place{}
	add := func(s *btf.Struct, base int16) {
		for _, m := range s.Members {
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				t.Fatal(err)
			}
			there[m.Name] = place{base + int16(m.Offset.Bytes()), int16(size)}
		}
	}
	add(env, At)
	add(key, there["key"].at)
	compared := map[string]bool{}
	compare := func(name string, at int16, size int) {
		if got, ok := there[name]; !ok || got != (place{at, int16(size)}) {
			t.Errorf("%s: %d bytes at %d, generated code reads %d at %d", name, got.size, got.at,
				size, at)
		}
		compared[name] = true
	}
	for f, p := range places {
		if p.bytes == 0 {
			continue
		}
		info := field.Field(f).Info()
		if info.Byte > 0 { // of a member of two
			compare(info.Key, p.at-int16(info.Byte)+1, 2)
		} else {
			compare(info.Key, p.at, p.bytes)
		}
		// Who sends has the place of what is on words: 150 rules on uid and 150 on gid load in two
		// seconds.
		if !info.Hot && p.bytes < 8 && (p.at-At)%8 == 0 && info.Kernel != field.Leaving {
			t.Errorf("%s lies at %d, where the verifier remembers what compares have shown",
				info.Key, p.at-At)
		}
	}
	for name, p := range map[string]place{
		"key": {KeyAt, int16(KeySize)}, "row": {RowAt, 4}, "effects": {effectsAt, 8},
		"inner": {InnerAt, 8},
		"bytes": {KeyBytes, 4}, "class": {KeyClass, 1}, "off": {KeyOff, 2}, "left": {KeyLeft, 2},
		"src_hi": {KeySrcHi, 8}, "src_lo": {KeySrcLo, 8}, "dst_hi": {KeyDstHi, 8},
		"dst_lo":   {KeyDstLo, 8},
		"src_port": {KeySrcPort, 2}, "dst_port": {KeyDstPort, 2}, "icmp": {KeyICMP, 2},
		"frag": {KeyFrag, 2}, "datagram": {KeyAt + int16(unsafe.Offsetof(parseKey{}.Datagram)), 4},
		"proto": {KeyProto, 1}, "proof": {KeyProof, 4}, "flow": {keyFlow, 1},
		"proven": {KeyAt + int16(unsafe.Offsetof(parseKey{}.Proven)), 1},
	} {
		compare(name, p.at, int(p.size))
	}
	for name := range there {
		if !compared[name] && !strings.HasPrefix(name, "unused") {
			t.Errorf("%s is in struct env and nothing here compares it", name)
		}
	}
}

// onWords are the small members of struct key that may lie on a multiple of 8 bytes: fields with
// registers of their own, and what is the same on all ways through the decoder, or on few.
var onWords = []string{"Bytes", "SrcPort", "Icmp", "Frag", "Proof", "Datagram", "Row"}

// What is stored on a multiple of 8 bytes the verifier remembers, and walks the rules once for each
// way on which it is something else. A member in front of Off moved that there: nearly no program
// for XDP with several buffers, or for TCX, loaded any more.
func TestSmallMembersOfTheKeyLieBesideWords(t *testing.T) {
	key := reflect.TypeFor[parseKey]()
	for i := range key.NumField() {
		m := key.Field(i)
		if m.Type.Size() < 8 && m.Offset%8 == 0 && m.Name != "_" &&
			!slices.Contains(onWords, m.Name) {
			t.Errorf("%s lies at %d of struct key: put new members in front of row, so that no "+
				"other moves", m.Name, m.Offset)
		}
	}
}
