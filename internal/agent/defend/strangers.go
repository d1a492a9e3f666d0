package defend

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/signature"
	"levee/internal/packet"
)

// Bounds of a limit on strangers.
const (
	mostKnown  = 256   // networks that a rule names as known
	ofStranger = 0.005 // part of a flood that it leaves, where more was not usual
)

// widths are the networks by which known clients are named, for IPv4 and IPv6, the narrowest first.
// 256 networks of the widest are a two-hundredth of the Internet.
var widths = [][2]int{{32, 64}, {24, 56}, {20, 48}, {16, 40}}

// known are who came before a flood, in several seconds of the last hour or often in the sample of
// good traffic, each with how many packets of him that sample has.
func (w *Watcher) known(good *signature.Sample) map[netip.Addr]int {
	out := map[netip.Addr]int{}
	for from, r := range w.regulars.of {
		if max(r.times, r.late.times) >= minTimes {
			out[from] = 0
		}
	}
	for from := range sourcesOf(good) {
		out[from] = 0
	}
	each(good, func(p *packet.Packet, _ []byte) {
		if _, there := out[p.Src]; there {
			out[p.Src]++
		}
	})
	return out
}

// networksOf are networks that hold all of some addresses, 256 at most. Where more are needed, they
// are the 256 with most packets: the narrowest that leave out so few packets, or the widest. So
// nobody makes a list useless by few packets from many networks. Addresses of one family are asked
// for, or of both.
func networksOf(all map[netip.Addr]int, four, six bool, few int) (out []netip.Prefix) {
	var enough []netip.Prefix
	for _, bits := range widths {
		seen := map[netip.Prefix]int{}
		for a, n := range all {
			long := bits[1]
			if a.Is4() {
				long = bits[0]
			}
			if p, err := a.Prefix(long); err == nil && (four && a.Is4() || six && !a.Is4()) {
				seen[p] += n
			}
		}
		type network struct {
			is      netip.Prefix
			packets int
		}
		var most []network
		for p, n := range seen {
			most = append(most, network{p, n})
		}
		slices.SortFunc(most, func(a, b network) int {
			return cmp.Or(b.packets-a.packets, a.is.Compare(b.is))
		})
		out = nil
		without := 0
		for i, n := range most {
			if i < mostKnown {
				out = append(out, n.is)
			} else {
				without += n.packets
			}
		}
		slices.SortFunc(out, netip.Prefix.Compare)
		if len(out) == len(most) {
			return out
		}
		if enough == nil && without <= few {
			enough = out
		}
	}
	if enough != nil {
		return enough
	}
	return out
}

// limitStrangers limits the kind of the flood for whoever did not come before it, where nothing
// else tells it from clients: known clients are served as before, and new ones share with the flood
// what is usual and as much again (docs/explanation/decisions/0209-strangers.md).
func (j *job) limitStrangers() (out incident.Rule, fault string) {
	row, to := j.Alarm.Kind.Row(), hostText(j.Alarm.To)
	four := to == "" || j.Alarm.To.Addr().Is4()
	all := maps.Clone(j.known)
	for a := range j.peers.known() { // who has done a handshake
		all[a] += 0
	}
	from := networksOf(all, four, to == "" || !four, int(j.byChance()*float64(j.good.Len())))
	if len(from) == 0 {
		return out, "nobody is known who came before it"
	}
	text := episode.Limit + " " + row.Limit
	if !four {
		text = episode.Limit + " " + row.Limit6
	}
	words := make([]string, len(from))
	for i, p := range from {
		words[i] = hostText(p)
	}
	text += " not from { " + strings.Join(words, ", ") + " }"
	if to != "" {
		text += " to " + to
	}
	if row.Proves && len(j.ports) > 0 {
		text += " port " + portList(j.ports)
	}
	rate := max(2*j.Alarm.UsualAll, min(j.tooMuch()/10, ofStranger*j.Alarm.All), minOfSource)
	text += rateText(rate)
	if _, ok := valid(text); !ok || row.Limit == "" { // its layout is one of many lines
		return out, "the language has none for this kind"
	}
	out.Label, out.State = episode.Label(j.ID, j.Round, 0), incident.Waiting
	out.Rule, out.Action = written(text, j.Of, out.Label), episode.Limit
	out.Why = "nothing tells it from clients but that these came before it"
	known, part := newPrefixes(from), max(0, 1-rate/max(1, j.Alarm.All))
	strange := func(s *signature.Sample) (n int) {
		each(s, func(p *packet.Packet, _ []byte) {
			if j.Alarm.Kind.Is(p) && !known.has(p.Src) &&
				(!j.Alarm.To.IsValid() || j.Alarm.To.Contains(p.Dst)) {
				n++
			}
		})
		return n
	}
	one := signature.Judged{Packets: j.good.Len(), Dropped: int(part * float64(strange(j.good)))}
	out.Coverage = part * float64(strange(j.flood)) / float64(max(1, j.flood.Len()))
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
