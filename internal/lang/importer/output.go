package importer

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"levee/internal/lang/ast"
	"levee/internal/lang/importer/match"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
	"levee/internal/lang/syntax"
)

// Output gathers the statements of a policy and the remarks about it.
type Output struct {
	Report  *Imported
	body    bytes.Buffer
	pending []statement
	said    map[string]bool // remarks that stand beside a rule
	Taken   map[string]bool // names of sets
	rules   int
	labels  map[string]int
	closed  []*Chain    // base chains whose end is reached
	sees    match.Spans // EtherTypes that the base chains see
	sets    []*NamedSet
	device  string
	names   string // of the inputs
	tool    string // that printed them
	// states are told by headers (--stateless)
	stateless bool
	decided   []match.Match // what is known of these is decided
	limited   bool          // a limit is in front of some of it
	// MaxConnections limits those that the source knows at once, 0 where it does not say.
	MaxConnections uint64
	keeps          bool // a rule asks whether a connection is known
	Written        int  // ranges of addresses in lists of rules that are read, see Narrow
	dhcp           dhcpFate
	Fills          map[string]bool // sets that rules put addresses into
	cookies        int             // written
	logs           int             // written
	Nats           []*Chain        // that rewrite what comes to the base chains
	budgets        map[string]int  // how many rules count in what has a name
	leaves         bool            // it is of rules of `out`
	forwards       bool            // the machine does, so that these are about what it sends
	translated     bool            // nat changes sources before packets leave
	Side           *Output         // the rules for what leaves, nil if there are none
	sideWhy        string          // why those of the source are not among them, see takeSide
	limits         int             // written, on both sides
}

// NamedSet is one set statement.
type NamedSet struct {
	Name     string
	Text     string   // what stands behind the equals sign
	Comments []string // lines above it
}

// NewOutput begins a policy; names are those of the inputs, tool what printed them.
func NewOutput(names, tool string, opts Rulesets) *Output {
	return &Output{device: opts.Device, stateless: opts.Stateless,
		Report: &Imported{}, labels: map[string]int{}, names: names, tool: tool,
		budgets: map[string]int{}, Fills: map[string]bool{},
		said: map[string]bool{}, Taken: map[string]bool{match.Self.Name: true}}
}

// label makes a label of text, different from all others: counters are told apart by labels.
func (o *Output) label(text string) string {
	const most = 64
	text = strings.ReplaceAll(Printable(text, most), `"`, "'")
	if strings.TrimSpace(text) == "" {
		text = "rule"
	}
	base := text
	for {
		n := o.labels[base] + 1
		o.labels[base] = n
		if n > 1 {
			suffix := fmt.Sprintf(" (%d)", n)
			text = Clip(base, most-len(suffix)) + suffix
		}
		if text == base || o.labels[text] == 0 {
			if text != base {
				o.labels[text] = 1
			}
			return text
		}
	}
}

// Printable is text of a source as it may stand in a label or a comment: one line, at most so many
// characters.
func Printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r) || r == utf8.RuneError:
			return '?'
		}
		return r
	}, text)
	return strings.TrimRight(Clip(text, most), " ")
}

// Clip is at most so many characters of a text.
func Clip(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most])
}

func (o *Output) close(b *Chain) { o.closed = append(o.closed, b) }

// write prints the policy, laid out as `levee fmt` does, after it was checked: a policy with a
// mistake is never printed.
func (o *Output) write(w io.Writer) error {
	var b bytes.Buffer
	ending := o.ending()
	o.flush()
	if o.Side != nil {
		o.addSide()
	}
	fmt.Fprintf(&b, "# Imported from %s (%s).\n", o.names, o.tool)
	writeComment(&b, "# O", o.Report.Summary()[1:]+".")
	if o.Report.widens() {
		writeComment(&b, "# ", "The comments that say \"widens\" name what more may pass; "+
			"`levee import --strict` refuses it.")
	}
	b.WriteByte('\n')
	if o.device != "" {
		fmt.Fprintf(&b, "interface %s\n\n", o.device)
	}
	if o.keeps && o.MaxConnections > 0 {
		fmt.Fprintf(&b, "connections max %d\n\n", min(o.MaxConnections, policy.MostConnections))
	}
	used := match.Words(o.body.Bytes())
	for _, s := range o.sets {
		if used[s.Name] {
			for _, line := range s.Comments {
				b.WriteString("# " + line + "\n")
			}
			fmt.Fprintf(&b, "set %s = %s\n", s.Name, s.Text)
			o.Report.Sets++
		}
	}
	if o.Report.Sets > 0 {
		b.WriteByte('\n')
	}
	if o.keeps { // conntrack has datagrams put together; answers of DNS are fragments at times
		b.WriteString("fragments track as \"fragments\"\n")
		o.rules++
	}
	b.Write(o.body.Bytes())
	b.WriteString(ending)
	o.Report.Rules = o.rules
	file, diags := syntax.Parse("imported", b.Bytes())
	if err := diags.Err(); err != nil {
		return fmt.Errorf("the rules would make a policy that levee does not take, which should "+
			"not happen: %w", err)
	}
	if _, diags = resolve.Resolve(file, setfile.None); diags.Err() != nil {
		return fmt.Errorf("the rules would make a policy that levee does not take, which should "+
			"not happen: %w", diags.Err())
	}
	if _, err := w.Write(ast.Format(file)); err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}
	return nil
}

