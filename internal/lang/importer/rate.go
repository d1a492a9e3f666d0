package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// rate is a limit as a policy says it: what one budget is worth, and by which fields packets have
// budgets of their own, as hashlimit names them.
type rate struct {
	n, burst uint64
	per      byte // s, m, h or d
	by       []string
	mask     string   // of srcip or dstip, or ""
	more     []reason // why more may pass than the source lets through
	syns     bool     // it is of SYNs, whatever the rule is about
	ends     bool     // what is above it is dropped, also where the rule passes
}

// seconds is how long the units are that rates are counted in.
var seconds = map[byte]uint64{'s': 1, 'm': 60, 'h': 3600, 'd': 86400}

// maxLimits is how many limits a policy has at most.
const maxLimits = 32

// newRate reads what iptables prints: 25/sec. It is nil for what a policy does not say, as bytes.
func newRate(text, burst string) *rate {
	const (
		most    = 1_000_000_000 // a second
		longest = 30 * 86400    // that a budget takes to be full again, in seconds
	)
	n, unit, ok := strings.Cut(text, "/")
	k, err := strconv.ParseUint(n, 10, 32)
	if !ok || unit == "" || err != nil || k == 0 || seconds[unit[0]] == 0 {
		return nil
	}
	l := &rate{n: k, burst: 5, per: unit[0]}
	if burst != "" {
		if l.burst, err = strconv.ParseUint(burst, 10, 32); err != nil {
			return nil
		}
	}
	per := seconds[l.per]
	if least := max(1, (k+100*per-1)/(100*per)); l.burst < least { // what comes in 10 ms
		l.burst = least
		l.more = []reason{{fmt.Sprintf("a limit of this rate lets at least %d packets in at once, "+
			"which is what comes in 10 ms", least), ""}}
	}
	if k/per > most || l.burst*per/k >= longest {
		return nil
	}
	return l
}

