package iptables

import (
	"fmt"
	"strconv"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// A mark is a fact of a packet that rules set and other rules read. Those that come in have none.
// So where no rule that a packet meets before sets the bits that a rule asks for, they are 0.

// parseMark reads VALUE or VALUE/MASK.
func parseMark(s string) (value, mask uint32, err error) {
	v, m, has := strings.Cut(s, "/")
	if !has {
		m = "0xffffffff"
	}
	a, errV := strconv.ParseUint(v, 0, 32)
	b, errM := strconv.ParseUint(m, 0, 32)
	if errV != nil || errM != nil {
		return 0, 0, fmt.Errorf("%s is not a mark", match.Quote(s))
	}
	return uint32(a), uint32(b), nil
}

// mark reads --mark of -m mark.
func (p *ipRule) mark(o string) (bool, error) {
	if o != "--mark" || p.module != "mark" {
		return false, nil
	}
	value, mask, err := parseMark(p.value())
	if p.Rule.Mark != nil {
		p.Unknown("asks for two marks", "")
	}
	p.Rule.Mark = &importer.MarkAsk{Value: value, Mask: mask, Not: p.not}
	p.Unknown(importer.MarkWhy, "")
	return true, err
}

// setsMark notes which bits an option of the target may set.
func (p *ipRule) setsMark(o, v string) {
	if p.target != "MARK" && p.target != "CONNMARK" && p.target != "HMARK" {
		return
	}
	value, mask, err := parseMark(v)
	switch {
	case err != nil:
		mask = 0xffffffff
	case o == "--or-mark":
		mask = value
	case o == "--and-mark": // clears bits
		mask = 0
	case o == "--set-xmark" && strings.Contains(v, "/"):
		mask &= value
	}
	p.Rule.SetsMark |= mask
}

// settleMarks decides the conditions on marks that no rule sets. It needs to know what other
// tables do.
func (t *ipTables) settleMarks() {
	for _, six := range [...]bool{false, true} {
		bits, others := uint32(0), false
		var first []*importer.Chain
		for _, tab := range t.tables {
			if tab.six != six {
				continue
			}
			others = others || tab.name != "filter"
			first = append(first, tab.byName["PREROUTING"], tab.byName["INPUT"])
		}
		for _, c := range importer.Reached(first...) {
			for _, r := range c.Rules {
				bits |= r.SetsMark
			}
		}
		for _, tab := range t.tables {
			for _, c := range tab.chains {
				for _, r := range c.Rules {
					if m := r.Mark; m != nil && tab.six == six && others && m.Mask&bits == 0 {
						r.Unmarked()
					}
				}
			}
		}
	}
}
