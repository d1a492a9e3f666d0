package signature

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"levee/internal/lang/field"
	"levee/internal/packet"
)

const (
	// fewest is the smallest share of a group of packets for which a value is worth a term.
	fewest = 0.05
	// listed is the largest number of values that a list in a rule has.
	listed = 6
	// core is the share of a group for which a term about all of it has to hold.
	core = 0.99
)

// term is one condition that a rule may have.
type term struct {
	text  string
	field field.Field
	not   bool
	// spares says that it is there to spare what is essential, and tells nothing of the flood
	spares bool
	cost   float64 // 1, and a little for each further element of a list
	width  float64 // share of the values of the field that it names, where these can be counted
	holds  [2]set  // packets of the flood, of the good traffic
	share  float64 // of the good packets; where these are few, width
	// strange says that it holds for few good packets: that it tells something of the flood
	strange bool
}

const (
	// strange is the share of good packets that a term holds for at most to be strange.
	strange = 0.5
	// narrow is the share of the values of a field instead, where good packets are few.
	narrow = 0.1
)

// weigh notes for how many of n good packets the term holds.
func (t *term) weigh(n int) {
	t.share, t.strange = t.width, t.width <= narrow
	if n >= fewGood {
		t.share = float64(t.holds[1].count()) / float64(n)
		t.strange = t.share <= strange
	}
}

// conflicts says whether a rule may not have both: two about one field say little more than one.
func (t *term) conflicts(u *term) bool {
	return t.field == u.field && t.field != field.Payload
}

// group is packets of the flood that look alike, and the good ones that look so too.
type group struct {
	flood, good     *view
	inFlood, inGood []int // places in the views
	forged          bool
	terms           map[string]*term
}

// add notes a term.
func (g *group) add(f field.Field, not bool, elements int, width float64, format string,
	args ...any) {
	text := fmt.Sprintf(format, args...)
	if not {
		text = "not " + text
	}
	if g.terms[text] == nil {
		g.terms[text] = &term{text: text, field: f, not: not,
			cost: 1 + 0.2*float64(max(elements-1, 0)), width: width}
	}
}

// collect makes all terms that a group suggests, by the rows of the registry.
func (g *group) collect() {
	for i := range field.Phrases {
		ph := &field.Phrases[i]
		info := ph.Field.Info()
		known := slices.Contains(numeric, ph.Field)
		switch {
		case ph.Form == field.FormWord && (known || ph.Field == field.EtherType):
			g.words(ph)
		case ph.Form == field.FormAlone && known:
			g.alone(ph)
		case ph.Form == field.FormNumber && known:
			g.ranges(ph, info)
		case ph.Form == field.FormICMP && known:
			g.types(ph)
		case ph.Form == field.FormFlags && known:
			g.flags(ph)
		case ph.Form == field.FormAddress && (ph.Field == field.DstAddr || !g.forged):
			g.prefixes(ph)
		case ph.Form == field.FormBytes:
			g.payload(ph)
		}
	}
}

// histogram counts the values of a field, and says how many packets have one.
func histogram(v *view, places []int, f field.Field) (map[uint64]int, int) {
	counts, n := map[uint64]int{}, 0
	for _, at := range places {
		if num := v.numbers[f][at]; num.has {
			counts[num.v]++
			n++
		}
	}
	return counts, n
}

// words makes terms of words alone: families and protocols.
func (g *group) words(ph *field.Phrase) {
	seen := map[uint64]bool{}
	for _, at := range g.inFlood {
		p := &g.flood.packets[at]
		if ph.Field == field.EtherType {
			seen[uint64(p.EtherType)] = true
		} else if p.IsIP() {
			seen[uint64(p.Proto)] = true
		}
	}
	for _, w := range ph.Words {
		if r, _ := ph.Field.Named(w); seen[r.Lo] && w != "arp" {
			width := 1.0 / 32
			if ph.Field == field.EtherType { // most packets have one of two
				width = 1
			}
			g.add(ph.Field, false, 1, width, "%s", w)
			delete(seen, r.Lo)
		}
	}
	if ph.Field == field.Proto {
		for _, v := range slices.Sorted(maps.Keys(seen)) {
			if len(seen) <= listed {
				g.add(ph.Field, false, 1, 1.0/32, "proto %d", v)
			}
		}
	}
}

// alone makes the terms of words that ask for values by themselves.
func (g *group) alone(ph *field.Phrase) {
	yes, n := 0, 0
	for _, at := range g.inFlood {
		num := g.flood.numbers[ph.Field][at]
		if !num.has {
			continue
		}
		n++
		if ph.Mask != 0 && uint8(num.v)&ph.Mask == ph.Value ||
			ph.Mask == 0 && ph.Lo <= num.v && num.v <= ph.Hi {
			yes++
		}
	}
	if n > 0 && float64(yes) >= fewest*float64(n) {
		g.add(ph.Field, false, 1, narrow, "%s", ph.Word)
	}
}

// flags makes terms of exactly the flags that packets have, those of congestion aside.
func (g *group) flags(ph *field.Phrase) {
	const mask = 0xff &^ (packet.ECE | packet.CWR)
	counts, n := map[uint64]int{}, 0
	for _, at := range g.inFlood {
		if num := g.flood.numbers[ph.Field][at]; num.has {
			counts[num.v&mask]++
			n++
		}
	}
	for _, v := range top(counts, 3) {
		if float64(counts[v]) >= fewest*float64(n) && v != packet.SYN {
			g.add(ph.Field, false, 1, 1.0/64, "%s %s/%s", ph.Word, flagNames(ph.Field, v),
				flagNames(ph.Field, mask))
		}
	}
}

// flagNames writes flags.
func flagNames(f field.Field, v uint64) string {
	var names []string
	for _, n := range f.Info().Names {
		if v&n.Lo != 0 {
			names = append(names, n.Word)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ",")
}

// types makes terms of ICMP types, with their codes and without.
func (g *group) types(ph *field.Phrase) {
	counts, n := histogram(g.flood, g.inFlood, ph.Field)
	whole := map[uint64]int{}
	for v, c := range counts {
		whole[v>>8] += c
	}
	for _, v := range top(whole, 3) {
		if float64(whole[v]) >= fewest*float64(n) {
			name := fmt.Sprint(v)
			for _, w := range ph.Field.Info().Names {
				if w.Lo == v {
					name = w.Word
				}
			}
			g.add(ph.Field, false, 1, 1.0/256, "%s %s", ph.Word, name)
		}
	}
	for _, v := range top(counts, 3) {
		if float64(counts[v]) >= fewest*float64(n) {
			g.add(ph.Field, false, 1, 1.0/65536, "%s %d/%d", ph.Word, v>>8, v&0xff)
		}
	}
}
