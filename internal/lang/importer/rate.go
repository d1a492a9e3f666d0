package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/importer/match"
	"levee/internal/lang/importer/state"
)

// Rate is a limit as a policy says it: what one budget is worth, and by which fields packets have
// budgets of their own, as hashlimit names them.
type Rate struct {
	n, burst uint64
	per      byte // s, m, h or d
	By       []string
	Mask     string   // of srcip or dstip, or ""
	More     []Reason // why more may pass than the source lets through
	Syns     bool     // the rate counts SYNs only, whatever the rule matches
	Ends     bool     // what is above it is dropped, also where the rule passes
	Joins    bool     // the source has a budget for each destination besides
	// Counts are the packets that use it up, nil if that is not known; behind: the rule is about
	// fewer.
	Counts []match.Match
	behind bool
}

// seconds is the length of the units of rates, in seconds.
var seconds = map[byte]uint64{'s': 1, 'm': 60, 'h': 3600, 'd': 86400}

// maxLimits is the largest number of limits in a policy.
const maxLimits = 32

// NewRate reads what iptables prints: 25/sec. It is nil for what a policy does not say, as bytes.
func NewRate(text, burst string) *Rate {
	const (
		most    = 1_000_000_000 // a second
		longest = 30 * 86400    // that a budget takes to be full again, in seconds
	)
	n, unit, ok := strings.Cut(text, "/")
	k, err := strconv.ParseUint(n, 10, 32)
	if !ok || unit == "" || err != nil || k == 0 || seconds[unit[0]] == 0 {
		return nil
	}
	l := &Rate{n: k, burst: 5, per: unit[0]}
	if burst != "" {
		if l.burst, err = strconv.ParseUint(burst, 10, 32); err != nil {
			return nil
		}
	}
	per := seconds[l.per]
	if least := max(1, (k+100*per-1)/(100*per)); l.burst < least { // what comes in 10 ms
		l.burst = least
		l.More = []Reason{{fmt.Sprintf("a limit of this rate lets at least %d packets in at once, "+
			"which is what comes in 10 ms", least), ""}}
	}
	if k/per > most || l.burst*per/k >= longest {
		return nil
	}
	return l
}

// text returns the rate for packets of m, or "" if a policy does not say it.
func (l *Rate) text(m *match.Match) string {
	out := fmt.Sprintf(" rate %d/%c burst %d", l.n, l.per, l.burst)
	one := func(s match.Spans) bool { return len(s) == 1 && s[0].Lo == s[0].Hi }
	var by []string
	for _, k := range l.By { // what is the same for all packets makes no difference
		if k == "dstport" && one(m.Fields[match.Port]) || k == "srcport" &&
			one(m.Fields[match.FromPort]) {
			continue
		}
		by = append(by, k)
	}
	isIP := m.Fields[match.Ether] != nil && m.Fields[match.Ether].Within(match.BothIP)
	mask := ""
	if l.Mask != "" {
		if mask = "/" + l.Mask; slices.Equal(m.Fields[match.Ether], match.Only6) {
			mask = "/32," + l.Mask
		}
	}
	switch {
	case m.Text() == "":
		return ""
	case len(by) == 0:
		return out
	case len(by) > 1 || !isIP:
		return ""
	case by[0] == "srcip":
		return out + " by source" + mask
	case by[0] == "dstip":
		return out + " by destination" + mask
	}
	return ""
}

// carriesRate tells whether the rule, the nth of the chain, may become a limit: one that drops
// above it, and one that passes, returns or leads to a chain up to it where what is above is
// dropped.
func (r *ChainRule) carriesRate(ch *Chain, n int, budgets map[string]int) bool {
	if r.Rate == nil || len(r.Limits) != 1 || len(r.Unknown) > 0 || budgets[r.budget] > 1 {
		return false
	}
	if len(r.opens) > 0 && r.Limit == Above && r.Verb == DoDrop {
		r.joinBegun()
	}
	goesOn := r.Verb == DoReturn || r.Verb.leads()
	if several := len(r.Alts) != 1; several && (len(r.Alts) == 0 || r.States == nil ||
		goesOn) { // of a state, the jumps that lead here may leave one; see settle
		return false
	}
	switch {
	case r.Limit == Above:
		return r.Verb == DoDrop
	case r.Verb == DoAccept: // see settle
		return true
	}
	return goesOn && dropsNext(ch, n+1, &r.Alts[0])
}