// ending returns what happens to packets that no rule decided: one default where the chains agree
// and see all IP packets, else closing rules for those they see.
func (o *Output) ending() string {
	any, drops := false, 0
	for _, c := range o.closed {
		any = any || c.Family.Fields[match.Ether] == nil
		if c.Drop {
			drops++
		}
	}
	about := func(text, instead string) {
		o.Report.Remarks = append([]Remark{{File: o.names, Kind: Changed, Text: text,
			Instead: instead}}, o.Report.Remarks...)
	}
	o.remarkOnFamilies(about)
	defer func() { // by then the closing rules are written
		if o.dhcp == dhcpCut {
			about("answers to this machine's DHCP client are dropped: netfilter does not keep "+
				"them from a client, which reads them before INPUT, and levee does",
				"where the machine has its address by DHCP, put `pass ipv4 udp from port 67 port "+
					"68` at the top")
		}
	}()
	switch {
	case drops == 0:
		return o.restComment(false) + "default pass\n"
	case any && drops == len(o.closed):
		about("the chain sees every frame, ARP too, and drops what no rule passes: `essential "+
			"off` keeps it so, and a frame that levee cannot read is dropped as malformed",
			"take that line out unless the rules pass ARP and neighbour discovery")
		return "essential off\ndefault drop\n"
	case o.dropsIP():
		about("`default drop` drops frames that are neither IP nor ARP too; ARP, neighbour "+
			"discovery, path-MTU errors and the answers of DHCP pass just before it",
			"`levee status --json` counts them; `essential off` takes them away")
		return "default drop\n"
	}
	closing := o.closed
	for n := len(closing); !closing[n-1].Drop; n-- { // the default does the same
		closing = closing[:n-1]
	}
	for _, c := range closing {
		action := "pass"
		if c.Drop {
			action = "drop"
		}
		m := c.Family
		o.rule(action, &m, c.Name+" policy", true)
	}
	return o.restComment(len(closing) == len(o.closed)) + "default pass\n"
}

// dropsIP tells whether the policies of the chains drop all IP packets, and no chain sees others.
func (o *Output) dropsIP() bool {
	left := match.BothIP
	for _, c := range o.closed {
		e := c.Family.Fields[match.Ether]
		if e == nil || len(left.And(e)) > 0 && !c.Drop {
			return false
		}
		left = left.And(e.Not(0xffff))
	}
	return len(left) == 0
}

// restComment says which packets are left for a default that passes; closed tells that it stands
// behind closing rules.
func (o *Output) restComment(closed bool) string {
	rest := ""
	switch four, six := len(o.sees.And(match.Only4)) > 0, len(o.sees.And(match.Only6)) > 0; {
	case !six:
		rest = "The source says nothing about IPv6, so all of it passes: " + o.otherFamily("6") +
			" in front of this line."
	case !four:
		rest = "The source says nothing about IPv4, so all of it passes: " + o.otherFamily("4") +
			" in front of this line."
	case closed:
		rest = "What is left is neither IPv4 nor IPv6, such as ARP: the source does not judge it."
	default:
		return ""
	}
	var b strings.Builder
	writeComment(&b, "# ", rest)
	return b.String()
}

// remarkOnFamilies says so when the input has rules of one family only.
func (o *Output) remarkOnFamilies(about func(text, instead string)) {
	switch four, six := len(o.sees.And(match.Only4)) > 0, len(o.sees.And(match.Only6)) > 0; {
	case !six:
		about("the input says nothing about IPv6: all of it passes", o.otherFamily("6"))
	case !four:
		about("the input says nothing about IPv4: all of it passes", o.otherFamily("4"))
	}
}

// otherFamily says what to do where the input has rules of the other family alone.
func (o *Output) otherFamily(six string) string {
	write := ", or write `drop ipv" + six + "`"
	if o.tool == "nftables" { // which prints both
		return "name chains that judge IPv" + six + " with --chain" + write
	}
	return "import the rules for IPv" + six + " too (ip" + strings.TrimSuffix(six, "4") +
		"tables-save)" + write
}

// AddSet adds a set statement; it is written if a rule uses it.
func (o *Output) AddSet(name, text string) *NamedSet {
	s := &NamedSet{Name: name, Text: text}
	o.sets = append(o.sets, s)
	return s
}
