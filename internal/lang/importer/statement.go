package importer

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/importer/match"
	"levee/internal/lang/importer/state"
)

// statement is one rule of the policy, or a comment, that is not written yet: a run of rules that
// differ in one address only becomes a rule about a set.
type statement struct {
	action string // "" for a comment
	m      match.Match
	label  string
	named  bool         // the label is the source's own
	text   string       // of a comment, or of one above a limit
	rate   string       // of a limit
	of     *ChainRule   // that the limit is made of
	counts *match.Match // what the limit of the source counts, if that is more
}

// minRun is the number of rules in a row, differing in an address only, that become a rule about a
// set. Fewer keep counters of their own.
const minRun = 8

// rule adds a rule; named says that its label must stay.
func (o *Output) rule(action string, m *match.Match, label string, named bool) {
	at := o.plain(*m)
	if !o.leaves {
		o.dhcp.meet(action, &at)
	}
	o.pending = append(o.pending, statement{action: action, m: at, label: label, named: named})
	if o.keeps = o.keeps || at.Fields[match.Known] != nil; action != "count" && slices.ContainsFunc(
		[]match.Match{{}, match.Match{}.With(match.Ether, match.Only4),
			match.Match{}.With(match.Ether, match.Only6)},
		func(of match.Match) bool { of = of.And(&state.Known); return of.Equal(&at) }) {
		o.decided = append(o.decided, at)
	}
}

// maxLogs is the largest number of logs in a policy.
const maxLogs = 64

// log writes a log of the packets of m in front of rule r.
func (o *Output) log(r *ChainRule, m match.Match) {
	if o.logs++; o.logs > maxLogs {
		if o.logs == maxLogs+1 {
			o.Report.Add(r.Remark(Noticed,
				strconv.Itoa(maxLogs)+" logs are written, more a policy has not: "+
					"this one and those behind it are not in it",
				"log what is alike with one rule"))
		}
		return
	}
	m = o.plain(m)
	o.keeps = o.keeps || m.Fields[match.Known] != nil
	o.pending = append(o.pending, statement{action: "log", m: m, label: r.Logs, named: true})
}

// maxCookies is the largest number of cookies in a policy.
const maxCookies = 16

// cookie has SYNs of m answered in front of rule r, which passes those of clients that are there.
func (o *Output) cookie(r *ChainRule, m match.Match) {
	if m = m.And(&match.TcpSyn); m.Never {
		return
	}
	m.Flags, m.NotFlags = nil, nil // a cookie finds SYNs by itself
	m.Fields[match.Fragment] = nil
	odd := slices.ContainsFunc([]match.Field{match.EtherFrom, match.EtherTo, match.Len, match.TTL,
		match.DSCP, match.Known,
		match.Strict, match.Loose},
		func(f match.Field) bool { return m.Fields[f] != nil })
	if o.cookies++; odd || o.cookies > maxCookies {
		w := r.Remark(Changed, "SYNs are answered by `cookie` for addresses, ports and tags "+
			"alone, and at most "+strconv.Itoa(maxCookies)+" times: these pass as they come", "")
		w.Widens = true
		r.Remarks = append(r.Remarks, w)
		o.Report.Add(w)
		o.beside(w)
		o.Report.pass(&m)
		return
	}
	o.pending = append(o.pending, statement{action: "cookie", m: m, label: "cookie " + r.Label,
		named: true})
}

// plain returns m without the condition that the packet belongs to no connection, if an earlier
// rule decides all packets of connections.
func (o *Output) plain(m match.Match) match.Match {
	if k := m.Fields[match.Known]; k == nil || k[0].Lo != 0 ||
		slices.Equal(m.Fields[match.Proto], match.NoTracked) {
		return m
	}
	rest := m
	rest.Fields[match.Known] = nil
	if is := rest.With(match.Known, match.Just(1)); slices.ContainsFunc(o.decided, is.Within) {
		return rest
	}
	return m
}

