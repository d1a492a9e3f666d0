package linerate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// unit is a unit of a number, with its names. Longer names come first: "Mpps" is not "s".
type unit struct {
	names  []string // lower case
	scaled bool     // k, M, G and T may stand in front
	set    func(q *Quantities) *float64
	factor float64
}

var units = []unit{
	{[]string{"bit/s", "bits/s", "bps", "b/s", "bit", "b"}, true,
		func(q *Quantities) *float64 { return &q.Speed }, 1},
	{[]string{"pps", "packets/s", "p/s", "pkt/s"}, true,
		func(q *Quantities) *float64 { return &q.Rate }, 1},
	{[]string{"ns"}, false, func(q *Quantities) *float64 { return &q.Time }, 1},
	{[]string{"us", "µs"}, false, func(q *Quantities) *float64 { return &q.Time }, 1e3},
	{[]string{"ms"}, false, func(q *Quantities) *float64 { return &q.Time }, 1e6},
	{[]string{"cycles", "cycle", "cyc"}, false, func(q *Quantities) *float64 { return &q.Cycles },
		1},
	{[]string{"bytes", "byte"}, false, func(q *Quantities) *float64 { return &q.Frame }, 1},
}

// Counting says which bytes a frame size counts.
type Counting int

// What may be meant by a size.
const (
	WithFCS    Counting = iota // as standards and test equipment count: 64 to 1518
	WithoutFCS                 // as Linux and tcpdump do: 60 to 1514
	// from the IP header on, as an MTU does; short ones are padded on the wire
	IPPacket
)

// Add reads one quantity into q: "10G" (a link), "64" (a frame), "14.88Mpps", "67.2ns",
// "200cycles". The unit decides what it is; a number with k, M, G or T alone is a link speed, one
// without anything a frame size in bytes, counted as c says.
func (q *Quantities) Add(word string, c Counting) error {
	digits := strings.TrimRight(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/µ")
	name := word[len(digits):]
	value, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsInf(value, 0) || math.IsNaN(value) || value <= 0 {
		return fmt.Errorf("%q is no quantity: write a link speed (10G), a frame size (64), "+
			"packets a second (14.88Mpps), 67.2ns or 200cycles", word)
	}
	target, factor, ok := find(name)
	if !ok {
		return fmt.Errorf("%q: there is no unit %q: use bit/s, pps, ns, us, ms, cycles, bytes",
			word, name)
	}
	v := target(q)
	if *v != 0 {
		return fmt.Errorf("%q: that quantity was given already", word)
	}
	value *= factor
	if v == &q.Frame {
		if value, err = c.frame(value); err != nil {
			return err
		}
	}
	*v = value
	return nil
}

// find returns the quantity that a unit is of, and its size.
func find(name string) (target func(*Quantities) *float64, factor float64, ok bool) {
	if name == "" || name == "B" {
		return func(q *Quantities) *float64 { return &q.Frame }, 1, true
	}
	if strings.Contains(name, "B") && !strings.HasPrefix(name, "Byte") {
		return nil, 0, false // GB/s are bytes: nobody shall be wrong by a factor of eight
	}
	rest, scale := name, 1.0
	if i := strings.IndexByte("kMGT", name[0]); i >= 0 {
		rest, scale = name[1:], math.Pow(1e3, float64(i+1))
	} else if name[0] == 'K' || name[0] == 'g' || name[0] == 't' {
		rest, scale = name[1:], map[byte]float64{'K': 1e3, 'g': 1e9, 't': 1e12}[name[0]]
	}
	if scale > 1 && rest == "" {
		return units[0].set, scale, true
	}
	for _, u := range units {
		switch {
		case slices.Contains(u.names, strings.ToLower(name)):
			return u.set, u.factor, true
		case scale > 1 && u.scaled && slices.Contains(u.names, strings.ToLower(rest)):
			return u.set, scale * u.factor, true
		}
	}
	return nil, 0, false
}

// frame returns a size as standards count.
func (c Counting) frame(bytes float64) (float64, error) {
	if bytes != math.Trunc(bytes) {
		return 0, fmt.Errorf("a frame of %g bytes: there are no parts of bytes", bytes)
	}
	switch c {
	case WithoutFCS:
		if bytes < MinFrame-FCS {
			return 0, fmt.Errorf("a frame of %g bytes: the smallest has %d without its check "+
				"sequence", bytes, MinFrame-FCS)
		}
		return bytes + FCS, nil
	case IPPacket:
		if bytes < 20 {
			return 0, fmt.Errorf("an IP packet of %g bytes: its header alone has 20", bytes)
		}
		return math.Max(bytes+Header+FCS, MinFrame), nil
	}
	return bytes, nil
}