// joinBegun makes one alternative of SYNs and of what begins in the middle of a connection, so that
// they count together.
func (r *ChainRule) joinBegun() {
	var alts []match.Match
	joined := false
	for _, m := range r.Alts {
		switch {
		case m.Flags == nil || m.Flags.Mask != match.FlagsFSRA:
		case m.Flags.Value == 0x02:
			continue
		case m.Flags.Value == 0x10:
			m.Flags = nil
			m, joined = m.Settle(), true
		}
		alts = append(alts, m)
	}
	if !joined {
		return
	}
	r.Alts = alts
	r.Remarks = append(r.Remarks, r.Remark(Changed, "segments of TCP that belong to no "+
		"connection and begin none count, too", ""))
}

// StandsEarly says that conditions stand behind a limit.
func (l *Rate) StandsEarly() { l.behind = true }

// behindText is the remark on a limit that counts more packets than those of its rule.
const behindText = "the limit stands before other conditions of the rule, so that packets which " +
	"these are not for use it up too; a limit of a policy is for the packets of its rule"

// joinsText is the remark on a limit that has no budget for each destination.
const joinsText = "limits each source and destination; where the machine has several addresses, " +
	"they share the budget of a source"

// countAll has a limit count all packets that use up the one of the source. That is the same where
// those that the rule does not pass are dropped behind it. Else more may pass.
func (fl *flattener) countAll(r *ChainRule, i int) {
	s := &fl.out.pending[i]
	if m := s.counts; m != nil && r.Verb == DoAccept && fl.droppedBehind(i+2, m) {
		if text := r.Rate.text(m); text != "" {
			s.m, s.rate = *m, text
			return
		}
	}
	fl.out.Report.pass(&s.m)
	r.Widen(behindText, "", nil)
	m := r.Remarks[len(r.Remarks)-1]
	fl.out.Report.Add(m)
	s.text = fl.out.textBeside(m)
}

// WindowRate returns n packets in so many seconds, all of which may come at once.
func WindowRate(n, in uint64) *Rate {
	if in == 0 || n > 1<<20 || in > 1<<20 {
		return nil
	}
	per, k := "d", (n*seconds['d']+in-1)/in
	for _, u := range []string{"s", "m", "h"} {
		if n*seconds[u[0]]%in == 0 {
			per, k = u, n*seconds[u[0]]/in
			break
		}
	}
	l := NewRate(fmt.Sprintf("%d/%s", k, per), fmt.Sprint(n))
	if l != nil {
		last := "second"
		if in != 1 {
			last = fmt.Sprintf("%d seconds", in)
		}
		l.More = append(l.More, Reason{"counts what came in the last " + last + "; a limit gives " +
			"back evenly, so that at most twice as many pass within that time", ""})
	}
	return l
}

// dropsNext tells whether the rules of the chain from n on, and its policy, drop all packets of m.
func dropsNext(ch *Chain, n int, m *match.Match) bool {
	for _, r := range ch.Rules[n:] {
		if r.idle() || !slices.ContainsFunc(r.Alts, func(a match.Match) bool {
			return !m.Compatible(&a) || !m.And(&a).Never
		}) {
			continue
		}
		jumps := (r.Verb == DoJump || r.Verb == DoGoto) && len(r.Unknown) == 0 &&
			r.Limit == NoLimit && len(r.Filled) == 0 && len(r.Alts) == 1 && r.Target.dropsAll()
		return (jumps || r.isDrop()) && m.Compatible(&r.Alts[0]) && m.Within(r.Alts[0])
	}
	return ch.Base && ch.Drop
}

