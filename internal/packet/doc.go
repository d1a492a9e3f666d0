// Package packet reads and makes packets: Decode turns an Ethernet frame into the fields that a
// policy can ask for, Build makes the packets of `test` statements, Reader and Writer are the pcap
// files on either side of it.
//
// In go bytes, from the network or from a file; out come fields, frames, or an error that says
// where the bytes are wrong. Everything that goes in is hostile: nothing here may panic, allocate
// what a length field claims, or guess. Decode allocates nothing. The package knows no policies.
package packet
