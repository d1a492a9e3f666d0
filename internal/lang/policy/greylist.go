package policy

import (
	"strconv"
	"strings"
	"time"

	"levee/internal/lang/diag"
	"levee/internal/lang/field"
)

// Greylist holds the numbers of a rule that begins with greylist: it drops a packet unless its
// client has sent another one before. docs/reference/proofs.md "Greylists" says how.
type Greylist struct {
	After, Within time.Duration // since that one, at least and at most
	Above         uint64        // packets of a second of which none is dropped
}

// GreylistTick is the unit in which the times of a greylist are counted: 2^24 ns, some 17 ms.
const GreylistTick = time.Duration(1) << 24

// MaxGreylist is the longest time within which a client may come again.
const MaxGreylist = time.Minute

// Ticks returns both times in units, of packets whose times are rounded down: whoever keeps to the
// times of the policy is neither too early nor too late, and others may be within a unit.
func (g *Greylist) Ticks() (after, within uint32) {
	return uint32(g.After / GreylistTick), uint32(g.Within/GreylistTick) + 1
}

// leastTime is above GreylistTick.
const leastTime = 20 * time.Millisecond

// timeUnits are the units of times.
var timeUnits = []struct {
	text string
	is   time.Duration
}{{"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute}}

// GreylistTime reads a time as greylists have it: `100ms`, `10s`.
func GreylistTime(text string) (time.Duration, diag.Problem) {
	for _, unit := range timeUnits {
		digits, ok := strings.CutSuffix(text, unit.text)
		n, err := strconv.ParseUint(digits, 10, 16)
		if d := time.Duration(n) * unit.is; ok && err == nil && d >= leastTime &&
			d <= MaxGreylist {
			return d, diag.Problem{}
		}
	}
	return 0, diag.Problemf("write from 20ms to 60s: after 100ms within 10s.",
		"%q is not a time after which clients come again", diag.Clip(text))
}

// FlowKey is the key of one client: addresses, protocol and ports.
var FlowKey = Key{Fields: []field.Field{field.SrcAddr, field.DstAddr, field.Proto, field.SrcPort,
	field.DstPort}, Times: 1, Text: "flow"}

// Greylists lists the greylists of a policy, in the order of their rules.
func (p *Policy) Greylists() (out []*Rule) {
	for _, r := range p.Rules {
		if r.Greylist != nil {
			out = append(out, r)
		}
	}
	return out
}
