package policy

import (
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
)

// Limit is what a rule that begins with limit lets through: of each budget so much, the rest is
// dropped. A budget is a token bucket, kept as the generic cell rate algorithm does (ITU-T I.371,
// Annex A): by the time at which it is full again. What is left of that time is its debt.
//
// Times are in units of 1 << Shift nanoseconds, which are so that the greatest debt has at most
// debtBits bits. Charges and depths are what docs/reference/language.md "Limits" says, to the unit:
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

// Times is how many rates the smallest of a packet's budgets has.
func (l *Limit) Times() uint64 {
	least := uint64(1)
	for i, k := range l.Keys {
		if i == 0 || k.Times < least {
			least = k.Times
		}
	}
	return least
}

// Rate is what a budget gets in a time.
type Rate struct {
	Amount uint64        // packets, or bits
	Per    time.Duration // of bits always a second
	Bits   bool
	Text   string // as written
}

// Key is what packets must have in common to share a budget.
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

	maxLimits        = 32
	minMemory        = 4 << 10
	maxMemory        = 256 << 20
	defaultMinMemory = 64 << 10
	defaultMaxMemory = 32 << 20
)

// MaxKeys is how many keys a limit may have.
const MaxKeys = 3

// SlotsInLine is how many budgets a line of a limit's memory holds, LineBytes how long it is.
const (
	SlotsInLine = 8
	LineBytes   = 64
)

