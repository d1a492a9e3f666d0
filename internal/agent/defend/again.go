package defend

import (
	"fmt"
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"
	"time"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
	"levee/internal/agent/known"
	"levee/internal/agent/signature"
	"levee/internal/filter/greylist"
	"levee/internal/packet"
)

// flows are those of good packets of late, by which a greylist is judged: a flow sends again, or a
// greylist takes all of it. Where there are too many of a kind they are drawn by their hash, so
// that what is known of some holds for all of the kind.
type flows struct {
	of    map[flowKey]sentAgain
	n     [kind.Num]int // flows
	seed  maphash.Seed
	drawn [kind.Num]uint // of a hash so many bits are 0
}

// A greylist knows a client by its flowKey.
type flowKey struct {
	from, to netip.AddrPort
	of       kind.Kind
}

func keyOf(p *packet.Packet, of kind.Kind) flowKey {
	return flowKey{netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort), of}
}

// sentAgain is one flow.
type sentAgain struct {
	first, last time.Time
	packets     float64
	again       bool
}

// Times of a greylist, and bounds of what is known of flows.
const (
	againAfter  = 100 * time.Millisecond
	againWithin = time.Minute
	flowAge     = 2 * time.Minute
	mostFlows   = 4096 // of a kind
	// Of a flow that began so late nobody knows whether it sends again.
	flowYoung = 5 * time.Second
	// Of so many packets of strangers a second none is asked: less than what is left of any flood.
	askedAbove = 200
	// fewFlows tell nothing of others.
	fewFlows = 20
	// ofNamed is the share of a flood that may come in the names of who came before it.
	ofNamed = 0.01
	// mostOnce is the share of packets in flows that never send again, of a service whose clients
	// do.
	mostOnce = 0.1
)

func newFlows() *flows { return &flows{of: map[flowKey]sentAgain{}, seed: maphash.MakeSeed()} }

// add takes a good packet that stands for some.
func (f *flows) add(now time.Time, p *packet.Packet, weight float64) {
	of := kind.OfPacket(p)
	if of.Row().Again == "" || p.Fragment {
		return
	}
	k := keyOf(p, of)
	s, known := f.of[k]
	if !known {
		if f.n[of] >= mostFlows {
			f.drawn[of]++
			f.drop(func(k flowKey, _ sentAgain) bool { return !f.takes(k) })
		}
		if !f.takes(k) {
			return
		}
		s.first, s.last = now, now
		f.n[of]++
	}
	s.again = s.again || now.Sub(s.first) >= againAfter && now.Sub(s.last) <= againWithin
	s.last = now
	s.packets += weight
	f.of[k] = s
}

// takes says whether a flow is among those that are drawn.
func (f *flows) takes(k flowKey) bool {
	return maphash.Comparable(f.seed, k)&(1<<f.drawn[k.of]-1) == 0
}

// drop lets go of flows.
func (f *flows) drop(which func(flowKey, sentAgain) bool) {
	maps.DeleteFunc(f.of, which)
	f.n = [kind.Num]int{}
	for k := range f.of {
		f.n[k.of]++
	}
}

// tidy lets go of flows that have ended.
func (f *flows) tidy(now time.Time) {
	f.drop(func(_ flowKey, s sentAgain) bool { return now.Sub(s.last) > flowAge })
	for k, n := range f.n {
		if f.drawn[k] > 0 && n < mostFlows/4 {
			f.drawn[k]--
		}
	}
}

// forget drops flows that began since a time, as with a flood.
func (f *flows) forget(since time.Time) {
	f.drop(func(_ flowKey, s sentAgain) bool { return !s.first.Before(since.Add(-goodCalm)) })
}

// copied is what is known of flows, for a search.
func (f *flows) copied() *flows {
	out := *f
	out.of = maps.Clone(f.of)
	return &out
}

// once holds the good packets in flows that were there for a time: of all of them, of those of the
// flood's service, of these in flows that never sent again, and of these again from whom the
// flood's greylist asks.
type once struct {
	flows                    int // of the service
	all, service, once, lost float64
}

