// Package policy is the resolved, typed form of a policy: what the text means, without the text
// and without anything of the kernel's. Package resolve makes it; the oracle evaluates it directly
// and the compiler lowers it.
//
// Names are bound, prefixes masked and merged, comparisons are inclusive ranges. The types say how
// they are used together: the slots of a policy, the charges of a limit, the packets of an
// endpoint. They must never depend on the machine that they are used on.
package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"levee/internal/lang/action"
	"levee/internal/lang/diag"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/field"
)

// Policy is one resolved policy file.
type Policy struct {
	File       string   // base name of the file, for "edge.levee:14"
	Interfaces []string // from `interface`: names and patterns, in order; nil without it
	Sets       []*Set   // in order of definition
	Protect    []*Rule
	Rules      []*Rule     // all others, in order
	Inners     []*Inner    // of terms of rules; at most MaxInners
	NameLists  []*NameList // that terms of rules ask for
	Senders    Senders     // that rules for what leaves name
	Default    Default
	Out        *Out // of what leaves; nil where the policy says nothing of that
	Essential  bool // false after `essential off`
	// MaxConnections limits those that are known at once, 0 where the policy does not say.
	MaxConnections int
	ConnectionsPos Pos // of that number
	Proves         []*Prove
	OnError        OnError
	ErrorPos       Pos // of `on error`
	Tests          []*Test
	Sources        []*Source // for the agent
	Lists          []*List   // for the agent
	Detects        []*Detect // likewise

	arriving *Policy // in a policy for what leaves: the policy that has it
}

// MostConnections is the largest number of connections that a policy may have known at once.
const MostConnections = 1 << 22

// Pos is a place in the policy file; both count from 1, Col in characters.
type Pos struct{ Line, Col int32 }

// Mark returns the place as diagnostics have it: one character is marked.
func (p Pos) Mark() diag.Pos { return diag.Pos{Line: p.Line, Col: p.Col, EndCol: p.Col + 1} }

// Default is the required last word.
type Default struct {
	Action action.Action // Drop or Pass
	Pos    Pos
}

// OnError is the operator's choice when the policy cannot be kept in force.
type OnError uint8

const (
	KeepLast OnError = iota
	ErrorPass
	ErrorDrop
)

// Term is one condition on one field. On a field that a packet does not have it never holds,
// negated or not. Values are Prefixes for addresses, Services and Endpoints for these, Mask and
// Value for TCP flags, and Ranges for all others.
type Term struct {
	Field    field.Field
	Not      bool           // the field is present and the values do not hold
	Mask     uint8          // TCPFlags: flags & Mask == Value
	Value    uint8          // TCPFlags
	Set      *Set           // instead of values given in the rule: a named set
	Ranges   []field.Range  // numeric fields: sorted, disjoint, not adjacent
	Prefixes []netip.Prefix // addresses given in the rule: masked, sorted, disjoint, merged
	Bytes    *Bytes         // Payload
	Pattern  *Pattern       // Contents, Stream; terms with the same text share it
	Unknown  bool           // Stream: a segment of which nobody knows matches, too
	Inner    *Inner         // Inner
	Names    *NameList      // DNSName
	Senders  []string       // User, Group, Service, Container: the names of which Ranges are
	Given    *Given         // services or endpoints given in the rule; few terms have any
	Pos      Pos
}

// MaxInners limits a policy's matches on what tunnels carry: whether each holds is a
// bit of one word, and one bit more says that there is a tunnel.
const MaxInners = 63

// Inner is a match of the packet within a tunnel.
type Inner struct {
	Match  []Term // all must hold; never empty
	Number int    // in Policy.Inners, or in those of Out
}

// NameList is names of the DNS that terms ask for: those of a set, or given in a rule.
type NameList struct {
	Patterns []dnsname.Pattern // none of them stands for another; of a dynamic set nil
	Number   int               // in Policy.NameLists
	Set      *Set              // nil: they stand in a rule
}

// Dynamic reports whether the names are those of a set that is filled at run time.
func (l *NameList) Dynamic() bool { return l.Set != nil && l.Set.Kind == Dynamic }

