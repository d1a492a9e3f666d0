// Package classbench reads filter sets of ClassBench as policies.
//
// In goes a filter set, out comes a policy that judges as the set does, with notes where the two
// differ. It must never write a policy for a part of a set.
package classbench

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// Import reads a ClassBench filter set (Taylor and Turner, "ClassBench: a packet classification
// benchmark", 2007) and writes a policy that decides packets as the set does: one rule a
// filter, in the same order, labelled r0, r1, ..., and `default pass`. A line of the set is
//
//	@SRC/LEN DST/LEN LO : HI LO : HI PROTO/MASK [FLAGS/MASK]
//
// with source and destination ports, numbers in hexadecimal for the last two. Both addresses are of
// one family; sets of IPv6 are what ClassBench-ng (2017) makes. Empty lines and those that begin
// with # are passed over. The flags column is ignored, as all users of these sets do. A filter that
// no packet can match, since it asks for ports of a protocol without ports, becomes a comment, and
// its label is left out. Where the policy and the filter differ, the Report says so.
//
// When lines cannot be read it returns *Errors with all of them (bounded), and has written nothing.
func Import(r io.Reader, w io.Writer, opts importer.Options) (importer.Report, error) {
	name := importer.Heading(opts.Name)
	if name == "" {
		name = "input"
	}
	s := set{action: opts.Action, errs: importer.Errors{Name: name}}
	err := importer.EachLine(r, importer.MaxLine, s.line)
	if err := s.errs.EndOf(err); err != nil {
		return importer.Report{}, err
	}
	if len(s.errs.Lines) > 0 {
		return importer.Report{}, &s.errs
	}
	if s.filters == 0 {
		return importer.Report{},
			fmt.Errorf("%s holds no filters: a ClassBench line is @SRC/LEN DST/LEN "+
				"LO : HI LO : HI PROTO/MASK", name)
	}
	rep := s.report()
	_, err = fmt.Fprintf(w, "# Imported from the ClassBench filter set %s: %d rules, "+
		"%s.\n\n%sdefault pass\n", name, rep.Rules, s.families(), s.body.Bytes())
	if err != nil {
		return importer.Report{}, fmt.Errorf("writing the policy: %w", err)
	}
	return rep, nil
}

// set is a filter set that is read, line by line.
type set struct {
	action  importer.Action
	errs    importer.Errors
	body    bytes.Buffer    // the rules
	filters int             // read, each with a label
	rules   int             // those that packets can match
	notes   []importer.Note // about single lines
	flags   bool            // there is a flags column
	ports   bool            // a filter has ports
	four    bool            // a filter is of IPv4
	six     bool            // one is of IPv6
}

// line reads one, which is cut off where it is too long.
func (s *set) line(n int, line string, long bool) error {
	if n == 1 {
		line = strings.TrimPrefix(line, "\ufeff") // a byte order mark
	}
	if text := strings.TrimSpace(line); !long && (text == "" || text[0] == '#') {
		return nil
	}
	if s.filters+len(s.errs.Lines)+s.errs.More == importer.MaxRules {
		s.errs.Add(n, fmt.Sprintf("more than %d filters", importer.MaxRules))
		return importer.ErrStop
	}
	if long {
		s.errs.Add(n, fmt.Sprintf("longer than %d bytes: not a filter", importer.MaxLine))
		return nil
	}
	f, err := parseFilter(line)
	if err != nil {
		s.errs.Add(n, err.Error())
		return nil
	}
	for _, text := range f.notes() {
		s.notes = append(s.notes, importer.Note{Line: n,
			Text: fmt.Sprintf("r%d: %s", s.filters, text)})
	}
	s.flags = s.flags || f.flags
	s.six = s.six || f.six()
	s.four = s.four || !f.six()
	s.ports = s.ports || f.hasPorts()
	if f.impossible() {
		s.body.WriteString("# no packet can match: ")
	} else {
		s.rules++
	}
	s.body.WriteString(s.action.Of(s.filters))
	f.writeMatch(&s.body)
	fmt.Fprintf(&s.body, " as \"r%d\"\n", s.filters)
	s.filters++
	return nil
}

