package craft

import (
	"net/netip"
	"slices"

	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// variants is the number of packets made of one rule's terms before giving up: another rule may
// stand in the way of some of them.
const variants = 64

// minRun is the shortest frame that the kernel runs a program on.
const minRun = 14

// Search is a search for a frame for each slot of a policy.
type Search struct {
	Policy *policy.Policy
	// Judge lists the slots that count a frame: that of the rule that decides it, and those of
	// earlier rules that count. Dynamic sets hold Entries.
	Judge func(frame []byte) []int
	// Every is 1 to make packets for all rules, 2 for those of number 0, 2, 4, ..., and so on.
	Every int
	// Next is called before each packet is judged, which takes milliseconds where there are very
	// many rules, with the number of the rule and how many there are. Its error ends the search.
	Next func(rule, of int) error
}

// ForSlots finds a frame for each slot of the policy, as far as it can; nil where it found none.
// Frames are made from the rules first, then for built-in slots. Remaining slots are tried with the
// packets of the policy's own tests.
func (s *Search) ForSlots() ([][]byte, error) {
	f := &found{judge: s.Judge, frames: make([][]byte, s.Policy.DefaultSlot()+1)}
	rules := slices.Concat(s.Policy.Protect, s.Policy.Rules)
	for i := 0; i < len(rules); i += s.Every {
		slot := s.Policy.ProtectSlot(i)
		for v := 0; v < variants && f.frames[slot] == nil; v++ {
			if err := s.Next(i, len(rules)); err != nil {
				return nil, err
			}
			f.try(slot, variant(rules[i], v))
		}
	}
	for _, spec := range builtIn() {
		f.try(anySlot, spec)
	}
	f.take(anySlot, malformed)
	for _, t := range s.Policy.Tests {
		for _, step := range t.Steps {
			if err := s.Next(len(rules), len(rules)); err != nil {
				return nil, err
			}
			f.take(anySlot, step.Frame)
		}
	}
	return f.frames, nil
}

// found are the frames found so far, by slot.
type found struct {
	judge  func([]byte) []int
	frames [][]byte
}

// anySlot is for a frame that serves whatever slot it reaches.
const anySlot = -1

// try builds a packet and keeps it if it reaches the slot.
func (f *found) try(slot int, s packet.Spec) {
	if frame, err := packet.Build(s); err == nil {
		f.take(slot, frame)
	}
}

// take takes a frame for the slot if it reaches it and there is none yet.
func (f *found) take(slot int, frame []byte) {
	if len(frame) < minRun {
		return
	}
	for _, reached := range f.judge(frame) {
		if (slot == anySlot || slot == reached) && f.frames[reached] == nil {
			f.frames[reached] = frame
		}
	}
}

// shortest is the least length of an IP packet for which there is room in any header that is built.
const shortest = 60

// variant makes a packet of which the terms of a rule hold, if it is put together in the
// straightforward way. n chooses the family, and among the values that hold.
func variant(rule *policy.Rule, n int) packet.Spec {
	s := packet.Spec{Family: packet.IPv4 + packet.Family(n%2)}
	Rule(&s, rule, inside(n/2))
	if s.Len != nil {
		s.Len = new(max(*s.Len, shortest))
	}
	return s
}

// malformed is an Ethernet header that announces IPv4, and nothing behind it.
var malformed = []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0}

// builtIn are packets for the essential rules and, with luck, the default.
func builtIn() []packet.Spec {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	return []packet.Spec{
		{Family: packet.ARP},
		{From: v6, Type: new(uint8(135)), TTL: new(uint8(255))},
		{From: v4, Type: new(uint8(3)), Code: 4},
		{From: v4, FromPort: new(uint16(67)), ToPort: new(uint16(68))},
		{From: netip.MustParseAddr("fe80::1"), Type: new(uint8(130)), TTL: new(uint8(1))},
		{Family: packet.OtherFamily, EtherType: 0x8809, Len: new(46)},
		{From: v4, ToPort: new(uint16(9))},
		{From: v4, Proto: new(uint8(packet.ProtoTCP)), ToPort: new(uint16(9))},
		{From: v6, ToPort: new(uint16(9))},
		{From: v4},
		{From: v6},
		{Family: packet.OtherFamily, EtherType: 0x88cc, Len: new(46)},
	}
}
