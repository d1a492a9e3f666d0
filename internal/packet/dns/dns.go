// Package dns reads the head of a DNS message (RFC 1035 section 4.1): the header, the first
// question, and the size that EDNS tells (RFC 6891). It also makes the queries of test packets.
//
// In go the bytes behind a UDP header, out comes what rules can ask. Whatever the bytes are, it
// reads none beyond them and follows no pointer. The oracle reads messages with it; the programs do
// so by bpf/dns.bpf.c.
package dns

import (
	"encoding/binary"

	"levee/internal/lang/dnsname"
)

// Message holds the decoded fields of a message.
type Message struct {
	Header    bool // there are the twelve bytes of a header, which the next two are from
	Response  bool
	Opcode    uint8
	Malformed bool // what no resolver sends
	Question  bool // the first question is there as a whole: the next two are its
	Name      dnsname.Name
	Type      uint16
	EDNS      bool // a query with an OPT record behind its question, which says the size
	Size      uint16
}

const (
	headerBytes = 12
	recordBytes = 11 // of an OPT record without options: root, type, class, TTL, length
	typeOPT     = 41
	opcodeQuery = 0
)

// Read reads a message. Of one that is cut, the rest is in later fragments.
func Read(b []byte, cut bool) (m Message) {
	if len(b) < headerBytes {
		m.Malformed = true
		return m
	}
	count := func(i int) int { return int(binary.BigEndian.Uint16(b[4+2*i:])) }
	m.Header, m.Response, m.Opcode = true, b[2]&0x80 != 0, b[2]>>3&15
	questions, answers, authorities, more := count(0), count(1), count(2), count(3)
	m.Malformed = questions > 1 || cut && !m.Response
	end := headerBytes
	if questions > 0 {
		n := nameBytes(b[end:])
		if n == 0 || end+n+4 > len(b) {
			m.Malformed = true
			return m
		}
		m.Question, m.Name = true, dnsname.Lower(b[end:end+n-1])
		m.Type = binary.BigEndian.Uint16(b[end+n:])
		end += n + 4
	}
	if m.Response || m.Opcode != opcodeQuery || answers+authorities > 0 || questions > 1 {
		return m
	}
	m.additional(b[end:], more)
	return m
}

// nameBytes returns how many bytes a name has with its last, empty label; 0 of what is no name, is
// a pointer or is too long.
func nameBytes(b []byte) int {
	for at := 0; at < len(b) && at < dnsname.MaxName; at += 1 + int(b[at]) {
		switch {
		case b[at] == 0:
			return at + 1
		case b[at] > dnsname.MaxLabel:
			return 0
		}
	}
	return 0
}

// additional reads what is behind the question of a query: so many records, of which the first may
// be the OPT record.
func (m *Message) additional(b []byte, records int) {
	switch {
	case records == 0:
		m.Malformed = m.Malformed || len(b) > 0
		return
	case len(b) == 0:
		m.Malformed = true
		return
	case b[0] != 0: // of another name: a signature, say
		return
	case len(b) < recordBytes:
		m.Malformed = true
		return
	case binary.BigEndian.Uint16(b[1:]) != typeOPT:
		return
	}
	end := recordBytes + int(binary.BigEndian.Uint16(b[9:]))
	if end > len(b) || records == 1 && end < len(b) {
		m.Malformed = true
	}
	if end <= len(b) {
		m.EDNS, m.Size = true, binary.BigEndian.Uint16(b[3:])
	}
}

// Query makes the message of a test packet: a query, or with Response its answer without records.
func Query(m Message) []byte {
	b := make([]byte, headerBytes, 64)
	b[1], b[2] = 1, m.Opcode<<3|1 // an ID, recursion desired
	if m.Response {
		b[2] |= 0x80
	}
	if m.Question {
		b[5] = 1
		b = append(append(b, m.Name...), 0)
		b = binary.BigEndian.AppendUint16(b, m.Type)
		b = append(b, 0, 1) // class IN
	}
	if m.EDNS {
		b[11] = 1
		b = append(b, 0, 0, typeOPT)
		b = binary.BigEndian.AppendUint16(b, m.Size)
		b = append(b, 0, 0, 0, 0, 0, 0)
	}
	switch {
	case m.Malformed && (m.Response || m.Opcode != 0):
		b[5] = 2 // what is behind the question is not read
	case m.Malformed:
		b = append(b, 0)
	}
	return b
}

// Truncated returns the answer to a well-formed query that has its client ask again over TCP: the
// question without records, and TC. Where the query has EDNS, so has the answer.
func Truncated(query []byte) []byte {
	const qr, tc, rd, cd, ok = 0x80, 0x02, 0x01, 0x10, 0x80
	end := headerBytes + nameBytes(query[headerBytes:]) + 4
	out := append(make([]byte, 0, end+recordBytes), query[:end]...)
	clear(out[4:headerBytes])
	out[2], out[3], out[5] = qr|tc|query[2]&rd, query[3]&cd, 1
	if Read(query, false).EDNS {
		out[11] = 1
		out = append(out, 0, 0, typeOPT, answerSize>>8, answerSize&0xff, 0, 0,
			query[end+7]&ok, 0, 0, 0)
	}
	return out
}

// answerSize is the UDP payload size, in bytes, that such answers announce by EDNS (DNS Flag Day
// 2020).
const answerSize = 1232