// charge is what n packets or bytes cost a budget that gets times the rate, in ns, rounded up.
func (r *Rate) charge(n, times uint64) (ns uint64, ok bool) {
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

// Charge is what a packet of so many bytes costs budgets of a key, in units of time, at least 1.
// Number -1 is the budget of a limit without keys.
func (l *Limit) Charge(key int, bytes uint32) uint64 {
	n := uint64(1)
	if l.Rate.Bits {
		n = uint64(bytes)
	}
	ns, _ := l.Rate.charge(n, l.times(key))
	return max(1, (ns+1<<l.Shift-1)>>l.Shift)
}

// Depth is the greatest debt of a budget, in units of time.
func (l *Limit) Depth() uint64 {
	if !l.Rate.Bits {
		return l.Burst * l.Charge(-1, 0)
	}
	ns, _ := l.depth()
	return ns >> l.Shift
}

// depth is the charge of the burst, in ns; of packets it is a multiple of what one costs.
func (l *Limit) depth() (ns uint64, ok bool) {
	if l.Rate.Bits {
		return l.Rate.charge(l.Burst, 1)
	}
	each, ok := l.Rate.charge(1, 1)
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

// hold is how long a packet of a source that sends no other holds its slots, ns, over all keys, at
// the kernel where that is longest: a slot is empty again at the first tick at which its time has
// passed.
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
		each, _ := l.Rate.charge(n, l.times(i-max(0, 1-len(l.Keys))))
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

// forgedRate is what a limit whose memory is not given holds out against, packets a second of
// sources that send once, where that takes no more than defaultMaxMemory.
const forgedRate = 1e6

// One reports whether all packets share one budget.
func (l *Limit) One() bool { return len(l.Keys) == 0 && l.Rates == nil }

// Lines is how many lines of slots the memory of the limit has, a power of two.
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

// Crowd is how many sources that each send once may come within Hold, in whatever order and however
// close, for the limit to be exact for all others: fewer than one packet in a million finds no slot
// of its own. 0 is any number.
func (l *Limit) Crowd() float64 {
	if len(l.Keys) == 0 {
		return 0
	}
	return crowd * float64(l.Lines())
}

// Hold is how long a source that sends once is in the way of others.
func (l *Limit) Hold() time.Duration { return time.Duration(l.hold()) }

// Bound is the same as packets a second, where they come evenly or by chance, as a Poisson process:
// slots in use are as a Poisson variable in each line then, as crowd has it.
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

// limit resolves what stands behind the match of a limit.
func (r *resolver) limit(s *ast.Limit, rule *Rule) {
	l := &Limit{}
	rule.Limit = l
	if r.limits++; r.limits == maxLimits+1 {
		r.c.Errorf(s.Rate.Pos, "put what is limited alike into one rule.",
			"a policy has at most %d limits", maxLimits)
	}
	errors := r.c.Errors()
	mostKeys := MaxKeys
	if s.Rates != nil {
		mostKeys-- // the prefix is one
		r.rates(s.Rates, l)
	} else if p := l.rate(s.Rate.Text); p.msg != "" {
		r.problem(s.Rate.Pos, p)
	}
	for i := range s.By {
		if k, ok := r.key(&s.By[i], s.By[:i]); ok {
			l.Keys = append(l.Keys, k)
		}
	}
	if len(s.By) > mostKeys {
		what := ""
		if s.Rates != nil {
			what = " beside its prefixes"
		}
		r.c.Errorf(s.By[mostKeys].Name.Pos, "write a second limit.",
			"a limit has at most %d keys%s", mostKeys, what)
	}
	if s.Memory != nil {
		r.limitMemory(s.Memory, l)
	}
	if r.c.Errors() != errors {
		return
	}
	if l.Rates != nil {
		r.rateKeys(s, l)
		return
	}
	for i := range l.Keys {
		if _, ok := l.Rate.charge(1, l.Keys[i].Times); !ok ||
			float64(l.Rate.Amount)*float64(l.Keys[i].Times)/l.Rate.Per.Seconds() > l.Rate.most() {
			r.c.Errorf(s.By[i].Times.Pos, "", "%s times %s is more than a limit can count",
				s.By[i].Times.Text[1:], short(l.Rate.Text))
			return
		}
	}
	r.burst(s, l)
}

func (r *Rate) most() float64 {
	if r.Bits {
		return mostBits
	}
	return mostPackets
}

const rateExample = "write packets, as in 100/s, 20/m, 500/h, 50kpps or 2Mpps, or bits, as in " +
	"500kbit/s, 10mbit/s or 1gbit/s."

// rateUnits are what may stand behind the number of a rate.
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

// rate reads a rate.
func (l *Limit) rate(text string) problem {
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	unit := text[len(digits):]
	if digits == "" {
		return problemf(rateExample, "%q is not a rate", short(text))
	}
	if unit == "" {
		return problemf(didYouMean(short(digits)+"/s"), "the rate %s has no unit", short(text))
	}
	for _, u := range rateUnits {
		if u.text != unit && !(u.text == "mpps" && unit == "Mpps") {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		l.Rate = Rate{Amount: n * u.factor, Per: u.per, Bits: u.bits, Text: text}
		switch {
		case err == nil && n == 0:
			return problemf("use \"drop\" for what must not pass at all.",
				"a rate of 0 would let nothing through")
		case err != nil || float64(n)*float64(u.factor)/u.per.Seconds() > l.Rate.most():
			return problemf("", "a rate is at most 1000Mpps or 100gbit/s")
		}
		return problem{}
	}
	return problemf(rateHint(digits, unit), "%q is not a unit of a rate", short(unit))
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
			return didYouMean(short(digits) + u.unit)
		}
	}
	return rateExample
}

// burst reads the burst, or takes what the rate gives in a second.
func (r *resolver) burst(s *ast.Limit, l *Limit) {
	at, text := s.Rate.Pos, ""
	if s.Burst != nil {
		at, text = s.Burst.Pos, s.Burst.Text
	}
	if p := l.setBurst(text); p.found() {
		r.problem(at, p)
	}
}

// setBurst takes a burst, or what the rate gives in a second where there is no text, and finds the
// unit of time.
func (l *Limit) setBurst(text string) problem {
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
		if p.found() {
			return p
		}
		l.Burst = n
		if n < least {
			return problemf(
				fmt.Sprintf("write burst %d or more, or leave \"burst\" out.", least),
				"a burst of %s is less than %d %s, and a limit of %s needs that much: programs "+
					"count time in steps of up to %v, and a packet has up to %d bytes",
				short(text), least, what, l.Rate.Text, minBurst, frameBytes)
		}
	}
	debt, ok := l.depth()
	if !ok || debt > uint64(longestDebt) {
		return problemf("write a smaller burst, or a higher rate.",
			"a burst of %d at %s takes more than 30 days to come back", l.Burst, l.Rate.Text)
	}
	l.Shift = uint(max(0, bits.Len64(debt)-debtBits))
	return problem{}
}

