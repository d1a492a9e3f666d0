package oracle

import (
	"slices"
	"testing"

	"levee/internal/lang/field"
	"levee/internal/packet"
)

// everyKind are packets of all protocols that have headers of their own, and one that has none, in
// both families, whole and fragmented, with and without tags, and frames that are not IP.
func everyKind(t *testing.T) (all []packet.Packet) {
	specs := []packet.Spec{{Family: packet.ARP}, {Family: packet.OtherFamily, EtherType: 0x88cc}}
	for _, f := range []packet.Family{packet.IPv4, packet.IPv6} {
		for _, proto := range []uint8{6, 17, 136, 132, 33, 1, 58, 47} {
			for _, frag := range []*uint16{nil, new(uint16(0)), new(uint16(185))} {
				specs = append(specs, packet.Spec{Family: f, Proto: new(proto), Frag: frag})
			}
		}
	}
	for _, s := range specs {
		for tags := range 3 {
			if tags > 0 {
				s.VLAN = new(uint16(5))
			}
			if tags > 1 {
				s.InnerVLAN = new(uint16(6))
			}
			frame, err := packet.Build(s)
			if err != nil {
				t.Fatal(err)
			}
			var p packet.Packet
			packet.Decode(frame, &p)
			all = append(all, p)
		}
	}
	return all
}

// has says what the table says of a packet.
func has(f field.Field, p *packet.Packet) bool {
	info := f.Info()
	h := info.Header.Presence()
	families := map[packet.Family]bool{packet.AnyFamily: h.NotIP, packet.IPv4: h.IPv4,
		packet.IPv6: h.IPv6}
	if !families[p.Family] || p.Tags < h.Tags {
		return false
	}
	if info.Compare == field.ByPair && info.Address != field.None {
		return !packet.HasPorts(p.Proto) || !p.LaterFragment
	}
	if p.Proto == packet.ProtoICMP && p.Family == packet.IPv6 ||
		p.Proto == packet.ProtoICMP6 && p.Family == packet.IPv4 {
		return h.Protos == nil // a number of the other family
	}
	return h.Protos == nil || slices.Contains(h.Protos, p.Proto) && !p.LaterFragment
}

// The oracle reads packets by itself. It finds a field in those that have it by the table, and in
// no others.
func TestEveryFieldIsReadWhereTheTableSays(t *testing.T) {
	var found [field.NumFields]bool
	for _, p := range everyKind(t) {
		var vs values
		vs.read(&p)
		for f := field.None + 1; f < field.NumFields; f++ {
			if vs[f].present != has(f, &p) {
				t.Errorf("%s of %+v: read %v, in the table %v", f.Info().Name, p, vs[f].present,
					has(f, &p))
			}
			found[f] = found[f] || vs[f].present
		}
	}
	for f := field.None + 1; f < field.NumFields; f++ {
		if !found[f] {
			t.Errorf("%s: never read", f.Info().Name)
		}
	}
}

// What a word of packets sets, the oracle reads.
func TestEveryFieldHasTheValueThatItsWordSets(t *testing.T) {
	for f := field.None + 1; f < field.NumFields; f++ {
		info := f.Info()
		h := info.Header.Presence()
		if h == field.InIPv6.Presence() { // a part of an address, which its word sets whole
			continue
		}
		if packet.FieldBits(info.Packet) == 0 || info.Compare != field.ByRange &&
			info.Compare != field.ByMask {
			continue // addresses, and what a packet is built of
		}
		for _, v := range []uint64{0, 1, info.Max / 3, info.Max} {
			if v == 0 && (f == field.VLAN || f == field.InnerVLAN) {
				continue // a priority tag
			}
			s := packet.Spec{Family: packet.IPv4, VLAN: new(uint16(7))}
			if h.Protos != nil {
				s.Proto = new(h.Protos[0])
			}
			s.Set(info.Packet, v)
			frame, err := packet.Build(s)
			if err != nil {
				t.Errorf("%s: %v", info.Name, err)
				continue
			}
			var p packet.Packet
			var vs values
			packet.Decode(frame, &p)
			if vs.read(&p); !vs[f].present || vs[f].lo != v {
				t.Errorf("%s: %+v, set to %d", info.Name, vs[f], v)
			}
		}
	}
}

// A trace names each field and says how it is asked for.
func TestEveryFieldHasWords(t *testing.T) {
	for f := field.None + 1; f < field.NumFields; f++ {
		if words[f] == "" {
			t.Errorf("%s: no words", f.Info().Name)
		}
	}
}
