package ir

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Print writes the rules of each class as text, for people and goldens. Classes of one family whose
// rules are the same stand together.
func (p *Program) Print(w io.Writer) error {
	out := bufio.NewWriter(w)
	slots := p.Policy.Slots()
	for _, classes := range p.Alike() {
		names := make([]string, len(classes))
		for i, c := range classes {
			names[i] = c.String()
		}
		fmt.Fprintln(out, strings.Join(names, "; "))
		for _, r := range p.Lists[classes[0].Index()] {
			r.print(out, p.Policy, slots)
		}
	}
	for i := range p.Malformed {
		if i == 0 {
			fmt.Fprintln(out, "malformed frames")
		}
		p.Malformed[i].print(out, p.Policy, slots)
	}
	if err := out.Flush(); err != nil || p.Out == nil {
		return err
	}
	if _, err := fmt.Fprintln(w, "what leaves:"); err != nil {
		return err
	}
	return p.Out.Print(w)
}

// Alike groups the classes of each family whose rules are the same, in order of the first.
func (p *Program) Alike() [][]Class {
	var out [][]Class
	for _, c := range Classes() {
		rules := p.Lists[c.Index()]
		same := func(r, s Rule) bool { return r.Same(&s) }
		i := slices.IndexFunc(out, func(known []Class) bool {
			return known[0].Family == c.Family &&
				slices.EqualFunc(p.Lists[known[0].Index()], rules, same)
		})
		if i < 0 {
			i = len(out)
			out = append(out, nil)
		}
		out[i] = append(out[i], c)
	}
	return out
}

func (r *Rule) print(w io.Writer, p *policy.Policy, slots []policy.Slot) {
	name := p.Where(slots[r.Slot])
	if label := p.LabelOf(slots[r.Slot]); label != "" && slots[r.Slot].Reason == policy.ByRule {
		name += " " + strconv.Quote(label)
	}
	questions := make([]string, len(r.Conds))
	for i := range r.Conds {
		questions[i] = r.Conds[i].String()
	}
	line := fmt.Sprintf("  %s: %s", name, r.Action)
	if len(questions) > 0 {
		line += " if " + strings.Join(questions, ", ")
	}
	fmt.Fprintln(w, line)
}

// words are the words with which a condition names its field: about as the language does.
var words = func() (out [field.NumFields]string) {
	for i := range field.Phrases {
		if ph := &field.Phrases[i]; ph.Form != field.FormAlone {
			out[ph.Field] = ph.Word
		}
	}
	for f := range out {
		if info := field.Field(f).Info(); info.Compare == field.ByPair {
			out[f] = map[field.Field]string{field.SrcPort: "from", field.DstPort: "to"}[info.Port]
		}
	}
	out[field.DstPort], out[field.Tags], out[field.Fragment] = "to port", "tags", "fragment"
	for _, f := range field.Remembered() {
		if f.Info().Kernel != field.Leaving {
			out[f] = f.Info().Key
		}
	}
	out[field.Local] = "local"
	out[field.DNSQuery], out[field.DNSResponse] = "dns query", "dns response"
	out[field.DNSMalformed] = "dns malformed"
	out[field.ProvenFlow], out[field.Stream] = "proven flow", "stream contains"
	out[field.ICMPType], out[field.ICMP6Type] = "icmp", "icmp6"
	return out
}()

// shown is the number of a list's elements that are printed.
const shown = 8

// String returns the condition in about the words of the language.
func (c *Cond) String() string {
	text := words[c.Field]
	if c.Not {
		text = "not " + text
	}
	switch {
	case c.Field.Info().Compare == field.ByMask:
		return text + fmt.Sprintf(" %#02x/%#02x", c.Value, c.Mask)
	case c.Bytes != nil:
		return text + " " + c.Bytes.String()
	case c.Pattern != nil && c.Unknown:
		return text + " " + c.Pattern.Text + " or unknown"
	case c.Pattern != nil:
		return text + " " + c.Pattern.Text
	case c.Names != nil:
		return text + " " + c.Names.String()
	case c.Inner != nil:
		return text + fmt.Sprintf(" number %d", c.Inner.Number)
	case c.Set != nil:
		text += " set " + c.Set.Name
		if c.Dynamic() {
			return text
		}
	}
	switch {
	case c.Pairs != nil:
		return text + " " + abridged(c.Pairs, func(p Pair) string {
			return bare(p.Prefix) + " " + words[c.Number] + " " + numbers(c.Number, p.Range)
		})
	case c.Prefixes != nil:
		return text + " " + abridged(c.Prefixes, bare)
	}
	return text + " " + abridged(c.Ranges,
		func(r field.Range) string { return numbers(c.Field, r) })
}

// abridged lists the first elements, and says how many there are of a longer list.
func abridged[T any](list []T, text func(T) string) string {
	var b strings.Builder
	if len(list) > 1 {
		b.WriteString("{ ")
	}
	for i, v := range list {
		if i == shown {
			fmt.Fprintf(&b, ", %d in all", len(list))
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(text(v))
	}
	if len(list) > 1 {
		b.WriteString(" }")
	}
	return b.String()
}

// bare returns a prefix, or the address of one host.
func bare(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// numbers returns a range of a field's values, types of ICMP with their codes, Ethernet addresses
// and types in hexadecimal.
func numbers(f field.Field, r field.Range) string {
	one := func(v uint64) string {
		switch f {
		case field.ICMPType, field.ICMP6Type:
			return fmt.Sprintf("%d/%d", v>>8, v&255)
		case field.EtherType:
			return fmt.Sprintf("%#04x", v)
		case field.SrcMAC, field.DstMAC:
			return fmt.Sprintf("%012x", v)
		case field.SrcSuffix, field.DstSuffix:
			return fmt.Sprintf("%016x", v)
		}
		return strconv.FormatUint(v, 10)
	}
	if r.Lo == r.Hi {
		return one(r.Lo)
	}
	return one(r.Lo) + "-" + one(r.Hi)
}
