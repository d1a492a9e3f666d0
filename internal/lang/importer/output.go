package importer

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"levee/internal/lang/ast"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
	"levee/internal/lang/syntax"
)

// output gathers the statements of a policy and the remarks about it.
type output struct {
	rep     *Imported
	body    bytes.Buffer
	pending []statement
	said    map[string]bool // remarks that stand beside a rule
	taken   map[string]bool // names of sets
	rules   int
	labels  map[string]int
	closed  []*chain // base chains whose end is reached
	sees    spans    // EtherTypes that the base chains see
	sets    []*namedSet
	device  string
	names   string // of the inputs
	tool    string // that printed them
	// states are told by headers (--stateless)
	stateless bool
	decided   []match // what is known of these is decided
	keeps     bool    // a rule asks whether a connection is known
	written   int     // ranges of addresses in lists of rules that are read, see narrow
	dhcp      dhcpFate
	fills     map[string]bool // sets that rules put addresses into
	cookies   int             // written
	logs      int             // written
	nats      []*chain        // that rewrite what comes to the base chains
	budgets   map[string]int  // how many rules count in what has a name
	leaves    bool            // it is of rules of `out`
	side      *output         // the rules for what leaves, nil if there are none
	sideWhy   string          // why those of the source are not among them, see takeSide
	limits    int             // written, on both sides
}

// namedSet is one set statement.
type namedSet struct {
	name     string
	text     string   // what stands behind the equals sign
	comments []string // lines above it
}

func newOutput(names, tool string, opts Rulesets) *output {
	return &output{device: opts.Device, stateless: opts.Stateless,
		rep: &Imported{}, labels: map[string]int{}, names: names, tool: tool,
		budgets: map[string]int{}, fills: map[string]bool{},
		said: map[string]bool{}, taken: map[string]bool{self.name: true}}
}

// label makes a label of text, different from all others: counters are told apart by labels.
func (o *output) label(text string) string {
	const most = 64
	text = strings.ReplaceAll(printable(text, most), `"`, "'")
	if strings.TrimSpace(text) == "" {
		text = "rule"
	}
	base := text
	for {
		n := o.labels[base] + 1
		o.labels[base] = n
		if n > 1 {
			suffix := fmt.Sprintf(" (%d)", n)
			text = clip(base, most-len(suffix)) + suffix
		}
		if text == base || o.labels[text] == 0 {
			if text != base {
				o.labels[text] = 1
			}
			return text
		}
	}
}

// printable is text of a source as it may stand in a label or a comment: one line, at most so many
// characters.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r) || r == utf8.RuneError:
			return '?'
		}
		return r
	}, text)
	return strings.TrimRight(clip(text, most), " ")
}

func clip(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most])
}

func (o *output) close(b *chain) { o.closed = append(o.closed, b) }

// write prints the policy, laid out as `levee fmt` does, after it was checked: a policy with a
// mistake is never printed.
func (o *output) write(w io.Writer) error {
	var b bytes.Buffer
	ending := o.ending()
	o.flush()
	if o.side != nil {
		o.addSide()
	}
	fmt.Fprintf(&b, "# Imported from %s (%s).\n", o.names, o.tool)
	writeComment(&b, "# O", o.rep.Summary()[1:]+".")
	if o.rep.widens() {
		writeComment(&b, "# ", "The comments that say \"widens\" name what more may pass; "+
			"`levee import --strict` refuses it.")
	}
	b.WriteByte('\n')
	if o.device != "" {
		fmt.Fprintf(&b, "interface %s\n\n", o.device)
	}
	used := words(o.body.Bytes())
	for _, s := range o.sets {
		if used[s.name] {
			for _, line := range s.comments {
				b.WriteString("# " + line + "\n")
			}
			fmt.Fprintf(&b, "set %s = %s\n", s.name, s.text)
			o.rep.Sets++
		}
	}
	if o.rep.Sets > 0 {
		b.WriteByte('\n')
	}
	if o.keeps { // conntrack has datagrams put together; answers of DNS are fragments at times
		b.WriteString("fragments track as \"fragments\"\n")
		o.rules++
	}
	b.Write(o.body.Bytes())
	b.WriteString(ending)
	o.rep.Rules = o.rules
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

// ending is what happens to packets that no rule decided: one default where the chains agree and
// see all IP packets, else closing rules for those they see.
func (o *output) ending() string {
	var all spans
	any, drops := false, 0
	for _, c := range o.closed {
		if e := c.family.f[fEther]; e == nil {
			any = true
		} else {
			all = joinSpans(append(slices.Clone(all), e...))
		}
		if c.drop {
			drops++
		}
	}
	about := func(text, instead string) {
		o.rep.Remarks = append([]Remark{{File: o.names, Kind: Changed, Text: text,
			Instead: instead}}, o.rep.Remarks...)
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
	case slices.Equal(all, bothIP) && drops == len(o.closed):
		about("`default drop` drops frames that are neither IP nor ARP too; ARP, neighbour "+
			"discovery, path-MTU errors and the answers of DHCP pass just before it",
			"`levee status --json` counts them; `essential off` takes them away")
		return "default drop\n"
	}
	for _, c := range o.closed {
		action := "pass"
		if c.drop {
			action = "drop"
		}
		m := c.family
		o.rule(action, &m, c.name+" policy", true)
	}
	return o.restComment(len(o.closed) > 0) + "default pass\n"
}

// restComment says which packets are left for a default that passes; closed tells that it stands
// behind closing rules.
func (o *output) restComment(closed bool) string {
	rest := ""
	switch four, six := len(o.sees.and(only4)) > 0, len(o.sees.and(only6)) > 0; {
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
func (o *output) remarkOnFamilies(about func(text, instead string)) {
	switch four, six := len(o.sees.and(only4)) > 0, len(o.sees.and(only6)) > 0; {
	case !six:
		about("the input says nothing about IPv6: all of it passes", o.otherFamily("6"))
	case !four:
		about("the input says nothing about IPv4: all of it passes", o.otherFamily("4"))
	}
}

// otherFamily says what to do where the input has rules of the other family alone.
func (o *output) otherFamily(six string) string {
	write := ", or write `drop ipv" + six + "`"
	if o.tool == "nftables" { // which prints both
		return "name chains that judge IPv" + six + " with --chain" + write
	}
	return "import the rules for IPv" + six + " too (ip" + strings.TrimSuffix(six, "4") +
		"tables-save)" + write
}
