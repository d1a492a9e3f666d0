package sets

import (
	"fmt"
	"iter"
	"math/bits"
	"net/netip"

	"github.com/cilium/ebpf"

	"levee/internal/filter/endpoint"
	"levee/internal/filter/names"
	"levee/internal/filter/prefix"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/policy"
)

// Table is the memory of a dynamic set, of one type of entries. Ends of leases are in jiffies, 0
// for never.
type Table interface {
	Add(e policy.Element, expires uint64) error
	Touch(e policy.Element)
	Delete(e policy.Element) bool
	Get(e policy.Element) (expires uint64, ok bool)
	All() iter.Seq2[policy.Element, uint64]
	Expire(now uint64) int
	Mend()
	RollUp(spare func(netip.Prefix) bool) int
	CopyTo(dst []byte) error
	Due() bool
	Merge()
	Rest(until uint64)
	Len() int
	Max() int
	Room() int
	Refused() uint64
	Refuse(n uint64)
}

// tableSpec describes the map of a set laid out for room entries.
func tableSpec(t policy.SetType, name string, room int) (*ebpf.MapSpec, error) {
	switch t {
	case policy.Addresses:
		return prefix.DynamicSpec(name, room)
	case policy.Names:
		return names.Spec(name, room)
	}
	return endpoint.Spec(name, room)
}

// format makes memory an empty set, laid out as memory of that size is.
func format(t policy.SetType, mem []byte, max, room int, secret names.Secret) error {
	switch t {
	case policy.Addresses:
		return prefix.FormatRoom(mem, max, room)
	case policy.Names:
		return names.FormatRoom(mem, max, room, secret)
	}
	return endpoint.FormatRoom(mem, max, room)
}

// OpenTable opens the memory of the set, and mends what a writer left half-way.
func (s *Memory) OpenTable() error {
	switch s.Typ {
	case policy.Addresses:
		d, err := prefix.Open(s.Mem, s.Now)
		s.Table = Prefixes{d}
		return err
	case policy.Names:
		d, err := names.OpenDynamic(s.Mem, s.Now)
		s.Table = ofNames{d, plain{}}
		return err
	}
	t, err := endpoint.Open(s.Mem, s.Now)
	s.Table = endpoints{t, plain{}}
	if s.Typ == policy.Services {
		s.Table = services{endpoints{t, plain{}}}
	}
	return err
}

// Prefixes is a set of addresses.
type Prefixes struct{ *prefix.Dynamic }

func (p Prefixes) Add(e policy.Element, expires uint64) error {
	return p.Dynamic.Add(e.Prefix, expires)
}
func (p Prefixes) Touch(e policy.Element)       { p.Dynamic.Touch(e.Prefix) }
func (p Prefixes) Delete(e policy.Element) bool { return p.Dynamic.Delete(e.Prefix) }

func (p Prefixes) Get(e policy.Element) (expires uint64, ok bool) {
	was, ok := p.Dynamic.Get(e.Prefix)
	return was.Expires, ok
}

func (p Prefixes) All() iter.Seq2[policy.Element, uint64] {
	return func(yield func(policy.Element, uint64) bool) {
		for e := range p.Dynamic.All() {
			if !yield(policy.Element{Prefix: e.Prefix}, e.Expires) {
				return
			}
		}
	}
}

// endpoints is a set of endpoints, or of services, which are endpoints of 0.0.0.0/0 there.
type endpoints struct {
	*endpoint.Table
	plain
}

var everywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

func entryOf(e policy.Element, expires uint64) endpoint.Entry {
	out := endpoint.Entry{Prefix: e.Prefix, Proto: e.Service.Proto, Port: e.Service.Lo,
		Expires: expires}
	if !out.Prefix.IsValid() {
		out.Prefix = everywhere
	}
	out.Bits = uint8(16 - bits.TrailingZeros32(uint32(e.Service.Hi-e.Service.Lo)+1))
	return out
}

func (t endpoints) Add(e policy.Element, expires uint64) error {
	return t.Table.Add(entryOf(e, expires))
}

func (t endpoints) Touch(e policy.Element) { t.Table.Touch(entryOf(e, 0)) }

func (t endpoints) Delete(e policy.Element) bool { return t.Table.Delete(entryOf(e, 0)) }

func (t endpoints) Get(e policy.Element) (expires uint64, ok bool) {
	return t.Table.Get(entryOf(e, 0))
}

func (t endpoints) All() iter.Seq2[policy.Element, uint64] {
	return func(yield func(policy.Element, uint64) bool) {
		for e := range t.Table.All() {
			s := policy.Service{Proto: e.Proto, Lo: e.Port, Hi: e.Port | uint16(1<<(16-e.Bits)-1)}
			if !yield(policy.Element{Prefix: e.Prefix, Service: s}, e.Expires) {
				return
			}
		}
	}
}

// ofNames is a set of names.
type ofNames struct {
	*names.Dynamic
	plain
}

// patternOf returns the name of an element, which was checked.
func patternOf(e policy.Element) dnsname.Pattern {
	p, _ := dnsname.Parse(e.Name)
	return p
}

func (t ofNames) Add(e policy.Element, expires uint64) error {
	return t.Dynamic.Add(patternOf(e), expires)
}

func (t ofNames) Touch(e policy.Element) { t.Dynamic.Touch(patternOf(e)) }

func (t ofNames) Delete(e policy.Element) bool { return t.Dynamic.Delete(patternOf(e)) }

func (t ofNames) Get(e policy.Element) (expires uint64, ok bool) {
	return t.Dynamic.Get(patternOf(e))
}

func (t ofNames) All() iter.Seq2[policy.Element, uint64] {
	return func(yield func(policy.Element, uint64) bool) {
		for e := range t.Dynamic.All() {
			if !yield(policy.Element{Name: e.Pattern.String()}, e.Expires) {
				return
			}
		}
	}
}

// plain is a set that is neither rolled up nor merged: only hosts are rolled up, and only sets of
// addresses have a bulk.
type plain struct{}

// RollUp covers nothing.
func (plain) RollUp(func(netip.Prefix) bool) int { return 0 }

// Due says that there is no bulk to be merged.
func (plain) Due() bool { return false }

// Merge does nothing.
func (plain) Merge() {}

// Rest does nothing.
func (plain) Rest(uint64) {}

// services is a set of services.
type services struct{ endpoints }

func (t services) All() iter.Seq2[policy.Element, uint64] {
	return func(yield func(policy.Element, uint64) bool) {
		for e, expires := range t.endpoints.All() {
			if !yield(policy.Element{Service: e.Service}, expires) {
				return
			}
		}
	}
}

// CheckEntry says what keeps an element from being an entry of a set of the type.
func CheckEntry(e policy.Element, t policy.SetType) error {
	if err := e.Check(t); err != nil || t == policy.Addresses || t == policy.Names {
		return err
	}
	if blocks := e.Blocks(); len(blocks) != 1 {
		return fmt.Errorf("%s: a range of ports that is not a block; give its %d blocks", e,
			len(blocks))
	}
	return nil
}
