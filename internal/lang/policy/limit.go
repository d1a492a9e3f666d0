package policy

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"levee/internal/lang/diag"
	"levee/internal/lang/field"
)

// Limit holds the budgets of a rule that begins with limit, which drops what no budget pays. A
// budget is a token bucket, kept as the generic cell rate algorithm does (ITU-T I.371, Annex A): by
// the time at which it is full again. What is left of that time is its debt.
//
// Times are in units of 1 << Shift nanoseconds, which are so that the greatest debt has at most
// debtBits bits. Charges and depths are what docs/reference/limits.md "Limits" says, to the unit:
// oracle and program count the same.
type Limit struct {
	Rate   Rate
	Rates  *Rates // by prefix: then Rate and Burst are those of the deepest budget
	Burst  uint64 // packets or bytes that a full budget lets through at once
	Keys   []Key  // each with budgets of its own; none: one budget for all packets
	Memory int    // bytes asked for; 0: as much as Lines says
	Shift  uint   // log2 of the unit of time in nanoseconds
	// Alike tells what its rule is about, for a rule without a label, whatever its rate, burst
	// and memory: the match, and the ordinal among limits of the same match and keys.
	Alike string
}

// ByKeys says what packets of one budget have in common: what is spent of budgets by other keys
// means nothing to these.
func (l *Limit) ByKeys() string {
	var b strings.Builder
	if l.Rates != nil {
		fmt.Fprintf(&b, ", rates of %v", l.Rates.Field)
	}
	for i := range l.Keys {
		k := &l.Keys[i]
		fmt.Fprintf(&b, ", %v/%d/%d", k.Fields, k.Bits4, k.Bits6)
		if k.Labels > 0 {
			fmt.Fprintf(&b, "/%d", k.Labels)
		}
	}
	return b.String()
}

// Times returns how many rates the smallest of a packet's budgets has.
func (l *Limit) Times() uint64 {
	least := uint64(1)
	for i, k := range l.Keys {
		if i == 0 || k.Times < least {
			least = k.Times
		}
	}
	return least
}

// Rate is the packets or bits that a budget gets in a span of time.
type Rate struct {
	Amount uint64        // packets, or bits
	Per    time.Duration // of bits always a second
	Bits   bool
	Text   string // as written
}

// Key names the fields that packets of one budget have in common.
type Key struct {
	Fields       []field.Field
	Bits4, Bits6 int    // of an address, how many bits count; else 0
	Labels       int    // of a DNS name, how many labels at its end count; 0: all
	Times        uint64 // rates that each budget has, at least 1
	Text         string // as `levee fmt` prints it
}

const (
	debtBits = 38 // of the greatest debt; a slot has 46 bits of time, package filter/limit
	// A burst is at least what the rate gives in this time: programs count time in jiffies,
	// which last up to 10 ms.
	minBurst    = 10 * time.Millisecond
	longestDebt = 30 * 24 * time.Hour

	mostPackets = 1e9   // a second, of all budgets
	mostBits    = 100e9 // a second
	// The longest packet without jumbo frames, and the longest that the stack merges.
	frameBytes  = 1514
	mergedBytes = 65_535

	defaultMinMemory = 64 << 10
	defaultMaxMemory = 32 << 20
)

// MaxKeys limits the keys of a limit.
const MaxKeys = 3

// SlotsInLine counts the budgets in a line of a limit's memory, LineBytes its bytes.
const (
	SlotsInLine = 8
	LineBytes   = 64
)

// Charge returns what n packets or bytes cost a budget that gets times the rate, in ns, rounded up.
func (r *Rate) Charge(n, times uint64) (ns uint64, ok bool) {
	each := uint64(r.Per)
	if r.Bits {
		each *= 8
	}
	hi, lo := bits.Mul64(n, each)
	over, amount := bits.Mul64(r.Amount, times)
	if over != 0 || hi >= amount {
		return 0, false
	}
	q, rest := bits.Div64(hi, lo, amount)
	if rest > 0 {
		q++
	}
	return q, true
}

// Charge returns what a packet of so many bytes costs budgets of a key, in units of time, at least
// 1. Number -1 is the budget of a limit without keys.
func (l *Limit) Charge(key int, bytes uint32) uint64 {
	n := uint64(1)
	if l.Rate.Bits {
		n = uint64(bytes)
	}
	ns, _ := l.Rate.Charge(n, l.times(key))
	return max(1, (ns+1<<l.Shift-1)>>l.Shift)
}

// Depth returns the greatest debt of a budget, in units of time.
func (l *Limit) Depth() uint64 {
	if !l.Rate.Bits {
		return l.Burst * l.Charge(-1, 0)
	}
	ns, _ := l.depth()
	return ns >> l.Shift
}

// depth returns the charge of the burst, in ns; of packets it is a multiple of what one costs.
func (l *Limit) depth() (ns uint64, ok bool) {
	if l.Rate.Bits {
		return l.Rate.Charge(l.Burst, 1)
	}
	each, ok := l.Rate.Charge(1, 1)
	hi, lo := bits.Mul64(each, l.Burst)
	return lo, ok && hi == 0
}

