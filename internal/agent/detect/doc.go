// Package detect says when traffic is a flood: it is told of sampled packets that passed and of the
// time, and says what is too much, of which kind, and where it goes.
//
// In go packets with weights (Add) and ticks (Tick), out come alarms. Each kind of packet is
// counted in total, by the network and the host of its destination, and by the network of its
// source. Only packets count that no client has proven: SYNs beyond those that answered handshakes
// explain, and packets of flows that were not seen before. What is too much is a fixed rate, or
// several times of what was usual at this hour of the day and of the week.
//
// What comes in while an alarm lasts, and shortly before it, is never learned. Memory is bounded,
// whatever packets say. The package must never ask for the time, and never decide what is done.
package detect