// String returns the list as rules have it, cut short.
func (l *NameList) String() string {
	const shown = 3
	switch {
	case l.Set != nil:
		return "in " + l.Set.Name
	case len(l.Patterns) == 1:
		return `"` + l.Patterns[0].String() + `"`
	}
	var all []string
	for _, p := range l.Patterns[:min(len(l.Patterns), shown)] {
		all = append(all, `"`+p.String()+`"`)
	}
	if len(l.Patterns) > shown {
		all = append(all, "...")
	}
	return "in { " + strings.Join(all, ", ") + " }"
}

// MaxBytes limits the bytes that a term on the payload compares.
const MaxBytes = 16

// Bytes is a comparison of bytes at an offset.
type Bytes struct {
	At    int    // offset in bytes, from the first of the field
	Value []byte // 1 to MaxBytes, zero where Mask is
	Mask  []byte // as long as Value
}

// Equal reports whether both ask for the same, or both are nil.
func (b *Bytes) Equal(c *Bytes) bool {
	if b == nil || c == nil {
		return b == c
	}
	return b.At == c.At && slices.Equal(b.Value, c.Value) && slices.Equal(b.Mask, c.Mask)
}

// String returns the bytes as they are written in a policy.
func (b *Bytes) String() string {
	text := fmt.Sprintf("%d %x", b.At, b.Value)
	for _, m := range b.Mask {
		if m != 0xff {
			return fmt.Sprintf("%s/%x", text, b.Mask)
		}
	}
	return text
}

// Given are services and endpoints that stand in a rule itself: sorted, merged.
type Given struct {
	Services  []Service
	Endpoints []Element
}

// Services returns the services that a term asks for, of its set or given in the rule.
func (t *Term) Services() []Service {
	switch {
	case t.Set != nil:
		return t.Set.Services
	case t.Given != nil:
		return t.Given.Services
	}
	return nil
}

// Endpoints returns the endpoints that a term asks for, of its set or given in the rule.
func (t *Term) Endpoints() []Element {
	switch {
	case t.Set != nil:
		return t.Set.Endpoints
	case t.Given != nil:
		return t.Given.Endpoints
	}
	return nil
}

// Addresses returns the prefixes that a term asks for, of its set or given in the rule.
func (t *Term) Addresses() []netip.Prefix {
	if t.Set != nil {
		return t.Set.Prefixes
	}
	return t.Prefixes
}

// SetKind is the origin of the elements of a set.
type SetKind uint8

const (
	Inline  SetKind = iota // written in the policy
	File                   // read from a file when the policy is resolved
	Dynamic                // filled at run time
)

// SetType is the type of a set's elements.
type SetType uint8

const (
	Addresses SetType = iota
	Ports
	Services
	Endpoints // an address together with a protocol and, where it has them, ports
	Names     // of the DNS
)

// Set is a named set. Elements of inline and file sets are resolved: masked, sorted (IPv4 before
// IPv6), disjoint and merged, since only membership is asked.
type Set struct {
	Name      string
	Kind      SetKind
	Type      SetType
	Prefixes  []netip.Prefix
	Ports     []field.Range
	Services  []Service
	Endpoints []Element
	Patterns  []dnsname.Pattern
	Path      string        // File: as written
	Max       int           // Dynamic: entries over both families; a block of ports is one
	Lease     time.Duration // Dynamic: default lease; 0 means until deleted
	Self      bool          // Dynamic: `self`, which holds what is delivered to the machine
	RollUp    bool          // Dynamic: a full set covers hosts by /24 and /64 instead of refusing
	Keep      bool          // Dynamic: its entries outlive a reboot
	Begin     []Element     // Dynamic: entries that it has when it is new
	Names     []string      // Dynamic: of DNS, whose addresses the agent puts into it
	Pos       Pos
}

// EmptyOnPurpose tells whether a policy says that the set holds nothing: nobody is warned of it.
func (s *Set) EmptyOnPurpose() bool { return s.Kind == File && s.Path == EmptyFile }

// Test is one `test` statement.
type Test struct {
	Name  string
	Steps []Step
	Pos   Pos
}

// Step is a packet with its expectation, one that leaves by the interface, or (Set != nil) an entry
// put into a dynamic set.
type Step struct {
	Frame  []byte
	Leaves bool          // by the interface
	Judged bool          // something is expected, as of all that arrives
	Tells  []Told        // what the kernel tells of it
	Expect action.Action // Pass, Drop or Redirect
	By     string        // "" any; else "protect", "malformed", "essential", "default"
	Label  string        // "" any; else the label of the rule that must decide
	Text   string        // the packet as written, canonical
	Set    *Set
	Entry  Element
	Pos    Pos
}