func (l *Limit) times(key int) uint64 {
	if key < 0 {
		return 1
	}
	return l.Keys[key].Times
}

// ticks are the lengths of a jiffy with which Linux is built, ns (kernel/Kconfig.hz).
var ticks = [...]uint64{10_000_000, 4_000_000, 3_333_333, 1_000_000}

// hold returns how long a packet of a source that sends no other holds its slots, ns, over all
// keys, at the kernel where that is longest: a slot is empty again at the first tick at which its
// time has passed.
func (l *Limit) hold() (ns float64) {
	if l.Rates != nil {
		for i := range l.Rates.Entries {
			ns = max(ns, l.Rates.Entries[i].hold())
		}
		return ns
	}
	for i := range max(1, len(l.Keys)) {
		n := uint64(1)
		if l.Rate.Bits {
			n = frameBytes
		}
		each, _ := l.Rate.Charge(n, l.times(i-max(0, 1-len(l.Keys))))
		longest := uint64(0)
		for _, tick := range ticks {
			longest = max(longest, (each+tick-1)/tick*tick)
		}
		ns += float64(longest)
	}
	return ns
}

// crowd is the mean of slots in use in a line at which one packet in a million finds all of its
// line in use: a Poisson variable with this mean is SlotsInLine or more as often as that.
const crowd = 0.7254

// forgedRate is the flood for which a limit without `memory` is sized, in packets a second of
// sources that each send once. The memory is at most defaultMaxMemory.
const forgedRate = 1e6

// One reports whether all packets share one budget.
func (l *Limit) One() bool { return len(l.Keys) == 0 && l.Rates == nil }

// Lines returns how many lines of slots the memory of the limit has, a power of two.
func (l *Limit) Lines() int {
	switch {
	case l.One():
		return 1
	case l.Memory > 0:
		return l.Memory / LineBytes
	}
	lines := forgedRate * l.hold() / 1e9 / crowd
	if len(l.Keys) == 0 {
		lines = float64(len(l.Rates.Entries)) / crowd
	}
	n := defaultMinMemory / LineBytes
	for float64(n) < lines && n < defaultMaxMemory/LineBytes {
		n *= 2
	}
	return n
}

// Crowd returns how many sources that each send once may come within Hold, in whatever order and
// however close, for the limit to be exact for all others: fewer than one packet in a million finds
// no slot of its own. 0 is any number.
func (l *Limit) Crowd() float64 {
	if len(l.Keys) == 0 {
		return 0
	}
	return crowd * float64(l.Lines())
}

// Hold returns how long a source that sends once is in the way of others.
func (l *Limit) Hold() time.Duration { return time.Duration(l.hold()) }

// Bound returns the same as packets a second, where they come evenly or by chance, as a Poisson
// process: slots in use are as a Poisson variable in each line then, as crowd has it.
func (l *Limit) Bound() float64 { return l.Crowd() / l.Hold().Seconds() }

// Limits lists the limits of a policy, in the order of their rules.
func (p *Policy) Limits() []*Rule {
	var out []*Rule
	for _, r := range p.Rules {
		if r.Limit != nil {
			out = append(out, r)
		}
	}
	return out
}

// Most returns the highest rate that a limit can count, packets or bits a second.
func (r *Rate) Most() float64 {
	if r.Bits {
		return mostBits
	}
	return mostPackets
}

const rateExample = "write packets, as in 100/s, 20/m, 500/h, 50kpps or 2Mpps, or bits, as in " +
	"500kbit/s, 10mbit/s or 1gbit/s."

// rateUnits are the units of rates.
var rateUnits = []struct {
	text   string
	factor uint64
	per    time.Duration
	bits   bool
}{
	{"/s", 1, time.Second, false}, {"/m", 1, time.Minute, false}, {"/h", 1, time.Hour, false},
	{"/d", 1, 24 * time.Hour, false},
	{"pps", 1, time.Second, false}, {"kpps", 1e3, time.Second, false},
	{"mpps", 1e6, time.Second, false},
	{"bit/s", 1, time.Second, true}, {"kbit/s", 1e3, time.Second, true},
	{"mbit/s", 1e6, time.Second, true}, {"gbit/s", 1e9, time.Second, true},
}

