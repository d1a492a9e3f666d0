package oracle

import (
	"encoding/binary"
	"fmt"
	"maps"
	"time"

	"levee/internal/lang/dnsname"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/packet/dns"
)

// messageFields are these fields.
var messageFields = func() (all []field.Field) {
	for f := range field.NumFields {
		if f.OfMessage() {
			all = append(all, f)
		}
	}
	return all
}()

// readMessage reads the message of a packet over UDP: as many bytes as the UDP header says, or of a
// fragment as many as there are.
func readMessage(pkt *packet.Packet, frame []byte) dns.Message {
	there := frame[pkt.TransportOffset:][:8+pkt.UDPPayload]
	says := int(binary.BigEndian.Uint16(there[4:]))
	return dns.Read(there[8:max(8, min(says, len(there)))], says > len(there))
}

// message says whether the message of a packet has the value of a term or, with not, lacks it.
func (e *Evaluator) message(t *term, pkt *packet.Packet, frame []byte) bool {
	if !isUDP(pkt) {
		return false
	}
	m := readMessage(pkt, frame)
	if t.field == field.DNSName {
		return m.Question && e.names[t.of.Names].holds(m.Name, e.now()) != t.not
	}
	v, present := valueOf(t.field, &m)
	if !present {
		return false
	}
	for _, s := range t.spans {
		if s.holds(&value{number: number{lo: v}}) {
			return !t.not
		}
	}
	return t.not
}

// valueOf returns the number that a message has in a field, if it has it.
func valueOf(f field.Field, m *dns.Message) (v uint64, present bool) {
	of := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	switch f {
	case field.DNSType:
		return uint64(m.Type), m.Question
	case field.DNSOpcode:
		return uint64(m.Opcode), m.Header
	case field.DNSQuery:
		return of(!m.Response), m.Header
	case field.DNSResponse:
		return of(m.Response), m.Header
	case field.DNSMalformed:
		return of(m.Malformed), true
	case field.DNSSize:
		return uint64(m.Size), m.EDNS
	}
	return 0, false
}

// nameSet is names, each until when; the zero time is for good.
type nameSet map[dnsname.Pattern]time.Time

func newNameSet(patterns []dnsname.Pattern) *nameSet {
	s := nameSet{}
	for _, p := range patterns {
		s[p] = time.Time{}
	}
	return &s
}

// patternOf returns the name of an entry, which was checked.
func patternOf(e policy.Element) dnsname.Pattern {
	p, _ := dnsname.Parse(e.Name)
	return p
}

func (s nameSet) has(p dnsname.Pattern) bool {
	_, there := s[p]
	return there
}

func (s nameSet) add(p dnsname.Pattern, expires time.Time) { s[p] = expires }

func (s nameSet) del(p dnsname.Pattern) { delete(s, p) }

func (s nameSet) size() int { return len(s) }

// inUse returns the number of names after those whose lease has ended are gone.
func (s nameSet) inUse(now time.Time) int {
	maps.DeleteFunc(s, func(_ dnsname.Pattern, expires time.Time) bool {
		return !current(expires, now)
	})
	return len(s)
}

// holds says whether a name, or one that it is below, is in the set.
func (s nameSet) holds(n dnsname.Name, now time.Time) bool {
	alive := func(p dnsname.Pattern) bool {
		expires, there := s[p]
		return there && current(expires, now)
	}
	if alive(dnsname.Pattern{Name: n}) {
		return true
	}
	for n != "" {
		n = n.Parent()
		if alive(dnsname.Pattern{Name: n}) || alive(dnsname.Pattern{Name: n, Below: true}) {
			return true
		}
	}
	return false
}

// gotMessage returns what the message of a packet has in the field of a term that failed.
func gotMessage(t *policy.Term, pkt *packet.Packet, frame []byte) string {
	m := readMessage(pkt, frame)
	v, present := valueOf(t.Field, &m)
	switch {
	case t.Field == field.DNSName && m.Question:
		return "the name is " + m.Name.String()
	case !present:
		return "the packet has no " + t.Field.Info().Name
	case t.Field == field.DNSMalformed && m.Malformed:
		return "no resolver sends such a message"
	case t.Field == field.DNSMalformed:
		return "the message is well-formed"
	case (t.Field == field.DNSQuery || t.Field == field.DNSResponse) && m.Response:
		return "the message is a response"
	case t.Field == field.DNSQuery || t.Field == field.DNSResponse:
		return "the message is a query"
	}
	return fmt.Sprintf("%s is %s", t.Field.Info().Name, numberText(t.Field, v))
}