// once counts good packets by whether their flows sent again; with ports those to the ports of the
// flood.
func (j *job) once(asks *spared, ports bool) (o once) {
	for k, s := range j.flows.of {
		if j.Alarm.Since.Sub(s.first) < flowYoung {
			continue
		}
		// of all that were drawn from
		packets := s.packets * float64(uint64(1)<<j.flows.drawn[k.of])
		o.all += packets
		if k.of != j.Alarm.Kind || j.Alarm.To.IsValid() && !j.Alarm.To.Contains(k.to.Addr()) ||
			ports && !slices.Contains(j.ports, k.to.Port()) {
			continue
		}
		if o.flows, o.service = o.flows+1, o.service+packets; s.again {
			continue
		}
		if o.once += packets; !asks.named.Has(k.from.Addr()) {
			o.lost += packets
		}
	}
	return o
}

// comesFrom says whether the flood comes from those who came before it, too: in flows that they had
// not. Where they are too many to be named one by one it may come from their networks.
func (j *job) comesFrom(who *spared) bool {
	if slices.ContainsFunc(who.networks, func(n known.Network) bool { return !n.IsSingleIP() }) {
		return true
	}
	passes := j.flood
	if j.passes != nil {
		passes = j.passes
	}
	other, all := 0, 0
	each(passes, func(p *packet.Packet, _ []byte) {
		k := keyOf(p, j.Alarm.Kind)
		if !isOf(&j.Alarm, p) || !j.flows.takes(k) {
			return
		}
		_, knows := j.flows.of[k]
		if all++; !knows && who.named.Has(p.Src) {
			other++
		}
	})
	return float64(other) > ofNamed*float64(all)
}

const fewAreKnown = "too few flows of clients are known to say that they send again"

// greylist has whoever did not come before the flood send again, where clients do: who forges an
// address and a port draws others for the next packet. New clients are served from againAfter
// behind their first packet on (docs/explanation/decisions/0228-who-sends-again.md).
func (j *job) greylist() (out incident.Rule, fault string) {
	row := j.Alarm.Kind.Row()
	lists := len(j.base.Greylists())
	for _, l := range j.Live {
		if l.Rule.Action == episode.Greylist {
			lists++
		}
	}
	switch {
	case lists >= greylist.Meters:
		return out, "the policy has as many as it may have"
	case j.flows == nil:
		return out, fewAreKnown
	}
	spared := j.spared(1 - j.beyond + ofStranger)
	if j.comesFrom(&spared) { // they are asked with all others
		spared.networks, spared.named, spared.text = nil, nil, ""
	}
	to, ports := hostText(j.Alarm.To), ""
	if to != "" {
		to = " to " + to
	}
	if row.Proves && len(j.ports) > 0 {
		ports = " port " + portList(j.ports)
	}
	o := j.once(&spared, ports != "")
	switch {
	case row.Resends:
		o = once{}
	case o.flows < fewFlows:
		return out, fewAreKnown
	case o.once > mostOnce*o.service:
		return out, fmt.Sprintf("%.0f %% of the packets of clients are of flows that never send "+
			"again", 100*o.once/o.service)
	}
	text := fmt.Sprintf("greylist %s%s%s%s after %dms within %ds above %d/s", row.Again,
		spared.text, to, ports, againAfter.Milliseconds(), int(againWithin.Seconds()), askedAbove)
	if _, ok := valid(text); !ok {
		return out, "the language has none for this kind"
	}
	out.Label, out.State = episode.Label(j.ID, j.Round, 0), incident.Waiting
	out.Rule, out.Action = written(text, j.Of, out.Label), episode.Greylist
	out.Why = "nothing tells it from clients but that these send again"
	n := strangers(j.flood, nil, func(p *packet.Packet) bool {
		return isOf(&j.Alarm, p) && !spared.named.Has(p.Src)
	}, flowOf)
	one := signature.Judged{Packets: j.good.Len(),
		Dropped: int(o.lost / max(1, o.all) * float64(j.good.Len()))}
	out.Coverage = float64(n) / float64(max(1, j.flood.Len()))
	out.Predicted, out.AtMost = one.Collateral(), one.Highest()
	return out, j.worth(&out)
}
