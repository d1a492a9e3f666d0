package detect

import (
	"math"

	"levee/internal/agent/kind"
)

// raw are the counters behind the kinds.
type raw [int(kind.NumCounters) + int(kind.Bits)]float64

// squares returns the place of the squares of what a kind's samples stand for.
func squares(of kind.Kind) int { return int(kind.NumCounters) + int(of) }

// chance returns the part of a kind's rate, or of all its packets, that may be chance, as where few
// samples stand for it, or mostly those behind pauses of the sampler. It is the standard deviation
// of Horvitz and Thompson's estimate.
func (r *raw) chance(of kind.Kind, whole bool) float64 {
	if of == kind.Bits {
		return r.chance(kind.Packets, true) * r[kind.CountBits] / max(1, r[kind.CountPackets])
	}
	out := math.Sqrt(r[squares(of)])
	if row := of.Row(); !whole { // packets of flows that go on count less
		out *= r[row.Counter] / max(1, r[row.All])
	}
	return out
}

// tally counts a packet of a kind.
func (r *raw) tally(of kind.Kind, w weighed, bytes int) {
	weight := w.weight
	r[kind.CountPackets] += weight
	r[kind.CountBits] += weight * 8 * float64(bytes)
	r[kind.CountSamples]++
	r[squares(kind.Packets)] += weight * weight
	row := of.Row()
	novel := weight
	if !w.fresh {
		novel *= row.Repeat
	}
	r[row.Counter] += novel
	each := novel
	if row.All != row.Counter {
		each = weight
		r[row.All] += weight
		if w.same {
			r[row.Same] += weight
		}
	}
	r[squares(of)] += each * each
	if of == kind.TCP {
		r[kind.CountTCP] += weight
	}
	if w.other {
		r[kind.CountBesides] += weight
	}
	if w.peer {
		r[kind.CountPeers] += weight
	}
	if w.host {
		r[kind.CountHost] += weight
	}
}

func (r *raw) add(o *raw, times float64) {
	for i := range r {
		r[i] += times * o[i]
	}
}

// ratios holds the usual quotients of packets of connections.
type ratios struct {
	Syn   float64 // SYNs for each other packet of TCP
	Fresh float64 // packets of flows not seen before, for each SYN
	most  float64 // SYNs that count so; 0: all
}

// kinds are the rates of all kinds.
func (r *raw) kinds(u ratios) (out [kind.Num]float64) {
	for k := range out {
		out[k] = r[kind.Rows[k].Counter]
	}
	return u.relate(r, out)
}

// all are the rates of all kinds, of which each packet counts as one.
func (r *raw) all(u ratios) (out [kind.Num]float64) {
	for k := range out {
		out[k] = r[kind.Rows[k].All]
	}
	return u.relate(r, out)
}

// relate subtracts, in the kinds of TCP, what the packets of connections usually add.
func (u ratios) relate(r *raw, out [kind.Num]float64) [kind.Num]float64 {
	out[kind.SYN] = max(0, r[kind.CountSYN]-u.Syn*r[kind.CountTCP])
	syns := r[kind.CountSYN]
	if u.most > 0 {
		syns = min(syns, u.most)
	}
	out[kind.TCP] = max(0, r[kind.CountFresh]-u.Fresh*syns, r.refused())
	return out
}

// refused are the segments of no connection, by what the machine says. It refuses SYNs and odd
// flags, too.
func (r *raw) refused() float64 {
	return min(r[kind.CountTCP], r[kind.CountRefused]-r[kind.CountSYN]-r[kind.CountOdd])
}

// of is the counter of a kind; whole, of all its packets.
func (r *raw) of(k kind.Kind, whole bool) float64 {
	switch {
	case k == kind.TCP:
		return max(r[kind.CountFresh], r.refused())
	case whole:
		return r[k.Row().All]
	}
	return r[k.Row().Counter]
}

// usually returns the usual rate of a kind; whole, of all its packets.
func (r *rates) usually(k kind.Kind, whole bool) float64 {
	if row := k.Row(); whole && row.All != row.Counter {
		return float64(r[rateAll+int(row.All-kind.CountAllUDP)])
	}
	return float64(r[k])
}
