package oracle

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// words are the words with which the language asks for each field.
var words = func() (out [field.NumFields]string) {
	for i := range field.Phrases {
		ph := &field.Phrases[i]
		if out[ph.Field] == "" || ph.Form != field.FormAlone { // syn is flags
			out[ph.Field] = ph.Word
		}
	}
	out[field.Local] = "local"
	for f := range out {
		if info := field.Field(f).Info(); info.Compare == field.ByPair {
			out[f] = map[field.Field]string{field.SrcPort: "from", field.DstPort: "to"}[info.Port]
		}
	}
	return out
}()

// shown is the number of a list's elements that a trace prints.
const shown = 4

// termText prints a term in the words of the language. Long lists are cut: the trace shows the
// whole rule beside it.
func termText(t *policy.Term) string {
	text := words[t.Field]
	switch {
	case t.Names != nil:
		text += " " + t.Names.String()
	case t.Set != nil:
		text += " " + t.Set.Name
	case t.Inner != nil:
		text = "inner("
		for i := range t.Inner.Match {
			text += " " + termText(&t.Inner.Match[i])
		}
		text += " )"
	case t.Pattern != nil:
		text += " " + t.Pattern.Text
		if t.Unknown {
			text += " or unknown"
		}
	case t.Bytes != nil:
		text += " " + t.Bytes.String()
	case t.Field == field.TCPFlags:
		text += fmt.Sprintf(" %s/%s", flagNames(t.Value), flagNames(t.Mask))
	case t.Senders != nil:
		text += " " + list(t.Senders)
	case t.Field == field.UID || t.Field == field.GID:
		text += " " + list(elements(t))
	case t.Field == field.Local && len(t.Ranges) == 1:
		text = [...]string{"forwarded", "local"}[t.Ranges[0].Lo&1]
	case t.Field == field.Fragment || t.Field == field.Tags || t.Field.Info().Remembered ||
		t.Field == field.DNSQuery || t.Field == field.DNSResponse || t.Field == field.DNSMalformed:
	default:
		text += " " + list(elements(t))
	}
	if t.Not {
		return "not " + text
	}
	return text
}

func elements(t *policy.Term) []string {
	var all []string
	for _, p := range t.Prefixes {
		if p.IsSingleIP() {
			all = append(all, p.Addr().String())
		} else {
			all = append(all, p.String())
		}
	}
	for _, s := range t.Services() {
		all = append(all, fmt.Sprintf("%s/%s", protoName(uint64(s.Proto)),
			rangeText(field.DstPort, field.Range{Lo: uint64(s.Lo), Hi: uint64(s.Hi)})))
	}
	for _, e := range t.Endpoints() {
		all = append(all, e.String())
	}
	for _, r := range t.Ranges {
		all = append(all, rangeText(t.Field, r))
	}
	return all
}

func list(all []string) string {
	if len(all) == 1 {
		return all[0]
	}
	if len(all) > shown {
		all = append(all[:shown:shown], fmt.Sprintf("... %d more", len(all)-shown))
	}
	return "{ " + strings.Join(all, ", ") + " }"
}

func rangeText(f field.Field, r field.Range) string {
	// any code
	if (f == field.ICMPType || f == field.ICMP6Type) && r.Lo&0xff == 0 && r.Hi&0xff == 0xff {
		f, r = field.Len, field.Range{Lo: r.Lo >> 8, Hi: r.Hi >> 8}
	}
	if r.Lo == r.Hi {
		return numberText(f, r.Lo)
	}
	return numberText(f, r.Lo) + "-" + numberText(f, r.Hi)
}

// numberText prints one value of a numeric field.
func numberText(f field.Field, v uint64) string {
	switch f {
	case field.Proto:
		return protoName(v)
	case field.EtherType:
		return fmt.Sprintf("0x%04x", v)
	case field.ICMPType, field.ICMP6Type:
		return fmt.Sprintf("%d/%d", v>>8, v&0xff)
	case field.SrcMAC, field.DstMAC:
		return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", byte(v>>40), byte(v>>32), byte(v>>24),
			byte(v>>16), byte(v>>8), byte(v))
	case field.SrcSuffix, field.DstSuffix:
		var a [16]byte
		binary.BigEndian.PutUint64(a[8:], v)
		return netip.AddrFrom16(a).String() + "/64"
	case field.Fragment:
		return [...]string{"not a fragment", "a fragment"}[v&1]
	}
	return fmt.Sprint(v)
}

func protoName(v uint64) string {
	switch v {
	case packet.ProtoTCP:
		return "tcp"
	case packet.ProtoUDP:
		return "udp"
	case packet.ProtoUDPLite:
		return "udplite"
	case packet.ProtoSCTP:
		return "sctp"
	case packet.ProtoDCCP:
		return "dccp"
	case packet.ProtoICMP:
		return "icmp"
	case packet.ProtoICMP6:
		return "icmp6"
	}
	return fmt.Sprint(v)
}

// flagNames prints TCP flags as the language does: names with commas, "none" for none.
func flagNames(flags uint8) string {
	var set []string
	for i, name := range [...]string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"} {
		if flags&(1<<i) != 0 {
			set = append(set, name)
		}
	}
	if set == nil {
		return "none"
	}
	return strings.Join(set, ",")
}
