// Package receive measures ways in which a process gets packets from an interface, side by side: a
// UDP socket by recvmmsg, PACKET_MMAP of version 3 and libpcap on it, AF_XDP, DPDK on it, a ring of
// a policy of levee's, and a ring buffer of BPF.
//
// In go Options, out comes a Report: for each way, size of frame and number of cores, the packets a
// second that the process took, the share that was lost behind the card's ring, and the time that a
// packet cost in the reader and in the kernel's receiving thread, with 95 % intervals over rounds
// in turn. All ways get the same frames on the same path, and each has one reader: a receive queue
// has one, and another queue is the same once more.
//
// A window counts only if packets balance to 0.1 %: those that the generator handed to the device
// are those that the card's ring refused, those that the reader took and those that the way itself
// counts as lost.
//
// veth has no DMA, no descriptors and no zero copy: ratios carry over to other machines, absolute
// figures do not. The package must never send outside its lab, and leaves nothing behind.
package receive