// SetRate reads a rate.
func (l *Limit) SetRate(text string) diag.Problem {
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	unit := text[len(digits):]
	if digits == "" {
		return diag.Problemf(rateExample, "%q is not a rate", diag.Clip(text))
	}
	if unit == "" {
		return diag.Problemf(diag.DidYouMean(diag.Clip(digits)+"/s"), "the rate %s has no unit",
			diag.Clip(text))
	}
	for _, u := range rateUnits {
		if u.text != unit && !(u.text == "mpps" && unit == "Mpps") {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		l.Rate = Rate{Amount: n * u.factor, Per: u.per, Bits: u.bits, Text: text}
		switch {
		case err == nil && n == 0:
			return diag.Problemf("use \"drop\" for what must not pass at all.",
				"a rate of 0 would let nothing through")
		case err != nil || float64(n)*float64(u.factor)/u.per.Seconds() > l.Rate.Most():
			return diag.Problemf("", "a rate is at most 1000Mpps or 100gbit/s")
		}
		return diag.Problem{}
	}
	return diag.Problemf(rateHint(digits, unit), "%q is not a unit of a rate", diag.Clip(unit))
}

func rateHint(digits, unit string) string {
	for _, u := range []struct{ words, unit string }{
		{"/sec /second /seconds p/s packets/s packets/second ps S s", "/s"},
		{"/min /minute /minutes", "/m"}, {"/hour /hours /hr", "/h"}, {"/day /days", "/d"},
		{"Kpps kp/s KPPS", "kpps"}, {"MPPS", "Mpps"},
		{"bps bit bits/s b/s", "bit/s"}, {"kbps kbit Kbit/s kbits/s Kbps kb/s", "kbit/s"},
		{"mbps mbit Mbit/s mbits/s Mbps mb/s Mbit", "mbit/s"},
		{"gbps gbit Gbit/s gbits/s Gbps gb/s Gbit", "gbit/s"},
	} {
		if slices.Contains(strings.Fields(u.words), unit) {
			return diag.DidYouMean(diag.Clip(digits) + u.unit)
		}
	}
	return rateExample
}

// SetBurst takes a burst, or what the rate gives in a second where there is no text, and finds the
// unit of time.
func (l *Limit) SetBurst(text string) diag.Problem {
	inTime := func(d time.Duration) uint64 { // what the rate gives, rounded up
		n := math.Ceil(float64(l.Rate.Amount) * float64(d) / float64(l.Rate.Per))
		if l.Rate.Bits {
			n = math.Ceil(n / 8)
		}
		return uint64(n)
	}
	least, what := max(1, inTime(minBurst)), "packets"
	l.Burst = max(5, inTime(time.Second))
	if l.Rate.Bits {
		least, what = max(frameBytes, least), "bytes"
		l.Burst = max(mergedBytes, inTime(time.Second))
	}
	if text != "" {
		n, p := burstOf(text, l.Rate.Bits)
		if p.Found() {
			return p
		}
		l.Burst = n
		if n < least {
			return diag.Problemf(
				fmt.Sprintf("write burst %d or more, or leave \"burst\" out.", least),
				"a burst of %s is less than %d %s, and a limit of %s needs that much: programs "+
					"count time in steps of up to %v, and a packet has up to %d bytes",
				diag.Clip(text), least, what, l.Rate.Text, minBurst, frameBytes)
		}
	}
	debt, ok := l.depth()
	if !ok || debt > uint64(longestDebt) {
		return diag.Problemf("write a smaller burst, or a higher rate.",
			"a burst of %d at %s takes more than 30 days to come back", l.Burst, l.Rate.Text)
	}
	l.Shift = uint(max(0, bits.Len64(debt)-debtBits))
	return diag.Problem{}
}

// burstOf reads a number of packets, or of bytes with a unit.
func burstOf(text string, isBytes bool) (uint64, diag.Problem) {
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	n, err := strconv.ParseUint(digits, 10, 63)
	unit := text[len(digits):]
	switch {
	case err != nil && digits == "" || unit != "" && !isBytes:
		if isBytes {
			return 0, diag.Problemf("write bytes: burst 64kB.", "%q is not a number of bytes",
				diag.Clip(text))
		}
		return 0, diag.Problemf("write how many packets may come at once: burst 20.",
			"%q is not a number of packets", diag.Clip(text))
	case err != nil:
		return 0, diag.Problemf("write a smaller burst.", "%s is too large", diag.Clip(text))
	case unit == "" || n == 0:
		return n, diag.Problem{}
	}
	factor, ok := SizeUnit(unit)
	if !ok {
		return 0, diag.Problemf("units are kB and MB, of 1024.", "%q is not a unit of a size",
			diag.Clip(unit))
	}
	if n > math.MaxInt64/factor {
		return 0, diag.Problemf("write a smaller burst.", "%s is too large", diag.Clip(text))
	}
	return n * factor, diag.Problem{}
}

// SizeUnit returns the bytes of a unit; ok is false if the word is no unit.
func SizeUnit(unit string) (factor uint64, ok bool) {
	switch strings.ToLower(unit) {
	case "b":
		return 1, true
	case "kb", "kib", "k":
		return 1 << 10, true
	case "mb", "mib", "m":
		return 1 << 20, true
	case "gb", "gib", "g":
		return 1 << 30, true
	}
	return 0, false
}

// KeyFields are the keys of limits, by their words: what packets of one budget have in common.
var KeyFields = map[string][]field.Field{
	"source":      {field.SrcAddr},
	"destination": {field.DstAddr},
	"from port":   {field.SrcPort},
	"port":        {field.DstPort},
	"dns-name":    {field.DNSName},
	"flow":        FlowKey.Fields,
}