// Told is the value that the kernel has of a field, in the packet of a test.
type Told struct {
	Field field.Field
	Value uint64
	Name  string // of a sender: Policy.Told knows its value
}

// Reason says why a verdict fell; its String is the `reason` of `levee eval --json`.
type Reason uint8

const (
	ByMalformed Reason = iota
	ByProtect
	ByRule
	ByEssential
	ByDefault
)

func (r Reason) String() string {
	return [...]string{"malformed", "protect", "rule", "essential", "default"}[r]
}

// Essential names the built-in rules of "Nothing essential is cut", in the order they are tried.
// They exclude one another.
var Essential = [...]string{"arp", "nd", "pmtu", "dhcp", "mld", "link"}

// Malformed names the reasons for which frames are malformed, in the order of
// docs/reference/decoding.md.
// The index is the code that the decoders (internal/packet, bpf/parse.h) report, plus one: code 0
// is a well-formed frame. No decoder reports the last three, which only show beside other
// fragments: policies with `fragments track` drop these.
var Malformed = [...]string{
	"truncated-ethernet", "vlan-depth", "truncated-ip", "ip-version", "ip-header-length",
	"ip-length", "ext-headers", "truncated-ext", "truncated-l4", "l4-length", "fragment-overlap",
	"fragment-tiny", "fragment-orphan",
}

// Slot is one counter of a policy: each thing that can decide, or count, a packet.
type Slot struct {
	Reason Reason
	Action action.Action // of protect rules Pass
	Rule   *Rule         // ByProtect and ByRule (also a rule with Malformed)
	Name   string        // ByMalformed and ByEssential: which
	Leaves bool          // counts what leaves
	Line   int           // in the policy file; 0 for built-in rules
	ID     string        // identity across replaces, unique in the policy
}

// Slots lists the counters of a policy in their fixed order: malformed reasons, protect rules,
// rules, essential rules (absent after `essential off`), default; then the same of what leaves,
// where the policy says something of that. The oracle and the compiled programs report a decision
// as an index into it. A policy for what leaves has all slots of the whole policy.
func (p *Policy) Slots() []Slot {
	if p.arriving != nil {
		return p.arriving.Slots()
	}
	s := p.ownSlots(make([]Slot, 0, p.DefaultSlot()+1))
	if out := p.Leaving(); out != nil {
		s = out.ownSlots(s)
	}
	return s
}

// ownSlots appends the slots of one side.
func (p *Policy) ownSlots(s []Slot) []Slot {
	from, side := len(s), p.side()
	for _, m := range Malformed {
		s = append(s, Slot{Reason: ByMalformed, Action: action.Drop, Name: m,
			ID: side + "malformed:" + m})
	}
	for _, r := range p.Protect {
		s = append(s, Slot{Reason: ByProtect, Action: r.Action.Verdict(), Rule: r,
			Line: int(r.Pos.Line), ID: r.ID})
	}
	for _, r := range p.Rules {
		s = append(s, Slot{Reason: ByRule, Action: r.Action, Rule: r, Line: int(r.Pos.Line),
			ID: r.ID})
	}
	if p.Essential {
		for _, e := range Essential {
			s = append(s, Slot{Reason: ByEssential, Action: action.Pass, Name: e,
				ID: side + "essential:" + e})
		}
	}
	s = append(s, Slot{Reason: ByDefault, Action: p.Default.Action,
		Line: int(p.Default.Pos.Line), ID: side + "default"})
	for i := range s[from:] {
		s[from+i].Leaves = p.Leaves()
	}
	return s
}

// Slot offsets within Slots.
func (p *Policy) MalformedSlot(i int) int { return p.first() + i }

func (p *Policy) ProtectSlot(i int) int { return p.MalformedSlot(len(Malformed)) + i }

func (p *Policy) RuleSlot(i int) int { return p.ProtectSlot(len(p.Protect)) + i }

func (p *Policy) EssentialSlot(i int) int { return p.RuleSlot(len(p.Rules)) + i }

func (p *Policy) DefaultSlot() int {
	n := p.EssentialSlot(0)
	if p.Essential {
		n += len(Essential)
	}
	return n
}

