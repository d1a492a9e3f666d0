package ir

import (
	"slices"

	"levee/internal/filter/flow"
	"levee/internal/lang/field"
	"levee/internal/packet"
)

// form tells by the flags of a leaving segment, or by the type of an ICMP message, whether it
// answers the other side.
type form uint8

const (
	either form = iota // it depends on the connection
	replies
	asks
)

// formOfFlags returns that of a segment: a RST and a SYN-ACK answer, a SYN alone asks (see
// "Answers" in docs/reference/connections.md).
func formOfFlags(flags uint8) form {
	switch {
	case flags&packet.RST != 0, flags&packet.SYN != 0 && flags&packet.ACK != 0:
		return replies
	case flags&packet.SYN != 0:
		return asks
	}
	return either
}

// mayAnswer says whether some packet that leaves meets conditions, of which one may ask whether it
// is an answer: `syn established` asks for a segment that begins and answers.
func mayAnswer(conds []Cond) bool {
	asked := slices.IndexFunc(conds, func(c Cond) bool { return c.Field == field.Flow })
	if asked < 0 {
		return true
	}
	unlike := asks
	if contains(conds[asked].Ranges, 0) {
		unlike = replies
	}
	for i := range conds {
		c := &conds[i]
		switch c.Field {
		case field.TCPFlags:
			if !anyFlags(conds, unlike) {
				return false
			}
		case field.ICMPType, field.ICMP6Type:
			if !anyType(c, unlike) {
				return false
			}
		}
	}
	return true
}

// anyFlags says whether some flags meet all conditions on them and have another form.
func anyFlags(conds []Cond, unlike form) bool {
	for f := range 256 {
		if formOfFlags(uint8(f)) != unlike && !slices.ContainsFunc(conds, func(c Cond) bool {
			return c.Field == field.TCPFlags && !flagsHold(&c, uint8(f))
		}) {
			return true
		}
	}
	return false
}

// anyType says whether a type of ICMP meets a condition and has another form.
func anyType(c *Cond, unlike form) bool {
	six := c.Field == field.ICMP6Type
	for _, r := range c.Ranges {
		for of := r.Lo >> 8; of <= r.Hi>>8; of++ {
			is := asks
			if slices.Contains(flow.Asked(six), uint8(of)) {
				is = replies
			}
			if is != unlike {
				return true
			}
		}
	}
	return false
}
