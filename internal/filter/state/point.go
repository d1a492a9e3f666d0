package state

// Point is a hook at which a program meets packets of the interface.
type Point string

const (
	// Ingress is the target's hook. Its program judges what arrives; every policy has one.
	Ingress Point = "ingress"
	// Egress is TCX egress, or a filter of tc there. Its program sees packets that leave and lets
	// them go on. It writes notes for the program at ingress. The program of another policy may
	// note the same packet, so that two writes must have the effect of one. Only LeavingProgram
	// gives verdicts here, while it is its turn.
	Egress Point = "egress"
	// Behind follows the program at egress of the policy in force, which hands on what it has
	// judged: the place of LeavingProgram of a shadow.
	Behind Point = "behind"
	// SocketLookup is the hook at which the kernel looks for the socket of a segment that belongs
	// to no connection, in the network namespace of the interface. Its program gives those to the
	// trap that the one that judges has noted. It may be asked beside that of another policy.
	SocketLookup Point = "socket lookup"
)
