// Package a2s reads and makes queries of game servers by A2S, as far as they prove who asks
// (https://developer.valvesoftware.com/wiki/Server_queries).
//
// A query is INFO, PLAYER or RULES. A server may answer it with a number, which the client sends
// back with the same query. In go the bytes behind a UDP header. The oracle reads queries with it;
// the programs do so by bpf/a2s.h.
package a2s

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Types of queries, and of the answer that gives a number.
const (
	Info      = 0x54
	Player    = 0x55
	Rules     = 0x56
	challenge = 0x41
)

const (
	headBytes   = 5 // four with all bits set, and the type
	numberBytes = 4
)

var whole = []byte{0xff, 0xff, 0xff, 0xff} // a packet that is not split

// infoBytes is an INFO without a number.
var infoBytes = append(append(slices.Clone(whole), Info), "Source Engine Query\x00"...)

// IsQuery tells whether a cookie answers a payload: a query that is as long as the answer at least.
func IsQuery(payload []byte) bool {
	return len(payload) >= headBytes+numberBytes && bytes.HasPrefix(payload, whole) &&
		payload[4] >= Info && payload[4] <= Rules
}

// place returns where a query of a type has a number.
func place(of byte) int {
	if of == Info {
		return len(infoBytes)
	}
	return headBytes
}

// Echo returns the number that a query has where one may be; false if it is too short for one.
func Echo(payload []byte) (number uint32, ok bool) {
	if !IsQuery(payload) || len(payload) < place(payload[4])+numberBytes {
		return 0, false
	}
	return binary.LittleEndian.Uint32(payload[place(payload[4]):]), true
}

// Query returns a query of a type with a number. An INFO may have none.
func Query(of byte, number ...uint32) []byte {
	b := slices.Clone(infoBytes)
	if of != Info {
		b = append(slices.Clone(whole), of)
	}
	for _, n := range number {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}

// Answer returns the answer that gives a number.
func Answer(number uint32) []byte {
	return binary.LittleEndian.AppendUint32(append(slices.Clone(whole), challenge), number)
}

// Number returns the number that an answer gives; false of any other payload.
func Number(payload []byte) (number uint32, ok bool) {
	if len(payload) != headBytes+numberBytes || !bytes.HasPrefix(payload, whole) ||
		payload[4] != challenge {
		return 0, false
	}
	return binary.LittleEndian.Uint32(payload[headBytes:]), true
}