// report has the notes about the whole set in front.
func (s *set) report() importer.Report {
	rep := importer.Report{Rules: s.rules}
	if s.flags {
		rep.Notes = append(rep.Notes, importer.Note{
			Text: "the flags column is ignored, as all users of these sets do"})
	}
	if s.ports {
		rep.Notes = append(rep.Notes, importer.Note{
			Text: "a non-first fragment has no ports: rules with ports do not match it"})
	}
	rep.Notes = append(rep.Notes, s.notes...)
	return rep
}

func (s *set) families() string {
	switch {
	case s.four && s.six:
		return "IPv4 and IPv6"
	case s.six:
		return "IPv6"
	}
	return "IPv4"
}

// filter is one line of a set.
type filter struct {
	from, to  address
	src, dst  portRange
	proto     uint8
	protoBits int  // leading bits of proto that count: 0 for any protocol, 8 for one
	flags     bool // has a flags column
}

// address is a prefix as a set writes it.
type address struct {
	prefix netip.Prefix // masked
	given  string       // as written, when it had host bits, else ""
}

// portRange is inclusive.
type portRange struct{ lo, hi uint16 }

// isRestricted tells whether the range leaves out a port; else a packet needs no port to match it.
func (p portRange) isRestricted() bool { return p.lo != 0 || p.hi != 0xffff }

// parseFilter reads one line. Its errors say which column is wrong and what was expected there.
func parseFilter(line string) (f filter, err error) {
	col := columns(line)
	if len(col) != 9 && len(col) != 10 || !strings.HasPrefix(col[0], "@") || col[3] != ":" ||
		col[6] != ":" {
		return f, fmt.Errorf("%s is not @SRC/LEN DST/LEN LO : HI LO : HI PROTO/MASK FLAGS/MASK%s",
			match.Quote(line), whatInstead(line))
	}
	if f.from, err = parseAddress(col[0][1:]); err != nil {
		return f, fmt.Errorf("source %w", err)
	}
	if f.to, err = parseAddress(col[1]); err != nil {
		return f, fmt.Errorf("destination %w", err)
	}
	if f.to.prefix.Addr().Is4() == f.six() {
		return f, fmt.Errorf("source %s and destination %s are of two families", f.from.prefix,
			f.to.prefix)
	}
	if f.src, err = parsePorts(col[2], col[4]); err != nil {
		return f, fmt.Errorf("source %w", err)
	}
	if f.dst, err = parsePorts(col[5], col[7]); err != nil {
		return f, fmt.Errorf("destination %w", err)
	}
	value, mask, err := parseMasked(col[8], 8)
	if err != nil {
		return f, fmt.Errorf("protocol %w", err)
	}
	for f.protoBits = 0; f.protoBits < 8 && mask&(0x80>>f.protoBits) != 0; f.protoBits++ {
	}
	if uint8(mask) != ^uint8(0xff>>f.protoBits) {
		return f, fmt.Errorf("protocol mask of %s is not leading bits: a policy has no such match",
			match.Quote(col[8]))
	}
	f.proto = uint8(value & mask)
	if len(col) == 10 {
		if _, _, err = parseMasked(col[9], 16); err != nil {
			return f, fmt.Errorf("flags %w", err)
		}
		f.flags = true
	}
	return f, nil
}

// columns splits a line; the colon between two ports may stand without blanks.
func columns(line string) []string {
	col := strings.Fields(line)
	if len(col) < 3 {
		return col
	}
	ports := strings.ReplaceAll(strings.Join(col[2:], " "), ":", " : ")
	return append(col[:2:2], strings.Fields(ports)...)
}

// whatInstead says of a line that is no filter what else it looks like.
func whatInstead(line string) string {
	switch {
	case strings.Contains(line, "nw_src=") || strings.Contains(line, "nw_dst=") ||
		strings.Contains(line, "dl_type="):
		return ": it is an OpenFlow rule; have ClassBench-ng write the filters of five fields " +
			"instead"
	case strings.IndexFunc(line, func(r rune) bool {
		return (r < '0' || r > '9') && r != ' ' &&
			r != '\t'
	}) < 0:
		return ": it looks like the header of a packet from a trace, which goes with a filter " +
			"set and is none"
	}
	return ""
}

// six tells whether the filter is of IPv6.
func (f *filter) six() bool { return f.from.prefix.Addr().Is6() }

