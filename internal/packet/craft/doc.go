// Package craft makes packets from the terms of rules: packets of which a rule's terms hold,
// packets on the edges of what a rule names, and for each slot of a policy a packet that reaches
// it.
//
// In go rules and a Chooser, which decides among the values that a term names. Out come packets as
// package packet describes them; frames are made by packet.Build, or by whoever wants frames that
// Build refuses. The package never judges a packet: it shares no matching code with the oracle or
// the compiled program, so a packet that was made for a rule may still miss it.
package craft
