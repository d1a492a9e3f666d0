package codegen

import "slices"

// Link says where a program of Spec is attached.
type Link struct {
	Program string // in Spec.Programs
	At      Point
}

// Point is where a program meets packets of the interface.
type Point string

const (
	// Ingress is the target's hook. Its program judges what arrives; every policy has one.
	Ingress Point = "ingress"
	// Egress is TCX egress, or a filter of tc there. Its program sees what leaves and lets it go
	// on. It writes down what the one that judges asks for. It may see a packet beside that of
	// another policy, so writing twice must be the same as writing once.
	Egress Point = "egress"
	// SocketLookup is where the kernel looks for the socket of a segment that belongs to no
	// connection, in the network namespace of the interface. Its program gives those to the trap
	// that the one that judges has noted. It may be asked beside that of another policy.
	SocketLookup Point = "socket lookup"
)

// Judge is the name of the program that judges packets, "" if there is not exactly one.
func (p *Program) Judge() (name string) {
	judges := func(l Link) bool { return l.At == Ingress }
	i := slices.IndexFunc(p.Links, judges)
	if i < 0 || slices.ContainsFunc(p.Links[i+1:], judges) {
		return ""
	}
	return p.Links[i].Program
}