// limit writes a limit for the packets of m, if there is one; see settle.
// all are the packets that come to the rule, nil if no match says which.
func (o *Output) limit(r *ChainRule, m match.Match, all *match.Match) {
	if r.Rate.Syns {
		if m = m.And(&match.TcpSyn); m.Never {
			return
		}
	}
	at, is := o.plain(m), m.With(match.Known, match.Just(1)).Settle()
	o.limited = o.limited || !is.Never && !opens(&is) && !o.isDecided(&is)
	o.keeps = o.keeps || at.Fields[match.Known] != nil
	s := statement{action: "limit", m: at, label: r.Label, named: true, rate: r.Rate.text(&at),
		of: r}
	if n := r.Rate.Counts; r.Rate.behind && len(n) == 1 && all != nil && all.Compatible(&n[0]) {
		counts := o.plain(all.And(&n[0]))
		s.counts = &counts
	}
	o.pending = append(o.pending, s)
}

// settle looks whether the limits that were written mean what the source does: each rule has one
// budget, and what a rule passes up to a rate is dropped above it. Others are taken back.
func (fl *flattener) settle() {
	places := map[*ChainRule][]int{}
	var order []*ChainRule
	for i := range fl.out.pending {
		if r := fl.out.pending[i].of; r != nil {
			if places[r] == nil {
				order = append(order, r)
			}
			places[r] = append(places[r], i)
		}
	}
	left := maxLimits - fl.out.limits
	for _, r := range order {
		at := fl.hoist(r, places[r])
		m := fl.out.pending[at[0]].m
		if len(at) == 1 && left > 0 && fl.out.pending[at[0]].rate != "" &&
			(r.Verb != DoAccept || r.Rate.Ends || fl.droppedBehind(at[0]+2, &m) ||
				fl.unknownOnly(r, at[0])) {
			if r.Rate.behind {
				fl.countAll(r, at[0])
			}
			if r.Rate.Joins {
				m := r.Remark(Changed, joinsText, "")
				r.Remarks = append(r.Remarks, m)
				fl.out.Report.Add(m)
				fl.out.pending[at[0]].text += fl.out.textBeside(m)
			}
			left--
			fl.out.limits++
			continue
		}
		fl.takeBack(r, at)
	}
}

// hoist makes one limit of those of a rule that drops, at the first of its places: it has one
// budget in all of them. One match has to say which packets come to them, none of others is decided
// in between, and none comes to two of them, where it would count twice.
func (fl *flattener) hoist(r *ChainRule, at []int) []int {
	if len(at) == 1 || r.Verb == DoAccept {
		return at
	}
	come := make([]match.Match, len(at))
	for k, i := range at {
		come[k] = fl.out.pending[i].m
		if !fl.narrow(r, &come[k], &come[0], at[0]+1, i) {
			return at
		}
	}
	for k := range come {
		fl.exceptAlike(come, at, k)
	}
	all := come[0]
	for k, j := range at[1:] {
		m, ok := &come[k+1], false
		twice := m.And(&all)
		once := m.Compatible(&all) && twice.Never
		for i := at[0] + 1; !once && i < j; i++ {
			s := &fl.out.pending[i]
			if fl.looks++; fl.looks > maxLooks {
				return at
			}
			once = s.decides() && twice.Compatible(&s.m) && twice.Within(s.m)
		}
		if once {
			all, ok = all.Or(m)
		}
		if !ok {
			return at
		}
	}
	text := r.Rate.text(&all)
	if text == "" {
		return at
	}
	fl.out.pending[at[0]].m, fl.out.pending[at[0]].rate = all, text
	for _, j := range at[1:] {
		fl.out.pending[j] = statement{}
	}
	return at[:1]
}

// decides tells whether the statement decides all packets of its match.
func (s *statement) decides() bool {
	return s.of == nil && (s.action == "pass" || s.action == "drop")
}

