package probe

// A probe's number and try are its sequence number, sealed by a permutation of all 32-bit numbers:
// an answer acknowledges it. It counts only if it opens to the number of a probe to the answer's
// address and port. So no memory of probes is needed.

// mostTries is the most tries that a sequence number can tell apart.
const mostTries = 1 << tryBits

const tryBits = 2

// MostProbes bounds the probes of a run: what is known of each is kept.
const MostProbes = 1 << 22

type cookies struct{ permutation }

func newCookies(k Key) *cookies { return &cookies{newPermutation(1<<32, k, 1<<40)} }

type sealed struct{ number, try int }

func (c *cookies) seal(number, try int) uint32 {
	return uint32(c.at(uint64(number)<<tryBits | uint64(try)))
}

// open returns what a sequence number seals; false if it is that of no run.
func (c *cookies) open(seq uint32) (sealed, bool) {
	v := c.back(uint64(seq))
	n := sealed{int(v >> tryBits), int(v & (mostTries - 1))}
	return n, n.number < MostProbes
}

// Probes leave from ports behind those that the kernel gives to programs by default, so that it
// resets the connections that answers offer.
const (
	firstPort = 0xf000
	portBits  = 12
)

// port returns the source port of a try.
func (c *cookies) port(number, try int) uint16 {
	return firstPort | uint16(c.key.hash(2<<40, uint64(number), uint64(try))&(1<<portBits-1))
}

// tag returns what the payload of a probe begins with, where the service lets it.
func (c *cookies) tag(number, try int) uint64 {
	return c.key.hash(3<<40, uint64(number), uint64(try))
}
