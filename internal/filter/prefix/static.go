package prefix

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// MaxBytes is the largest map value that a program can address directly: the verifier refuses
// offsets from 1<<29 (BPF_MAX_VAR_OFF, include/linux/bpf_verifier.h).
const MaxBytes = 1 << 29

// fewBounds is up to how many changes of membership straight compares are used. Each compare on the
// way may be mispredicted; the levels cost less from here on, whatever the number
// (docs/explanation/decisions/0011-static-sets.md).
const fewBounds = 4

// Static is a set of prefixes of one family that never changes.
type Static struct {
	width    int // 32 or 128
	prefixes int // as given, of this family
	bounds   []bound
	all      bool
	levels   []level
	data     []byte
}

// NewStatic4 builds the set of the IPv4 prefixes in the list; IPv6 ones are left out. Any order,
// overlap and repetition is allowed. An empty set is valid.
func NewStatic4(prefixes []netip.Prefix) *Static { return build(prefixes, 32) }

// NewStatic6 does the same for IPv6. IPv4-mapped prefixes are taken as the IPv6 prefixes they are.
func NewStatic6(prefixes []netip.Prefix) *Static { return build(prefixes, 128) }

func build(prefixes []netip.Prefix, width int) *Static {
	s := &Static{width: width}
	for _, p := range prefixes {
		if p.IsValid() && p.Addr().BitLen() == width {
			s.prefixes++
		}
	}
	nets := networks(prefixes, width)
	if len(nets) == 1 && nets[0].len == 0 {
		s.all = true
		return s
	}
	// Each network has at most two bounds and adjacent ones share, so a few networks are known to
	// be few bounds only after counting; many are not counted.
	if len(nets) <= 4*fewBounds {
		if b := bounds(nets, width); len(b) <= fewBounds {
			s.bounds = b
			return s
		}
	}
	s.levels = ofStatic.plan(nets, width)
	for i := range s.levels {
		s.data = s.levels[i].build(s.data, nets)
	}
	return s
}

// Bytes returns the value of the map; nil if the set needs none. It must not be changed.
func (s *Static) Bytes() []byte { return s.data }

// MapSpec describes the map that the emitted code reads: an array with one entry, read-only for
// programs; the loader may freeze it once it is filled. It is nil if the set needs no map.
func (s *Static) MapSpec(name string) *ebpf.MapSpec {
	if s.data == nil {
		return nil
	}
	return &ebpf.MapSpec{
		Name:       name,
		Type:       ebpf.Array,
		KeySize:    4,
		ValueSize:  uint32(len(s.data)),
		MaxEntries: 1,
		Flags:      unix.BPF_F_RDONLY_PROG,
		Contents:   []ebpf.MapKV{{Key: uint32(0), Value: s.data}},
	}
}

// Kind names the structure: "none", "all", "compares" or "levels".
func (s *Static) Kind() string {
	switch {
	case s.all:
		return "all"
	case s.levels != nil:
		return "levels"
	case len(s.bounds) == 0:
		return "none"
	}
	return "compares"
}

// Why says, in one line, why this structure was chosen, and names its parts.
func (s *Static) Why() string {
	switch s.Kind() {
	case "none":
		return "no prefix of this family"
	case "all":
		return "the prefixes cover every address"
	case "compares":
		return fmt.Sprintf("%d prefixes change membership at %d addresses, at most %d", s.prefixes,
			len(s.bounds), fewBounds)
	}
	var parts []string
	for i := range s.levels {
		parts = append(parts, s.levels[i].String())
	}
	return fmt.Sprintf("%d prefixes, %d bytes: %s", s.prefixes, len(s.data),
		strings.Join(parts, "; "))
}

func (l *level) String() string {
	lengths := fmt.Sprintf("/%d", l.maxLen)
	if l.minLen != l.maxLen {
		lengths = fmt.Sprintf("/%d-/%d", l.minLen, l.maxLen)
	}
	if l.direct {
		return fmt.Sprintf("%s in a bitmap of /%d", lengths, l.top)
	}
	if l.span == 0 {
		return fmt.Sprintf("%s in a perfect hash of %d", lengths, l.blocks)
	}
	return fmt.Sprintf("%s in a perfect hash of %d bitmaps of /%d", lengths, l.blocks, l.top)
}

// Levels returns how many levels are looked into, 0 for compares.
func (s *Static) Levels() int { return len(s.levels) }

// Instructions of what Emit gives, at most, as the kernel counts them.
func (s *Static) Instructions() int {
	const level, bound, rest = 64, 10, 6
	return level*len(s.levels) + bound*len(s.bounds) + rest
}