// burstOf reads a number of packets, or of bytes with a unit.
func burstOf(text string, isBytes bool) (uint64, problem) {
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	n, err := strconv.ParseUint(digits, 10, 63)
	unit := text[len(digits):]
	switch {
	case err != nil && digits == "" || unit != "" && !isBytes:
		if isBytes {
			return 0, problemf("write bytes: burst 64kB.", "%q is not a number of bytes",
				short(text))
		}
		return 0, problemf("write how many packets may come at once: burst 20.",
			"%q is not a number of packets", short(text))
	case err != nil:
		return 0, problemf("write a smaller burst.", "%s is too large", short(text))
	case unit == "" || n == 0:
		return n, problem{}
	}
	factor, ok := sizeUnit(unit)
	if !ok {
		return 0, problemf("units are kB and MB, of 1024.", "%q is not a unit of a size",
			short(unit))
	}
	if n > math.MaxInt64/factor {
		return 0, problemf("write a smaller burst.", "%s is too large", short(text))
	}
	return n * factor, problem{}
}

func sizeUnit(unit string) (factor uint64, ok bool) {
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

func (r *resolver) limitMemory(w *ast.Word, l *Limit) {
	const example = "write a power of two from 4kB to 256MB, such as 512kB or 8MB."
	text := w.Text
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	n, err := strconv.ParseUint(digits, 10, 40)
	factor, ok := sizeUnit(text[len(digits):])
	if err != nil || !ok {
		r.c.Errorf(w.Pos, example, "%q is not a size", short(text))
		return
	}
	n *= factor
	switch {
	case n < minMemory || n > maxMemory || n&(n-1) != 0:
		r.c.Errorf(w.Pos, example, "a limit cannot have %s of memory", short(text))
	case l.One():
		r.c.Errorf(w.Pos, "leave it out, or say by what: by source.",
			"a limit without \"by\" has one budget, which takes no memory")
	}
	l.Memory = int(n)
}

// keyFields are the keys, and what packets of one budget have in common.
var keyFields = map[string][]field.Field{
	"source":      {field.SrcAddr},
	"destination": {field.DstAddr},
	"from port":   {field.SrcPort},
	"port":        {field.DstPort},
	"dns-name":    {field.DNSName},
	"flow":        {field.SrcAddr, field.DstAddr, field.Proto, field.SrcPort, field.DstPort},
}

// key resolves one key.
func (r *resolver) key(k *ast.Key, before []ast.Key) (out Key, ok bool) {
	out = Key{Fields: keyFields[k.Name.Text], Times: 1, Text: k.Text()}
	for i := range before {
		if before[i].Text() == out.Text {
			r.c.Errorf(k.Name.Pos, "remove one of the two.", "%q is given twice", short(out.Text))
			return out, false
		}
	}
	if out.Fields == nil {
		r.c.Errorf(k.Name.Pos, keyHint(k.Name.Text), "%q is not a key", short(k.Name.Text))
		return out, false
	}
	if address := len(out.Fields) == 1 && out.Fields[0].Info().Compare == field.ByPrefix; address {
		out.Bits4, out.Bits6 = 32, 128
	} else if out.Fields[0] == field.DNSName {
		return r.nameKey(k, out)
	} else if k.Bits != nil {
		r.c.Errorf(k.Bits.Pos, "only source and destination have prefixes.",
			"%q has no prefix length", k.Name.Text)
		return out, false
	}
	if k.Bits != nil {
		if out.Bits4, out.Bits6, ok = r.prefixBits(k.Bits, k.Name.Text); !ok {
			return out, false
		}
	}
	return r.keyTimes(k, out)
}

// keyTimes resolves how many rates each budget of a key has.
func (r *resolver) keyTimes(k *ast.Key, out Key) (Key, bool) {
	if k.Times == nil {
		return out, true
	}
	n, err := strconv.ParseUint(k.Times.Text[1:], 10, 20)
	if err != nil || n == 0 {
		r.c.Errorf(k.Times.Pos, "write how many rates the budget has: x32.",
			"%q is not a number from 1 to 1048575", short(k.Times.Text))
		return out, false
	}
	out.Times = n
	return out, true
}

func keyHint(word string) string {
	switch strings.ToLower(word) {
	case "src", "saddr", "from", "srcip", "ip", "host", "address", "client":
		return didYouMean("source")
	case "dst", "daddr", "to", "dstip", "dest":
		return didYouMean("destination")
	case "dport", "dstport", "destination-port":
		return didYouMean("port")
	case "sport", "srcport", "source-port":
		return didYouMean("from port")
	case "connection", "5-tuple", "five-tuple", "conn":
		return didYouMean("flow")
	}
	keys := []string{"source", "destination", "port", "flow", "dns-name"}
	if m := diag.Nearest(word, keys); m != "" {
		return didYouMean(m)
	}
	return "keys are source, destination, source/24,56, from port, port, flow and dns-name/2."
}

// prefixBits reads `24,56`, or `24` alone: then of IPv6 as many bits more as a network has for one
// host, 32. what is a word that they can stand behind.
func (r *resolver) prefixBits(w *ast.Word, what string) (bits4, bits6 int, ok bool) {
	four, six, both := strings.Cut(w.Text, ",")
	example := "write " + what + "/24 or " + what + "/24,56: bits of IPv4, then of IPv6 addresses."
	n, err := strconv.ParseUint(four, 10, 8)
	if err != nil || n < 1 || n > 32 {
		r.c.Errorf(w.Pos, example, "%q is not a prefix length from 1 to 32", short(four))
		return 0, 0, false
	}
	bits4, bits6 = int(n), int(n)+32
	if !both {
		return bits4, bits6, true
	}
	if n, err = strconv.ParseUint(six, 10, 8); err != nil || n < 1 || n > 128 {
		r.c.Errorf(w.Pos, example, "%q is not a prefix length from 1 to 128", short(six))
		return 0, 0, false
	}
	return bits4, int(n), true
}

// everyAddress is what an address term has that only asks for there being one.
var everyAddress = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// keyTerms are terms that hold for packets that have all that the keys of a limit are about. A
// packet that lacks it has no budget, and the rule does not match it.
func (r *resolver) keyTerms(s *ast.Limit, rule *Rule, all []resolvedTerm) []resolvedTerm {
	so := everything
	for i := range all {
		so = so.with(r.scopeOf(&all[i].term))
	}
	if rates := rule.Limit.Rates; rates != nil {
		t := Term{Field: rates.Field, Prefixes: rates.prefixes()}
		if so = so.with(scopeOf(&t)); so.empty() {
			r.c.Errorf(s.Rates.Side.Pos, "limit packets that have such an address.",
				"no packet that the rule matches has an address of these prefixes")
			return all
		}
		all = append(all, resolvedTerm{src: presence(t.Field), term: t})
	}
	for i := range rule.Limit.Keys {
		k := &rule.Limit.Keys[i]
		for _, f := range k.Fields {
			t := Term{Field: f, Ranges: []field.Range{{Lo: 0, Hi: math.MaxUint16}}}
			switch {
			case f == field.Proto:
				continue // as ports are there
			case f == field.DNSName: // where there is a question, there is a name
				f = field.DNSType
				t.Field = f
			case f.Info().Compare == field.ByPrefix:
				t.Ranges, t.Prefixes = nil, everyAddress
			}
			if so = so.with(scopeOf(&t)); so.empty() {
				r.c.Errorf(s.By[i].Name.Pos, "limit packets that have it, or leave \"by\" out.",
					"no packet that the rule matches has what %q is about", k.Text)
				return all
			}
			if !slices.ContainsFunc(all, func(a resolvedTerm) bool { return a.term.Field == f }) {
				all = append(all, resolvedTerm{src: presence(f), term: t})
			}
		}
	}
	return all
}

// presence is how a term would be written that only asks for a field.
func presence(f field.Field) *ast.Term {
	kind := ast.Number
	switch f {
	case field.SrcAddr:
		kind = ast.From
	case field.DstAddr:
		kind = ast.To
	}
	return &ast.Term{Kind: kind, Field: f}
}
