package oracle

import (
	"fmt"
	"net/netip"
	"time"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// budgets are those of one limit: until when each is in debt, in the limit's units of time.
type budgets struct {
	limit *policy.Limit
	full  map[string]int64
}

// charged says what a limit does with a packet, by whether the packet could be charged.
var charged = map[bool]string{
	true:  "goes on: it is within the rate",
	false: "is dropped: it is above the rate",
}

// charge takes the charge of a packet from the budgets of all keys, and reports whether all had as
// much. If one has not, none is charged.
func (b *budgets) charge(pkt *packet.Packet, frame []byte, now time.Time) bool {
	l, prefix := b.limit, ""
	if l.Rates != nil {
		of := l.Rates.Of(address(l.Rates.Field, pkt))
		if of == nil {
			return true
		}
		l, prefix = of.Limit, of.Prefix.String()
	}
	at := now.UnixNano() >> l.Shift
	type bill struct {
		key  string
		full int64
	}
	var bills []bill
	for i := range max(1, len(l.Keys)) {
		key, name := i, fmt.Sprint(i, prefix)
		if len(l.Keys) == 0 {
			key = -1
		} else {
			name += keyOf(&l.Keys[i], pkt, frame)
		}
		full := max(b.full[name], at) + int64(l.Charge(key, uint32(len(frame))))
		if full-at > int64(l.Depth()) {
			return false
		}
		bills = append(bills, bill{name, full})
	}
	for _, bill := range bills {
		b.full[bill.key] = bill.full
	}
	return true
}

// keyOf is, with the family, what packets of one budget have in common, as text.
func keyOf(k *policy.Key, pkt *packet.Packet, frame []byte) (text string) {
	if k.Fields[0] == field.DNSName { // whatever the family
		m := readMessage(pkt, frame)
		if k.Labels == 0 {
			return string(m.Name)
		}
		return string(m.Name.Last(k.Labels))
	}
	text = fmt.Sprint(pkt.Family)
	for _, f := range k.Fields {
		switch f {
		case field.SrcAddr, field.DstAddr:
			text += "," + network(k, address(f, pkt))
		case field.Proto:
			text += fmt.Sprintf(",%d", pkt.Proto)
		case field.SrcPort:
			text += fmt.Sprintf(",%d", pkt.SrcPort)
		case field.DstPort:
			text += fmt.Sprintf(",%d", pkt.DstPort)
		default:
			panic("a limit by " + f.Info().Name)
		}
	}
	return text
}

// network returns the part of an address that counts.
func network(k *policy.Key, a netip.Addr) string {
	bits := k.Bits6
	if a.Is4() {
		bits = k.Bits4
	}
	if k.Bits4 == 0 { // a flow: all of it
		bits = a.BitLen()
	}
	return netip.PrefixFrom(a, bits).Masked().String()
}