// text is the rate for packets of m, or "" if a policy does not say it.
func (l *rate) text(m *match) string {
	out := fmt.Sprintf(" rate %d/%c burst %d", l.n, l.per, l.burst)
	one := func(s spans) bool { return len(s) == 1 && s[0].Lo == s[0].Hi }
	var by []string
	for _, k := range l.by { // what is the same for all packets makes no difference
		if k == "dstport" && one(m.f[fPort]) || k == "srcport" && one(m.f[fFromPort]) {
			continue
		}
		by = append(by, k)
	}
	isIP := m.f[fEther] != nil && m.f[fEther].within(bothIP)
	mask := ""
	if l.mask != "" {
		if mask = "/" + l.mask; slices.Equal(m.f[fEther], only6) {
			mask = "/32," + l.mask
		}
	}
	switch {
	case m.text() == "":
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
// above it, and one that passes or returns up to it where what is above is dropped.
func (r *chainRule) carriesRate(ch *chain, n int, budgets map[string]int) bool {
	if r.rate == nil || len(r.limits) != 1 || len(r.unknown) > 0 || budgets[r.budget] > 1 {
		return false
	}
	if len(r.alts) == 2 && len(r.opens) == 1 && r.limit == above && r.verb == doDrop {
		m := r.alts[1] // what begins in the middle of a connection; the other is its SYN
		m.flags = nil
		r.alts = []match{m.settle()}
		r.remarks = append(r.remarks, r.remark(Changed, "segments of TCP that belong to no "+
			"connection and begin none count, too", ""))
	}
	if len(r.alts) != 1 {
		return false
	}
	switch {
	case r.limit == above:
		return r.verb == doDrop
	case r.verb == doAccept: // see settle
		return true
	}
	return r.verb == doReturn && dropsNext(ch, n+1, &r.alts[0])
}

// standsEarly says that conditions stand behind a limit.
func (l *rate) standsEarly() {
	const text = "the limit stands before other conditions of the rule, so that packets which " +
		"these are not for use it up too; a limit of a policy is for the packets of its rule"
	if n := len(l.more); n == 0 || l.more[n-1].what != text {
		l.more = append(l.more, reason{text, ""})
	}
}

// windowRate is n packets in so many seconds, all of which may come at once.
func windowRate(n, in uint64) *rate {
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
	l := newRate(fmt.Sprintf("%d/%s", k, per), fmt.Sprint(n))
	if l != nil {
		l.more = append(l.more, reason{fmt.Sprintf("counts what came in the last %d seconds; a "+
			"limit gives back evenly, so that at most twice as many pass within that time", in),
			""})
	}
	return l
}

// dropsNext tells whether the rules of the chain from n on, and its policy, drop all packets of m.
func dropsNext(ch *chain, n int, m *match) bool {
	for _, r := range ch.rules[n:] {
		switch {
		case r.idle():
		case r.verb == doDrop:
			return len(r.unknown) == 0 && r.limit == noLimit && len(r.filled) == 0 &&
				len(r.alts) == 1 && m.compatible(&r.alts[0]) && m.within(r.alts[0])
		default:
			return false
		}
	}
	return ch.base && ch.drop
}

// limit writes a limit for the packets of m, if there is one; see settle.
func (o *output) limit(r *chainRule, m match) {
	if r.rate.syns {
		if m = m.and(&tcpSyn); m.never {
			return
		}
	}
	at := o.plain(m)
	o.keeps = o.keeps || at.f[fKnown] != nil
	o.pending = append(o.pending, statement{action: "limit", m: at, label: r.label, named: true,
		rate: r.rate.text(&at), of: r})
}

// settle looks whether the limits that were written mean what the source does: each rule has one
// budget, and what a rule passes up to a rate is dropped above it. Others are taken back.
func (fl *flattener) settle() {
	places := map[*chainRule][]int{}
	var order []*chainRule
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
		at := places[r]
		m := fl.out.pending[at[0]].m
		if len(at) == 1 && left > 0 && fl.out.pending[at[0]].rate != "" &&
			(r.verb != doAccept || r.rate.ends || fl.droppedBehind(at[0]+2, &m) ||
				fl.unknownOnly(r, at[0])) {
			left--
			fl.out.limits++
			continue
		}
		fl.takeBack(r, at)
	}
}

// unknownOnly makes a limit and the pass behind it about packets of no known connection, where
// those behind it pass the others, and drop these.
func (fl *flattener) unknownOnly(r *chainRule, i int) bool {
	m := &fl.out.pending[i].m
	known, unknown := m.with(fKnown, just(1)).settle(), m.with(fKnown, just(0)).settle()
	if m.f[fKnown] != nil || i+1 >= len(fl.out.pending) ||
		fl.out.pending[i+1].action != "pass" || fl.out.pending[i+1].m.text() != m.text() ||
		!fl.droppedBehind(i+2, &unknown) || !fl.passedAtLast(i+2, &known) {
		return false
	}
	text := r.rate.text(&unknown)
	if text == "" {
		return false
	}
	fl.out.pending[i].m, fl.out.pending[i].rate = unknown, text
	fl.out.pending[i+1].m = unknown
	told := r.remark(Changed, "what belongs to a known connection passes behind it, and does not "+
		"count here", "")
	r.remarks = append(r.remarks, told)
	fl.out.rep.add(told)
	return true
}

// passedAtLast tells whether one of statement i and those behind it passes all packets of m that
// none before it drops for something else.
func (fl *flattener) passedAtLast(i int, m *match) bool {
	for _, s := range fl.out.pending[min(i, len(fl.out.pending)):] {
		if fl.looks++; fl.looks > maxLooks {
			return false
		}
		if s.action == "pass" || s.action == "drop" {
			if m.compatible(&s.m) && m.within(s.m) {
				return s.action == "pass"
			}
		}
	}
	return false
}

// maxLooks bounds what is looked at: hostile input may have many rules of each kind.
const maxLooks = 2_000_000

// droppedBehind tells whether statement i and those behind it drop all packets of m.
func (fl *flattener) droppedBehind(i int, m *match) bool {
	for _, s := range fl.out.pending[min(i, len(fl.out.pending)):] {
		if fl.looks++; fl.looks > maxLooks {
			return false
		}
		if s.action != "pass" && s.action != "drop" || s.action == "pass" && isMartian(&s.m) {
			continue
		}
		if !m.compatible(&s.m) {
			return false
		}
		if both := m.and(&s.m); both.never || beginsNone(m, &s.m) || beginsNone(&s.m, m) {
			continue
		}
		if s.action == "pass" {
			return false
		}
		if m.within(s.m) {
			return true
		}
	}
	left := *m
	for _, c := range fl.out.closed { // the policies stand behind them, in this order
		if both := left.and(&c.family); both.never {
			continue
		}
		if !c.drop {
			return false
		}
		if left = left.unseen(c); left.never {
			return true
		}
	}
	return false
}

// isMartian tells whether m is about packets from loopback, which the kernel drops where they come
// by another interface.
func isMartian(m *match) bool {
	return m.from.pos != nil && len(m.from.pos.addrs) > 0 && m.from.pos.addrs.within(loopback)
}

// passedBehind tells whether statement i and those behind it drop no packet of m.
func (fl *flattener) passedBehind(i int, m *match) bool {
	for _, s := range fl.out.pending[min(i, len(fl.out.pending)):] {
		if fl.looks++; fl.looks > maxLooks {
			return false
		}
		if s.action == "" || s.action == "count" || s.action == "log" {
			continue
		}
		if !m.compatible(&s.m) {
			return false
		}
		both := m.and(&s.m)
		switch {
		case both.never:
		case s.action != "pass":
			return false
		case m.within(s.m):
			return true
		}
	}
	return !slices.ContainsFunc(fl.out.closed, func(c *chain) bool {
		both := m.and(&c.family)
		return c.drop && !both.never
	})
}

// opens tells whether packets of m begin connections or exchanges, so that they are of none.
func opens(m *match) bool {
	return m.flags != nil && *m.flags == flagMatch{flagsFSRA, 0x02} ||
		m.f[fICMP] != nil && m.f[fICMP].within(requests) ||
		m.f[fICMP6] != nil && m.f[fICMP6].within(requests6)
}

// beginsNone tells whether s is about connections that are known, of which no packet of m is.
func beginsNone(m, s *match) bool {
	return opens(m) && len(s.f[fKnown]) > 0 && s.f[fKnown][0].Lo == 1
}

// takeBack makes of the limits of a rule what it is without one.
func (fl *flattener) takeBack(r *chainRule, at []int) {
	l := r.limits[0]
	needless := r.verb == doAccept
	for _, i := range at {
		s := &fl.out.pending[i]
		needless = needless && fl.passedBehind(i+2, &s.m)
		if !needless {
			fl.out.rep.pass(&s.m)
		}
		*s = statement{}
	}
	if needless {
		m := r.remark(Noticed, l.what+": what is above it passes by the rules behind it, so that "+
			"the rule stands without", "")
		r.remarks = append(r.remarks, m)
		fl.out.rep.add(m)
		return
	}
	if r.verb == doDrop {
		m := r.remark(LeftOut, l.what+": what it drops is judged by the rules behind it and the "+
			"policy of the chain, and passed where these pass", l.instead)
		m.Widens, r.widens, fl.gone[r] = true, true, true
		fl.out.rep.add(m)
		fl.out.pending[at[0]].text = "# left out: " + printable(r.text, 400) + "\n"
		return
	}
	r.widen(l.what+withoutLimit, l.instead, nil)
	m := r.remarks[len(r.remarks)-1]
	fl.out.rep.add(m)
	n := len(fl.out.pending)
	fl.out.beside(m)
	for _, s := range slices.Clone(fl.out.pending[n:]) { // it belongs above the rule
		fl.out.pending[at[0]].text += s.text
	}
	fl.out.pending = fl.out.pending[:n]
}