// parseAddress reads a prefix; bits behind its length are cleared.
func parseAddress(s string) (address, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return address{}, fmt.Errorf("%s is not a prefix of IPv4 or IPv6", match.Quote(s))
	}
	a := address{prefix: p.Masked()}
	if a.prefix != p {
		a.given = p.String()
	}
	return a, nil
}

func parsePorts(lo, hi string) (portRange, error) {
	l, errLo := strconv.ParseUint(lo, 10, 16)
	h, errHi := strconv.ParseUint(hi, 10, 16)
	if errLo != nil || errHi != nil {
		return portRange{}, fmt.Errorf("ports %s are not two numbers up to 65535",
			match.Quote(lo+" : "+hi))
	}
	if l > h {
		return portRange{}, fmt.Errorf("ports %d : %d run backwards", l, h)
	}
	return portRange{uint16(l), uint16(h)}, nil
}

// parseMasked reads 0xVALUE/0xMASK of so many bits.
func parseMasked(s string, bits int) (value, mask uint64, err error) {
	v, m, found := strings.Cut(s, "/")
	value, errV := strconv.ParseUint(strings.TrimPrefix(v, "0x"), 16, bits)
	mask, errM := strconv.ParseUint(strings.TrimPrefix(m, "0x"), 16, bits)
	if !found || errV != nil || errM != nil || !strings.HasPrefix(v, "0x") ||
		!strings.HasPrefix(m, "0x") {
		return 0, 0, fmt.Errorf("%s is not 0xVALUE/0xMASK of %d bits", match.Quote(s), bits)
	}
	return value, mask, nil
}

// impossible tells whether the filter asks for ports of a protocol that has none.
func (f *filter) impossible() bool {
	last := f.proto | 0xff>>f.protoBits
	for _, p := range [...]uint8{6, 17, 33, 132, 136} { // TCP, UDP, DCCP, SCTP, UDP-Lite
		if f.proto <= p && p <= last {
			return false
		}
	}
	return f.hasPorts()
}

// hasPorts tells whether the filter leaves out any port, so that a packet needs one to match.
func (f *filter) hasPorts() bool { return f.src.isRestricted() || f.dst.isRestricted() }

// notes says in what the rule differs from the filter.
func (f *filter) notes() (notes []string) {
	for _, a := range [...]address{f.from, f.to} {
		if a.given != "" {
			notes = append(notes, fmt.Sprintf("%s has host bits, %s is meant", a.given, a.prefix))
		}
	}
	if f.hasPorts() {
		switch {
		case f.impossible():
			notes = append(notes, "asks for ports of a protocol without ports: no packet can "+
				"match, so it is left out")
		case f.protoBits < 8:
			notes = append(notes, "has ports and more than one protocol: the rule matches those "+
				"that have ports (TCP, UDP, UDP-Lite, SCTP, DCCP)")
		}
	}
	return notes
}

// writeMatch writes the terms, each after a blank, in the order of `levee fmt`.
func (f *filter) writeMatch(b *bytes.Buffer) {
	if f.from.prefix.Bits() == 0 && f.to.prefix.Bits() == 0 {
		b.WriteString([...]string{" ipv4", " ipv6"}[match.Int(f.six())])
	}
	switch name := match.ProtoNames[f.proto]; {
	case f.protoBits == 0:
	case f.protoBits < 8:
		fmt.Fprintf(b, " proto %d-%d", f.proto, f.proto|0xff>>f.protoBits)
	case name != "":
		b.WriteString(" " + name)
	default:
		fmt.Fprintf(b, " proto %d", f.proto)
	}
	writeEnd(b, "from ", "from port", f.from, f.src)
	writeEnd(b, "to ", "port", f.to, f.dst)
}

// writeEnd writes the address and ports of one end; wildcards are left out.
func writeEnd(b *bytes.Buffer, word, portWord string, a address, p portRange) {
	switch a.prefix.Bits() {
	case 0:
	case a.prefix.Addr().BitLen():
		b.WriteString(" " + word + a.prefix.Addr().String())
	default:
		b.WriteString(" " + word + a.prefix.String())
	}
	switch {
	case !p.isRestricted():
	case p.lo == p.hi:
		fmt.Fprintf(b, " %s %d", portWord, p.lo)
	default:
		fmt.Fprintf(b, " %s %d-%d", portWord, p.lo, p.hi)
	}
}
