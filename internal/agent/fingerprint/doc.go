// Package fingerprint describes a flood in the format of the DDoS clearing house, which members of
// an anti-DDoS coalition exchange (fingerprint_format.md of its dissector, version 3).
//
// In go packets of the flood, out comes one JSON object: who was hit, by which vectors, from which
// addresses, and which values of ports, flags, lengths, TTLs and payload stand out. Memory is
// bounded whatever the packets say. It judges nothing, and reads no file.
package fingerprint
