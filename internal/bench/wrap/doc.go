// Package wrap measures what a policy of its own costs a service: the throughput of TCP to it with
// one, against that without, by the number of rules and the size of packets.
//
// In go numbers of rules and MTUs, out comes a Report. Connections go over the loopback of a lab's
// host, with offloads off: each packet of the MTU is judged for itself. The package pins nothing,
// and leaves no cgroup behind, also of a run that was killed: the next one removes it.
package wrap