// narrow takes the packets out of m that the statements from lo to hi decide, unless they have come
// to the rule's first place too. It is false where no match says what is left.
func (fl *flattener) narrow(r *ChainRule, m, first *match.Match, lo, hi int) bool {
	for i := lo; i < hi; i++ {
		s := &fl.out.pending[i]
		if fl.looks++; fl.looks > maxLooks {
			return false
		}
		if s.action == "" || s.action == "count" || s.action == "log" || s.of == r || s.ofSent() {
			continue
		}
		if !m.Compatible(&s.m) {
			return false
		}
		both := m.And(&s.m)
		switch {
		case both.Never:
		case s.of != nil:
			return false
		case both.Within(*first):
		default:
			rest, ok := m.Minus(&s.m)
			if !ok || len(rest) != 1 {
				return false
			}
			*m = rest[0]
		}
	}
	return true
}

// exceptAlike takes the sources and destinations that place k of a rule is not about out of the
// other places, where what is before these decides them: one match may say all of them then.
func (fl *flattener) exceptAlike(come []match.Match, at []int, k int) {
	for j := range come {
		for _, n := range come[k].From.Not {
			fl.except(&come[j], match.Match{From: match.Address{In: n}},
				match.Match{From: match.Address{Not: []*match.Set{n}}}, at[j])
		}
		for _, n := range come[k].To.Not {
			fl.except(&come[j], match.Match{To: match.Address{In: n}},
				match.Match{To: match.Address{Not: []*match.Set{n}}}, at[j])
		}
	}
}

// except makes m be about the packets of rest alone, if a statement before i decides the others.
func (fl *flattener) except(m *match.Match, others, rest match.Match, i int) {
	if !m.Compatible(&others) {
		return
	}
	part := m.And(&others)
	for n := range fl.out.pending[:i] {
		s := &fl.out.pending[n]
		if fl.looks++; fl.looks > maxLooks {
			return
		}
		if !part.Never && s.decides() && part.Compatible(&s.m) && part.Within(s.m) {
			*m = m.And(&rest)
			return
		}
	}
}

// unknownOnly makes a limit and the pass behind it about packets of no known connection, where
// those behind it pass the others, and drop these.
func (fl *flattener) unknownOnly(r *ChainRule, i int) bool {
	m := &fl.out.pending[i].m
	known, unknown := m.With(match.Known, match.Just(1)).Settle(),
		m.With(match.Known, match.Just(0)).Settle()
	if m.Fields[match.Known] != nil || i+1 >= len(fl.out.pending) ||
		fl.out.pending[i+1].action != "pass" || fl.out.pending[i+1].m.Text() != m.Text() ||
		!fl.droppedBehind(i+2, &unknown) || !fl.passedAtLast(i+2, &known) {
		return false
	}
	text := r.Rate.text(&unknown)
	if text == "" {
		return false
	}
	fl.out.pending[i].m, fl.out.pending[i].rate = unknown, text
	fl.out.pending[i+1].m = unknown
	told := r.Remark(Changed, "what belongs to a known connection passes behind it, and does not "+
		"count here", "")
	r.Remarks = append(r.Remarks, told)
	fl.out.Report.Add(told)
	return true
}

// passedAtLast tells whether one of statement i and those behind it passes all packets of m that
// none before it drops for something else.
func (fl *flattener) passedAtLast(i int, m *match.Match) bool {
	for _, s := range fl.out.pending[min(i, len(fl.out.pending)):] {
		if fl.looks++; fl.looks > maxLooks {
			return false
		}
		if s.action == "pass" || s.action == "drop" {
			if m.Compatible(&s.m) && m.Within(s.m) {
				return s.action == "pass"
			}
		}
	}
	return false
}

// maxLooks bounds the comparisons of rules: hostile input may have many rules of each kind.
const maxLooks = 2_000_000

