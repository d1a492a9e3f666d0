package importer

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// statement is one rule of the policy, or a comment, that is not written yet: a run of rules that
// differ in one address only becomes a rule about a set.
type statement struct {
	action string // "" for a comment
	m      match
	label  string
	named  bool       // the label is the source's own
	text   string     // of a comment
	rate   string     // of a limit
	of     *chainRule // that the limit is made of
}

// minRun is how many rules in a row, which differ in an address only, become a rule about a set.
// Fewer keep counters of their own.
const minRun = 8

// rule adds a rule; named says that its label must stay.
func (o *output) rule(action string, m *match, label string, named bool) {
	at := o.plain(*m)
	if !o.leaves {
		o.dhcp.meet(action, &at)
	}
	o.pending = append(o.pending, statement{action: action, m: at, label: label, named: named})
	if o.keeps = o.keeps || at.f[fKnown] != nil; action != "count" && slices.ContainsFunc(
		[]match{{}, match{}.with(fEther, only4), match{}.with(fEther, only6)},
		func(of match) bool { of = of.and(&known); return of.equal(&at) }) {
		o.decided = append(o.decided, at)
	}
}

// maxLogs is how many logs a policy has at most.
const maxLogs = 64

// log writes a log of the packets of m in front of rule r.
func (o *output) log(r *chainRule, m match) {
	if o.logs++; o.logs > maxLogs {
		if o.logs == maxLogs+1 {
			o.rep.add(r.remark(Noticed, itoa(maxLogs)+" logs are written, more a policy has not: "+
				"this one and those behind it are not in it", "log what is alike with one rule"))
		}
		return
	}
	m = o.plain(m)
	o.keeps = o.keeps || m.f[fKnown] != nil
	o.pending = append(o.pending, statement{action: "log", m: m, label: r.logs, named: true})
}

// maxCookies is how many cookies a policy has at most.
const maxCookies = 16

// cookie has SYNs of m answered in front of rule r, which passes those of clients that are there.
func (o *output) cookie(r *chainRule, m match) {
	if m = m.and(&tcpSyn); m.never {
		return
	}
	m.flags, m.notFlags = nil, nil // a cookie finds SYNs by itself
	m.f[fFragment] = nil
	odd := slices.ContainsFunc([]numField{fEtherFrom, fEtherTo, fLen, fTTL, fDSCP, fKnown,
		fStrict, fLoose},
		func(f numField) bool { return m.f[f] != nil })
	if o.cookies++; odd || o.cookies > maxCookies {
		w := r.remark(Changed, "SYNs are answered by `cookie` for addresses, ports and tags "+
			"alone, and at most "+itoa(maxCookies)+" times: these pass as they come", "")
		w.Widens = true
		r.remarks = append(r.remarks, w)
		o.rep.add(w)
		o.beside(w)
		o.rep.pass(&m)
		return
	}
	o.pending = append(o.pending, statement{action: "cookie", m: m, label: "cookie " + r.label,
		named: true})
}

// plain is m without the condition that the packet belongs to no connection, where those that do
// are decided before.
func (o *output) plain(m match) match {
	if k := m.f[fKnown]; k == nil || k[0].Lo != 0 || slices.Equal(m.f[fProto], noTracked) {
		return m
	}
	rest := m
	rest.f[fKnown] = nil
	if is := rest.with(fKnown, just(1)); slices.ContainsFunc(o.decided, is.within) {
		return rest
	}
	return m
}

// near writes a rule as a comment.
func (o *output) near(text string) {
	o.addComment(nearPrefix + printable(strings.ReplaceAll(clip(text, 800), "\n", " "), 400) + "\n")
}

func (o *output) comment(text string) { o.addComment("# " + printable(text, 400) + "\n") }

func (o *output) addComment(text string) {
	o.pending = append(o.pending, statement{text: text})
}

// beside writes a remark as a comment above its rule, the first of its kind only.
func (o *output) beside(r Remark) {
	r.Widens = r.Widens && !o.leaves
	text := r.Text
	if r.Instead != "" {
		text += "; " + r.Instead
	}
	if o.said[r.kind()+text] {
		return
	}
	o.said[r.kind()+text] = true
	prefix := "# " + r.kind() + ": "
	if r.Kind == LeftOut {
		if prefix = "#   why: "; r.Widens {
			prefix = "#   why (widens): "
		}
	}
	var b strings.Builder
	writeComment(&b, prefix, text)
	o.addComment(b.String())
}

// writeComment writes text in lines of at most 100 columns.
func writeComment(w io.Writer, prefix, text string) {
	const most = 100
	line := prefix
	for i, word := range strings.Fields(printable(text, 2000)) {
		switch {
		case i == 0:
			line += word
		case len(line)+1+len(word) > most:
			fmt.Fprintln(w, line)
			line = "#   " + word
		default:
			line += " " + word
		}
	}
	fmt.Fprintln(w, line)
}

// flush writes the statements that are pending.
func (o *output) flush() {
	for i := 0; i < len(o.pending); {
		s := &o.pending[i]
		if s.action == "" {
			o.body.WriteString(s.text)
			i++
			continue
		}
		n := o.run(i)
		if n < minRun {
			o.write1(s.action, &s.m, s.rate, s.label)
			i++
			continue
		}
		o.writeRun(o.pending[i : i+n])
		i += n
	}
	o.pending = nil
}

func (o *output) write1(action string, m *match, rate, label string) {
	o.rules++
	if o.leaves {
		action = "out " + action
	}
	fmt.Fprintf(&o.body, "%s%s%s as \"%s\"\n", action, m.text(), rate, o.label(label))
}

// run is the number of rules from i on that differ in their source, or in their destination, only.
func (o *output) run(i int) int {
	first := &o.pending[i]
	if first.named || first.action == "count" {
		return 1
	}
	most := 1
	for _, from := range [...]bool{true, false} {
		a, rest := first.m.part(from)
		if a == nil {
			continue
		}
		n := 1
		for ; i+n < len(o.pending); n++ {
			s := &o.pending[i+n]
			if s.action != first.action || s.named {
				break
			}
			if b, other := s.m.part(from); b == nil || !other.equal(&rest) {
				break
			}
		}
		if n > most {
			most = n
		}
	}
	return most
}

// part is one side of a match that is a short list of addresses, and the match without it.
func (m *match) part(from bool) (addrSpans, match) {
	rest := *m
	a := &rest.to
	if from {
		a = &rest.from
	}
	if a.pos == nil || a.pos.name != "" || a.pos.dynamic || len(a.pos.addrs) > 64 {
		return nil, rest
	}
	in := a.pos.addrs
	a.pos = nil
	return in, rest
}

// writeRun writes rules that differ in one side only as one.
func (o *output) writeRun(run []statement) {
	first := run[0]
	from := true
	if _, rest := first.m.part(true); true {
		a, last := run[1].m.part(true)
		from = a != nil && last.equal(&rest)
	}
	var all []addrSpan
	for i := range run {
		in, _ := run[i].m.part(from)
		all = append(all, in...)
	}
	in := joinAddrs(all)
	chain, _, _ := strings.Cut(first.label, ":")
	word := map[bool]string{true: "from", false: "to"}[from]
	set := &addrSet{name: uniqueName(chain+"-"+first.action+"-"+word, o.taken), addrs: in}
	o.addSet(set.name, addressesText(in))
	m := first.m
	if from {
		m.from.pos = set
	} else {
		m.to.pos = set
	}
	o.write1(first.action, &m, "", fmt.Sprintf("%s and %d more", first.label, len(run)-1))
}
