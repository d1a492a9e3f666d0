package defend

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/known"
	"levee/internal/agent/signature"
	"levee/internal/packet"
)

// ofStranger is the part of a flood that a limit on strangers leaves, where more was not usual.
const ofStranger = 0.005

// newFor is the time for which a client is new: nothing put into force before he came has named
// him.
const newFor = 5 * time.Second

// known returns the sources that came before a flood, in several seconds of the last hour or often
// in the sample of good traffic.
func (w *Watcher) known(good *signature.Sample) map[netip.Addr]known.Client {
	out := map[netip.Addr]known.Client{}
	for from, r := range w.regulars.of {
		if max(r.times, r.late.times) >= minTimes {
			out[from] = known.Client{Since: r.first}
		}
	}
	for from := range sourcesOf(good) {
		if r := w.regulars.of[from]; r != nil {
			out[from] = known.Client{Since: r.first}
		} else {
			out[from] = known.Client{}
		}
	}
	each(good, func(p *packet.Packet, _ []byte) {
		if c, there := out[p.Src]; there {
			c.Packets++
			out[p.Src] = c
		}
	})
	return out
}

// visit is a good packet of a client that was new.
type visit struct {
	at   time.Time
	from netip.Addr
}

// visits are the packets of the good traffic of an alarm's kind and destination whose sources were
// new.
func (w *Watcher) visits(now time.Time, a *detect.Alarm) (out []visit) {
	w.good.each(now, func(f *frame) {
		if !f.isNew {
			return
		}
		if w.decode(f); isOf(a, &w.packet) {
			out = append(out, visit{f.at, w.packet.Src})
		}
	})
	return out
}

// isOf says whether a packet is of an alarm's kind and destination.
func isOf(a *detect.Alarm, p *packet.Packet) bool {
	return a.Kind.Is(p) && (!a.To.IsValid() || a.To.Contains(p.Dst))
}

// spared are the networks of who came before a flood, and its rules' term about others.
type spared struct {
	networks []known.Network
	named    known.Prefixes // the same
	text     string
}

// spared returns who came before the flood and has no more than a share of it. Where nobody did,
// the term is "".
func (j *job) spared(share float64) (out spared) {
	four := !j.Alarm.To.IsValid() || j.Alarm.To.Addr().Is4()
	all := maps.Clone(j.known)
	for a := range j.peers.All() { // who has done a handshake
		all[a] = known.Client{Packets: all[a].Packets}
	}
	maps.DeleteFunc(all, func(a netip.Addr, _ known.Client) bool {
		return j.Alarm.To.IsValid() && a.Is4() != four
	})
	flood := map[netip.Addr]int{}
	each(j.flood, func(p *packet.Packet, _ []byte) {
		if isOf(&j.Alarm, p) {
			flood[p.Src]++
		}
	})
	bears := int(share * float64(j.flood.Len()))
	out.networks = known.Networks(all, flood, bears, int(j.byChance()*float64(j.good.Len())))
	if len(out.networks) == 0 {
		return out
	}
	words, from := make([]string, len(out.networks)), make([]netip.Prefix, len(out.networks))
	for i, n := range out.networks {
		words[i], from[i] = hostText(n.Prefix), n.Prefix
	}
	out.named = known.NewPrefixes(from)
	out.text = " not from { " + strings.Join(words, ", ") + " }"
	return out
}

// limitStrangers limits the kind of the flood for whoever did not come before it, where nothing
// else tells it from clients: known clients are served as before, and new ones share with the flood
// what is usual of such, and as much again (docs/explanation/decisions/0209-strangers.md).
func (j *job) limitStrangers() (out incident.Rule, fault string) {
	row, to := j.Alarm.Kind.Row(), hostText(j.Alarm.To)
	is := func(p *packet.Packet) bool { return isOf(&j.Alarm, p) }
	spared := j.spared(1 - j.beyond + ofStranger)
	networks := spared.networks
	if len(networks) == 0 {
		return out, "nobody is known who came before it"
	}
	text := episode.Limit + " " + row.Limit
	if to != "" && j.Alarm.To.Addr().Is6() {
		text = episode.Limit + " " + row.Limit6
	}
	text += spared.text
	if to != "" {
		text += " to " + to
	}
	if row.Proves && len(j.ports) > 0 {
		text += " port " + portList(j.ports)
	}
	named := spared.named
	strange := func(s *signature.Sample) (n, all int) {
		each(s, func(p *packet.Packet, _ []byte) {
			if is(p) {
				all++
				if !named.Has(p.Src) {
					n++
				}
			}
		})
		return n, all
	}
	lost, all := strange(j.good)
	for _, v := range j.visits { // who comes after the list is made is in it only by his network
		at := slices.IndexFunc(networks, func(n known.Network) bool { return n.Contains(v.from) })
		if at >= 0 && v.at.Sub(networks[at].Since) < newFor {
			lost++
		}
	}
	usual := j.Alarm.UsualAll * min(1, float64(lost)/float64(max(1, all)))
	rate := max(2*usual, min(j.tooMuch()/10, ofStranger*j.Alarm.All), minOfSource)
	text += rateText(rate)
	if _, ok := valid(text); !ok || row.Limit == "" { // its layout is one of many lines
		return out, "the language has none for this kind"
	}
	out.Label, out.State = episode.Label(j.ID, j.Round, 0), incident.Waiting
	out.Rule, out.Action = written(text, j.Of, out.Label), episode.Limit
	out.Why = "nothing tells it from clients but that these came before it"
	part := max(0, 1-rate/max(1, j.Alarm.All))
	lost = min(lost, j.good.Len()) // visits are of more than the sample holds
	one := signature.Judged{Packets: j.good.Len(), Dropped: int(part * float64(lost))}
	comes, _ := strange(j.flood)
	out.Coverage = part * float64(comes) / float64(max(1, j.flood.Len()))
	out.Predicted, out.AtMost = one.Collateral(), one.Highest()
	return out, j.worth(&out)
}

// wordsOf are those of an answer in a note.
func wordsOf(answer string) string {
	if answer == episode.LimitStrangers {
		return "limit on who did not come before it"
	}
	return answer
}
