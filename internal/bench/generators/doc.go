// Package generators measures packet generators against each other in a lab of its own: levee's
// paths, and trafgen, masscan and tcpreplay where they are installed.
//
// In go Options, out comes a Report: for each generator, as fast as it goes and at requested rates,
// the packets a second that it offered to the device, with 95 % intervals over interleaved rounds;
// what of these arrived; how far the rate was off; and how even the gaps were. All of it is taken
// at the device and by one XDP program at the receiver (bpf/receiver.bpf.c), the same for all: no
// generator is believed about itself, but those of levee must balance with what was counted there.
//
// The receiver's NAPI thread has one core, the generators another. A generator that is not
// installed, or cannot send what is asked, says so. The package must never send outside its lab,
// and leaves no process or namespace behind.
package generators
