// Package ast is the syntax tree of a policy, and its layout.
//
// A tree has every statement with its words, values, comments and positions, but without meaning.
// Format prints the same statements in one layout. Nothing here reads text, opens files, or changes
// what a policy means.
package ast

import (
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
)

// File is one parsed policy.
type File struct {
	Name  string // as given to Parse
	Stmts []Stmt
	End   []Comment // after the last statement

	Src    string // what was parsed
	Parts  []Part // whose statements stand in the place of one of its own
	Size   int    // statements, terms, elements, steps and comments, with those of Parts
	Failed bool   // an error was reported: some statements are Bad or missing
	// how many elements its sets and lists may have together; 0: as many as any policy's. A set
	// that stands in others makes many of a short text
	Most int
}

// Comment is one `#` comment, from the sign to the end of the line.
type Comment struct {
	Text  string
	Blank bool // an empty line stands before it
	Pos   diag.Pos
	Own   bool // alone in its line
}

// Comments are those that belong to a statement, an element of a list or a step of a test.
type Comments struct {
	Lead  []Comment // in the lines before
	Trail string    // behind, in the same line
	Blank bool      // an empty line stands before the thing itself
}

// Word is a bare word or a quoted text with its place. Text is without the quotes.
type Word struct {
	Text string
	Pos  diag.Pos
}

// Stmt is one of *Interface, *Set, *Rule, *Default, *Essential, *Connections, *OnError, *Prove,
// *Source, *List, *Detect, *Use, *Profile, *Test and *Bad.
type Stmt interface {
	// Place is that of the first word of the statement.
	Place() diag.Pos
	Remarks() *Comments
}

// Common holds the position and the comments of any statement.
type Common struct {
	Pos diag.Pos
	Comments
}

func (s *Common) Place() diag.Pos    { return s.Pos }
func (s *Common) Remarks() *Comments { return &s.Comments }

// Interface is `interface NAMES`: one name, or a list of them.
type Interface struct {
	Common
	Names *Value
}

// Set is `set NAME = ...`; exactly one of List, Path, Dynamic, Names and MMDB is given.
type Set struct {
	Common
	Name    Word
	List    *Value
	Path    *Word
	Of      *Word // behind Path: the type of what the file has, where that is said
	Dynamic *Dynamic
	Names   *Names
	MMDB    *MMDB
}

// Dynamic is `dynamic(of TYPE, max N, lease DURATION, rollup, keep)`.
type Dynamic struct {
	Of     *Word
	Max    Word
	Lease  *Word
	RollUp bool
	Keep   bool
	From   *Value // entries that it begins with
	Path   *Word  // or the file that has them
}

// Default is `default pass` or `default drop`, with `out` before it that of what leaves.
type Default struct {
	Common
	Out    bool
	Action Word
}

// Essential is `essential off`.
type Essential struct{ Common }

// Connections is `connections max N`.
type Connections struct {
	Common
	Max Word
}

// OnError is `on error pass` or `on error drop`.
type OnError struct {
	Common
	Action Word
}

// Test is `test "NAME" { ... }`.
type Test struct {
	Common
	Name  Word
	Steps []Step
	End   []Comment // before the closing brace
}

// Bad stands for a statement that could not be understood, so that what it would have defined is
// not reported as missing.
type Bad struct {
	Common
	Keyword string // the first word
	Name    string // of a set, when it was read
}

// Step is one step of a test: `packet SPEC expect VERDICT`, `packet SPEC leaves`, with or without
// an expectation, or `set NAME has ENTRY`.
type Step struct {
	Pos diag.Pos
	Comments

	Set   *Word // set NAME has Entry
	Entry Word

	Hex    *Word  // packet hex "..."
	Spec   []Term // packet as words, as written; values have one element and no operator
	Leaves bool   // the packet leaves by the interface
	Expect Word   // pass, drop or redirect; "" where nothing is expected of a packet that leaves
	By     *Word  // protect, malformed, essential or default
	Label  *Word  // by "LABEL"
}

// TermKind is the form of a term in a match, or of a word of a test packet. Where several fields
// share a form, Field says which one is asked.
type TermKind uint8

const (
	Family    TermKind = iota // ipv4, ipv6, arp: Name
	ProtoName                 // tcp, udp, ...: Name
	// a word that asks for some values of its Field: syn, fragments, ...
	Alone
	Number      // a word for its Field, and Value: ttl, port, ...
	EtherAddr   // ether from Value, ether to Value, by Field
	Suffix      // from suffix Value, to suffix Value, by Field
	ICMPType    // icmp type Value, icmp6 type Value: Name is the protocol
	Flags       // flags Value: one element, such as "syn,ack/syn,ack,rst"
	From        // from Value
	To          // to Value
	Bytes       // payload at Value: one element, an offset, a blank and hex digits
	Pattern     // payload or stream contains Value: elements with their quotes or slashes
	Inner       // inner( Terms )
	DNSName     // dns name Value: quoted elements, or the name of a set
	Sender      // user, group, service, container Value: names with their quotes or bare
	Malformed   // malformed
	PacketType  // type Value, in test packets only, as all that follow
	Frag        // frag Value
	Options     // options
	PacketField // a header field by its Name, Value
	PacketBytes // payload, ip-options, ...: Name and Value
	numKinds
)

// NoWayBack is the term for packets to whose source the kernel has no route.
const NoWayBack = "reverse-path none"

// Term is one condition of a match.
type Term struct {
	Name  string   // the word of a Family, ProtoName, ICMPType, PacketField or PacketBytes
	Value *Value   // nil where the kind has none
	Pos   diag.Pos // from the first word to the last one in the same line
	Kind  TermKind
	Terms []Term // of Inner, as written
	// what it asks for, addresses where from or to stands before anything else; None in packets
	// only
	Field field.Field
	Not   bool
}

// Value holds the words behind that of a term, or the elements of an inline set.
type Value struct {
	Elems []Elem
	End   *Comments // before the closing brace, all in Lead; nil for most
	Walk  *Walk     // in templates only
	Pos   diag.Pos  // from the first character to the last one in the same line
	Op    Op
	List  bool // written in braces
	Hex   bool // the one element is a text of hex digits
	Text  bool // the one element is a quoted text
	// AnyCase: letters are found in either case. Of a Pattern only.
	AnyCase bool
	// Unknown: what nobody knows of a stream matches, too. Of a stream's Pattern only.
	Unknown bool
	Within  *Word // how many bytes of a stream are searched; nil: as many as can be
}

// Op is the sign of a comparison.
type Op uint8

const (
	NoOp         Op = iota // a value alone
	Less                   // <
	LessEqual              // <=
	Greater                // >
	GreaterEqual           // >=
	Equal                  // =
	NotEqual               // !=
)

// String returns the sign, or "" for NoOp.
func (o Op) String() string { return [...]string{"", "<", "<=", ">", ">=", "=", "!="}[o] }

// Walk says in which order a field of a template takes its values, one a packet.
type Walk struct {
	Mode  Word  // counting, random or permuted
	Down  bool  // counting only
	Step  *Word // counting only
	Every *Word // packets that have the same value
}

// Elem is one value: an address, a number, a range, a name, ... An endpoint is two words, with one
// blank. A name of the DNS is in quotes, which Text has too.
type Elem struct {
	Text     string
	Pos      diag.Pos
	Comments *Comments // nil for most
}