// Where returns the `rule` of `levee eval --json` and of every listing: "edge.levee:14" for what
// stands in the file, "live" for live rules, which stand in none, "essential:arp" or
// "malformed:truncated-ip" for built-in slots.
func (p *Policy) Where(s Slot) string {
	switch {
	case s.Reason == ByMalformed, s.Reason == ByEssential,
		s.Line == 0 && (s.Leaves || s.Reason == ByDefault):
		return s.ID
	case s.Line == 0 && s.Reason == ByRule:
		return "live"
	}
	return fmt.Sprintf("%s:%d", p.File, s.Line)
}

// LabelOf returns the `label` of `levee eval --json`: what stands after `as`, or the built-in's
// name.
func (p *Policy) LabelOf(s Slot) string {
	side := ""
	if s.Leaves {
		side = "out "
	}
	switch s.Reason {
	case ByMalformed, ByEssential:
		return side + s.Name
	case ByDefault:
		return side + "default"
	}
	return s.Rule.Label
}

// Fallback returns what `on error` puts in force where the policy itself cannot be: its protect
// rules, the essential rules unless it switches them off, and the verdict that it names, as the
// default. Dynamic sets that none of these ask for stay, with their entries, if keepSets. It is nil
// without `on error`.
func (p *Policy) Fallback(keepSets bool) *Policy {
	if p.OnError == KeepLast {
		return nil
	}
	f := *p
	f.Rules, f.Inners, f.NameLists, f.Out, f.Tests = nil, nil, nil, nil, nil
	f.Senders = Senders{}
	f.Default = Default{Action: action.Drop, Pos: p.ErrorPos}
	if p.OnError == ErrorPass {
		f.Default.Action = action.Pass
	}
	if !keepSets {
		f.Sets = nil
		for _, s := range p.Sets {
			if slices.ContainsFunc(f.Protect, func(r *Rule) bool { return r.Asks(s) }) {
				f.Sets = append(f.Sets, s)
			}
		}
	}
	return &f
}

// Asks reports whether some rule looks at one of the fields.
func (p *Policy) Asks(fields ...field.Field) bool {
	for _, rules := range [][]*Rule{p.Protect, p.Rules} {
		for _, r := range rules {
			if looks(r.Match, fields) {
				return true
			}
		}
	}
	return false
}

// looks copies no terms, of which there may be many.
func looks(match []Term, fields []field.Field) bool {
	for i := range match {
		if match[i].Looks(fields...) {
			return true
		}
	}
	return false
}

// Looks reports whether a term is about one of the fields, of the packet or of that within it.
func (t *Term) Looks(fields ...field.Field) bool {
	return slices.Contains(fields, t.Field) || t.Inner != nil && looks(t.Inner.Match, fields)
}

// Has reports whether some rule, but those to protect, has an action.
func (p *Policy) Has(a action.Action) bool {
	return slices.ContainsFunc(p.Rules, func(r *Rule) bool { return r.Action == a })
}

// Remembers reports whether verdicts depend on the packets before.
func (p *Policy) Remembers() bool {
	told := slices.DeleteFunc(field.Remembered(),
		func(f field.Field) bool { return f.Info().Kernel != field.NoSide })
	return p.Asks(told...) ||
		slices.ContainsFunc(p.Rules, func(r *Rule) bool { return r.Action.DecidesSome() })
}

// Protected lists the addresses that protect rules name, on either side: those of their prefixes
// and endpoints, and of inline and file sets. What they exclude by `not` is not among them.
func (p *Policy) Protected() []netip.Prefix {
	var out []netip.Prefix
	for _, r := range p.Protect {
		for _, t := range r.Match {
			if t.Not {
				continue
			}
			out = append(out, t.Addresses()...)
			for _, e := range t.Endpoints() {
				out = append(out, e.Prefix)
			}
		}
	}
	return out
}

// EmptyFile is the one device that may be read: a set that holds nothing, on purpose.
const EmptyFile = "/dev/null"

// Size returns the number of elements of a static set.
func (s *Set) Size() int {
	return len(s.Prefixes) + len(s.Ports) + len(s.Services) + len(s.Endpoints) + len(s.Patterns)
}

// String names what a set of the type has, such as "addresses".
func (t SetType) String() string {
	return [...]string{"addresses", "ports", "services", "endpoints", "names"}[t]
}

// One names one of what a set of the type has.
func (t SetType) One() string {
	return [...]string{"an address", "a port", "a service", "an endpoint", "a name"}[t]
}
