package difftest

import "testing"

// TestFragmentsAgreeWithTheOracle judges fragments of few datagrams, of which a limit drops some
// first ones, on both link layers, and sees to it that each fate is met often.
func TestFragmentsAgreeWithTheOracle(t *testing.T) {
	const text = `count fragments as "fragments"
count fragments proto udp as "udp"
fragments track as "follow"
limit ether { ipv4, ipv6 } rate 2/s burst 1 by source as "first"
pass ipv4 as "four"
pass ipv6 as "six"
default drop
`
	eachIsMet(t, text, 12, "fragments", "udp", "follow", "first", "four", "six", "fragment-overlap",
		"fragment-tiny", "fragment-orphan")
}
