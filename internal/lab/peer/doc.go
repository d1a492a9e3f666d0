// Package peer is the other end of a measurement over a real wire: a machine that sends and counts
// there, as the host "world" of a lab does.
//
// In goes a Config, out comes a Client: the machine that measures starts `levee-lab peer` at the
// other end by ssh, and asks it for what it needs. Both talk by JSON-RPC 1.0 (net/rpc/jsonrpc), one
// object a line, over the process's standard input and output; Peer has the methods. Serve is the
// other end.
//
// The peer takes the one interface that it is told to, which carries nothing else, into a lab
// (lab.Take), and sends there only, for two minutes at a time at most. It ends when its input does,
// or when nobody has asked for a minute, and gives the interface back. The package must never take
// an interface by which somebody works on the machine, or on which a policy of levee's is.
package peer