// droppedBehind tells whether statement i and those behind it drop all packets of m.
func (fl *flattener) droppedBehind(i int, m *match.Match) bool {
	for _, s := range fl.out.pending[min(i, len(fl.out.pending)):] {
		if fl.looks++; fl.looks > maxLooks {
			return false
		}
		if s.action != "pass" && s.action != "drop" || s.action == "pass" && isMartian(&s.m) ||
			s.ofSent() {
			continue
		}
		if !m.Compatible(&s.m) {
			return false
		}
		if both := m.And(&s.m); both.Never || beginsNone(m, &s.m) || beginsNone(&s.m, m) {
			continue
		}
		if s.action == "pass" {
			return false
		}
		if m.Within(s.m) {
			return true
		}
	}
	left := *m
	for _, c := range fl.out.closed { // the policies stand behind them, in this order
		if both := left.And(&c.Family); both.Never {
			continue
		}
		if !c.Drop {
			return false
		}
		if left = unseen(left, c); left.Never {
			return true
		}
	}
	return false
}

// isMartian tells whether m is about packets from loopback, which the kernel drops where they come
// by another interface.
func isMartian(m *match.Match) bool {
	return m.From.In != nil && len(m.From.In.Addresses) > 0 &&
		m.From.In.Addresses.Within(match.Loopback)
}

// passedBehind tells whether statement i and those behind it drop no packet of m.
func (fl *flattener) passedBehind(i int, m *match.Match) bool {
	for _, s := range fl.out.pending[min(i, len(fl.out.pending)):] {
		if fl.looks++; fl.looks > maxLooks {
			return false
		}
		if s.action == "" || s.action == "count" || s.action == "log" || s.ofSent() {
			continue
		}
		if !m.Compatible(&s.m) {
			return false
		}
		both := m.And(&s.m)
		switch {
		case both.Never:
		case s.action != "pass":
			return false
		case m.Within(s.m):
			return true
		}
	}
	return !slices.ContainsFunc(fl.out.closed, func(c *Chain) bool {
		both := m.And(&c.Family)
		return c.Drop && !both.Never
	})
}

// opens tells whether packets of m begin connections or exchanges, so that they are of none.
func opens(m *match.Match) bool {
	return m.Flags != nil && *m.Flags == match.Flags{Mask: match.FlagsFSRA, Value: 0x02} ||
		m.Fields[match.ICMP] != nil && m.Fields[match.ICMP].Within(match.Requests) ||
		m.Fields[match.ICMP6] != nil && m.Fields[match.ICMP6].Within(state.Requests6)
}

// beginsNone tells whether s is about connections that are known, of which no packet of m is.
func beginsNone(m, s *match.Match) bool {
	return opens(m) && len(s.Fields[match.Known]) > 0 && s.Fields[match.Known][0].Lo == 1
}

// takeBack makes of the limits of a rule what it is without one.
func (fl *flattener) takeBack(r *ChainRule, at []int) {
	l := r.Limits[0]
	needless := r.Verb == DoAccept
	for _, i := range at {
		s := &fl.out.pending[i]
		needless = needless && fl.passedBehind(i+2, &s.m)
		if !needless {
			fl.out.Report.pass(&s.m)
		}
		*s = statement{}
	}
	if needless {
		m := r.Remark(Noticed, l.What+": what is above it passes by the rules behind it, so that "+
			"the rule stands without", "")
		r.Remarks = append(r.Remarks, m)
		fl.out.Report.Add(m)
		return
	}
	if r.Verb == DoDrop {
		m := r.Remark(LeftOut, l.What+": what it drops is judged by the rules behind it and the "+
			"policy of the chain, and passed where these pass", l.Instead)
		m.Widens, r.widens, fl.gone[r] = true, true, true
		fl.out.Report.Add(m)
		fl.out.pending[at[0]].text = "# left out: " + Printable(r.Text, 400) + "\n" +
			fl.out.textBeside(m)
		return
	}
	r.Widen(l.What+withoutLimit, l.Instead, nil)
	m := r.Remarks[len(r.Remarks)-1]
	fl.out.Report.Add(m)
	fl.out.pending[at[0]].text = fl.out.textBeside(m)
}
