package detect

import "levee/internal/agent/kind"

// raw are the counters behind the kinds.
type raw [int(kind.NumCounters) + int(kind.Packets)]float64

// squares is where the squares of what a kind's samples stand for are.
func squares(of kind.Kind) int { return int(kind.NumCounters) + int(of) }

// samples is how many samples that stand for the same those of a kind are worth (Kish's effective
// sample size): one that stands for nearly all is one.
func (r *raw) samples(of kind.Kind) float64 {
	if of >= kind.Packets {
		return r[kind.CountSamples]
	}
	sum := r[of.Row().All]
	return sum * sum / max(1e-9, r[squares(of)])
}

// tally counts a packet of a kind, which stands for some. It is fresh if its flow was not seen of
// late, and the same if the packet before, of its protocol, was of that flow.
func (r *raw) tally(of kind.Kind, weight float64, bytes int, fresh, same bool) {
	r[kind.CountPackets] += weight
	r[kind.CountBits] += weight * 8 * float64(bytes)
	r[kind.CountSamples]++
	if of == kind.Num {
		return
	}
	row := of.Row()
	novel := weight
	if !fresh {
		novel *= row.Repeat
	}
	r[row.Counter] += novel
	each := novel
	if row.All != row.Counter {
		each = weight
		r[row.All] += weight
		if same {
			r[row.Same] += weight
		}
	}
	r[squares(of)] += each * each
	if of == kind.TCP {
		r[kind.CountTCP] += weight
	}
}

func (r *raw) add(o *raw, times float64) {
	for i := range r {
		r[i] += times * o[i]
	}
}

// ratios are what is usual between packets of connections.
type ratios struct {
	Syn   float64 // SYNs for each other packet of TCP
	Fresh float64 // packets of flows not seen before, for each SYN
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
	out[kind.TCP] = max(0, r[kind.CountFresh]-u.Fresh*r[kind.CountSYN])
	return out
}

// of is the counter of a kind; whole, of all its packets.
func (r *raw) of(k kind.Kind, whole bool) float64 {
	if whole {
		return r[k.Row().All]
	}
	return r[k.Row().Counter]
}

// usually is what is usual of a kind; whole, of all its packets.
func (r *rates) usually(k kind.Kind, whole bool) float64 {
	if row := k.Row(); whole && row.All != row.Counter {
		return float64(r[rateAll+int(row.All-kind.CountAllUDP)])
	}
	return float64(r[k])
}