// isDecided tells whether an earlier rule decides all packets of m, which are of connections, and
// no limit in front of it leaves any.
func (o *Output) isDecided(m *match.Match) bool {
	k := m.Fields[match.Known]
	return !o.limited && k != nil && k[0].Lo == 1 && slices.ContainsFunc(o.decided, m.Within)
}

// near writes a rule as a comment.
func (o *Output) near(text string) {
	o.addComment(match.NearPrefix + Printable(strings.ReplaceAll(Clip(text, 800), "\n", " "),
		400) + "\n")
}

func (o *Output) comment(text string) { o.addComment("# " + Printable(text, 400) + "\n") }

func (o *Output) addComment(text string) {
	o.pending = append(o.pending, statement{text: text})
}

// beside writes a remark as a comment above its rule, the first of its kind only.
func (o *Output) beside(r Remark) {
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

// textBeside returns the comment that beside would write.
func (o *Output) textBeside(r Remark) (text string) {
	n := len(o.pending)
	o.beside(r)
	for _, s := range o.pending[n:] {
		text += s.text
	}
	o.pending = o.pending[:n]
	return text
}

// writeComment writes text in lines of at most 100 columns.
func writeComment(w io.Writer, prefix, text string) {
	const most = 100
	line := prefix
	for i, word := range strings.Fields(Printable(text, 2000)) {
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
func (o *Output) flush() {
	for i := 0; i < len(o.pending); {
		s := &o.pending[i]
		if s.action == "" {
			o.body.WriteString(s.text)
			i++
			continue
		}
		n := o.run(i)
		if n < minRun {
			o.body.WriteString(s.text)
			o.write1(s.action, &s.m, s.rate, s.label)
			i++
			continue
		}
		o.writeRun(o.pending[i : i+n])
		i += n
	}
	o.pending = nil
}

func (o *Output) write1(action string, m *match.Match, rate, label string) {
	o.rules++
	if o.leaves {
		action = "out " + action
	}
	if o.forwards {
		own := m.With(match.Local, match.Just(1))
		m = &own
	}
	fmt.Fprintf(&o.body, "%s%s%s as \"%s\"\n", action, m.Text(), rate, o.label(label))
}

// run returns the number of rules from i on that differ in their source, or in their destination,
// only.
func (o *Output) run(i int) int {
	first := &o.pending[i]
	if first.named || first.action == "count" {
		return 1
	}
	most := 1
	for _, from := range [...]bool{true, false} {
		a, rest := first.m.Part(from)
		if a == nil {
			continue
		}
		n := 1
		for ; i+n < len(o.pending); n++ {
			s := &o.pending[i+n]
			if s.action != first.action || s.named {
				break
			}
			if b, other := s.m.Part(from); b == nil || !other.Equal(&rest) {
				break
			}
		}
		if n > most {
			most = n
		}
	}
	return most
}

// writeRun writes rules that differ in one side only as one.
func (o *Output) writeRun(run []statement) {
	first := run[0]
	from := true
	if _, rest := first.m.Part(true); true {
		a, last := run[1].m.Part(true)
		from = a != nil && last.Equal(&rest)
	}
	var all []match.AddressSpan
	for i := range run {
		in, _ := run[i].m.Part(from)
		all = append(all, in...)
	}
	in := match.JoinAddrs(all)
	chain, _, _ := strings.Cut(first.label, ":")
	word := map[bool]string{true: "from", false: "to"}[from]
	set := &match.Set{Name: match.UniqueName(chain+"-"+first.action+"-"+word, o.Taken),
		Addresses: in}
	o.AddSet(set.Name, match.AddressesText(in))
	m := first.m
	if from {
		m.From.In = set
	} else {
		m.To.In = set
	}
	o.write1(first.action, &m, "", fmt.Sprintf("%s and %d more", first.label, len(run)-1))
}
