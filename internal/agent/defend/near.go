package defend

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"levee/internal/agent/episode"
	"levee/internal/lang/field"
	"levee/internal/packet"
	"levee/internal/quantity"
)

// near describes a flood of frames that neighbours send. A rule against ARP would cut this machine
// off, and one against another protocol may do so: nothing is done about any.
func (j *job) near() *episode.Found {
	kinds, from := map[string]int{}, map[uint64]int{}
	each(j.flood, func(p *packet.Packet, _ []byte) {
		kinds[etherText(p.EtherType)]++
		from[p.SrcMAC]++
	})
	all := j.flood.Len()
	what, n := mostOf(kinds)
	text := fmt.Sprintf("nothing is done: only neighbours send such frames, and they may keep the "+
		"link up, as ARP does. %.0f %% of them are `%s`", 100*float64(n)/float64(max(1, all)), what)
	if who, n := mostOf(from); 2*n > all {
		m := packet.MAC(who)
		text += fmt.Sprintf(", and %.0f %% come from %02x:%02x:%02x:%02x:%02x:%02x",
			100*float64(n)/float64(max(1, all)), m[0], m[1], m[2], m[3], m[4], m[5])
	} else {
		text += ", from " + quantity.Plural(len(from), "Ethernet address")
	}
	text += ". The switch knows at which port they come in"
	return &episode.Found{Good: j.good.Len(), Notes: []string{text}}
}

// etherText is a term of the language for an EtherType.
func etherText(t uint16) string {
	for _, n := range field.EtherType.Info().Names {
		if n.Lo <= uint64(t) && uint64(t) <= n.Hi {
			return "ether " + n.Word
		}
	}
	return fmt.Sprintf("ether 0x%04x", t)
}

// mostOf is the most frequent of some, the least of those that are as frequent.
func mostOf[K cmp.Ordered](counts map[K]int) (most K, n int) {
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		if counts[k] > n {
			most, n = k, counts[k]
		}
	}
	return most, n
}
