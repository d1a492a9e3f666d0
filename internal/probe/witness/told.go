// Package witness is the target's side of `levee probe`: it tells whoever started it, line by line,
// what the policy in force decided about the packets of some sources.
//
// In go an interface, addresses and an input whose end is the end; out come objects of JSON, a
// line each: first the policy, then packets with what decided them, last what was lost. A line of
// the input is answered once all packets have been told that were judged before it. It listens
// on no port and answers nobody on the network: who may start it on the machine, by ssh or
// otherwise, may read it. It must never change a packet or a verdict, nor outlive its input.
package witness

import "levee/internal/lang/setfile"

// Told is one line; it is one of its members.
type Told struct {
	InForce *InForce `json:"in_force,omitempty"`
	Packet  *Packet  `json:"packet,omitempty"`
	// Drained counts the lines of the input that are answered.
	Drained int  `json:"drained,omitempty"`
	End     *End `json:"end,omitempty"`
}

// InForce is the policy by which packets are judged from here on. A policy that is replaced in the
// meantime has a line of its own.
type InForce struct {
	Dev    string         `json:"dev"`
	Name   string         `json:"name"` // what verdicts call it
	Source string         `json:"source"`
	Files  []setfile.File `json:"files,omitempty"` // what its set files held
	// Fallback: only what "on error" says of it is in force.
	Fallback bool `json:"fallback,omitempty"`
}

// Packet is one that was judged.
type Packet struct {
	Slot    string `json:"slot"`    // the identity of what decided
	Rule    string `json:"rule"`    // where that stands
	Label   string `json:"label"`   // its label, or ""
	Verdict string `json:"verdict"` // pass, drop, answer or redirect
	Link    string `json:"link"`    // what the bytes begin with
	Bytes   []byte `json:"bytes"`   // the first of the packet, at most Snap
	Length  int    `json:"length"`  // of the packet, in bytes
}

// Snap limits the bytes of a packet that are told.
const Snap = 256

// End is told when the input has ended.
type End struct {
	Taken uint64 `json:"taken"` // packets of the source
	Lost  uint64 `json:"lost"`  // of these, nobody was told
}
