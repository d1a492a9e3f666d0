// Package field is the registry of fields: all that levee knows of what a rule can ask of a packet.
//
// One row of a table (table.go) says of a field which packets have it, where it lies in the decoded
// key of bpf/parse.h, which values it can have, how rules compare it, what the compiler may
// conclude from that, how it is written in a policy, and how a packet is made that has it. Every
// stage of the compiler asks the table; what a row does not say may not be done. The oracle and the
// decoders read packets with eyes of their own, so that a mistake in the table shows.
//
// Nothing here reads packets, or knows of policies, classes or instructions.
package field

// Field is a property of a packet for which a rule can ask. The zero value is no field: the table
// has "unknown" for everything about it.
type Field uint8

// Info is one row of the table. A member that is left out is unknown, or "no".
type Info struct {
	Name   string // completes "the packet has no ..."
	Header Header // what a packet must have to have the field
	// Compare says how rules ask for values, which decides what may be concluded: see Laws.
	Compare Compare
	// Key is the member of struct key (bpf/parse.h) with the value. Pairs have none of their own.
	Key string
	// Byte is the number of its byte in that member, from 1 on, where it shares it; 0: it is all of
	// it.
	Byte int
	// Absent is the value of that member in packets without the field, where the class of a packet
	// does not tell. No rule asks for it: it is beyond Values.
	Absent uint64
	Max    uint64 // the highest value that can be written in a policy
	Values Values // what a packet can have
	// ByClass says that classes of packets are told apart by the field: within a class it has only
	// some of the values, which package ir knows.
	ByClass bool
	// Ethernet says that packets have the field by an Ethernet header or its tags. Devices whose
	// packets begin with IP have only IPv4 and IPv6, and of the field no other values than these.
	Ethernet bool
	// Remembered says that no byte of the packet has the value, and that nobody knows it of a
	// packet within a tunnel: packets before this one have told it, or the kernel does.
	Remembered bool
	// Kernel says that the kernel tells the value while the packet is judged, and of which packets.
	Kernel Side
	// Is and IsNot are sentences about a packet of which that was told, and of one of which not.
	Is, IsNot string
	// NoService says why a policy of a service cannot ask for the field, "" if it can. NoSocket
	// says it of one at sockets alone.
	NoService, NoSocket string
	// Untold is the sentence for packets of a capture, of which nobody knows the field.
	Untold string
	// Address and Port are the fields that a pair consists of, besides the protocol. A service has
	// no Address.
	Address, Port Field
	// Box says which side of a box of rules (package ruletree) asks for the field.
	Box Box
	// Hot says that generated code keeps the field in a register, from the frame on.
	Hot bool
	// Packet is the word by which packets of tests and templates set the field.
	Packet string
	Names  []Name // words for values
	Needs  string // why a rule contradicts itself that asks packets for the field which lack it
}

// Info returns the row of a field; of what is no field, that of None.
func (f Field) Info() *Info {
	if f >= NumFields {
		f = None
	}
	return &table[f]
}

func init() {
	for f := range table {
		table[f] = table[f].sure()
	}
}

// sure returns the row, or one of which nothing may be concluded where it does not say which
// packets have the field, or which numbers these have. Rules that ask for it would go as those that
// match nothing.
func (i Info) sure() Info {
	p := i.Header.Presence()
	lacks := func(has bool, values []Range) bool {
		return has && (i.Compare == ByRange || i.Compare == ByMask || i.Compare == ByMessage) &&
			values == nil
	}
	if !p.NotIP && !p.IPv4 && !p.IPv6 || lacks(p.NotIP, i.Values.Other) ||
		lacks(p.IPv4, i.Values.IPv4) || lacks(p.IPv6, i.Values.IPv6) {
		i.Compare = Unknown
	}
	return i
}

// Side is the direction of packets of which the kernel tells something.
type Side uint8

const (
	NoSide Side = iota // it tells nothing
	Arriving
	Leaving
)

// Range is inclusive at both ends.
type Range struct{ Lo, Hi uint64 }

// Values are those that packets can have, sorted and disjoint, by the family of the packet.
type Values struct{ Other, IPv4, IPv6 []Range }

// upTo returns the values from 0 to the highest, whatever the family.
func upTo(highest uint64) Values {
	r := []Range{{0, highest}}
	return Values{r, r, r}
}

// Highest returns the greatest of the values.
func (v *Values) Highest() (highest uint64) {
	for _, rs := range [][]Range{v.Other, v.IPv4, v.IPv6} {
		for _, r := range rs {
			highest = max(highest, r.Hi)
		}
	}
	return highest
}

// Name is a word for values of a field.
type Name struct {
	Word string
	Range
}

// Named gives the values that a word means.
func (f Field) Named(word string) (Range, bool) {
	if f >= NumFields {
		f = None
	}
	r, ok := named[f][word]
	return r, ok
}

// named are the names of all fields.
var named = func() (all [NumFields]map[string]Range) {
	for f := range table {
		all[f] = make(map[string]Range)
		for _, n := range table[f].Names {
			all[f][n.Word] = n.Range
		}
	}
	return all
}()

// Header is the part of a packet in which a field stands.
type Header uint8

// Presence says which packets have a header, as far as family, protocol and tags tell. ARP is
// NotIP.
type Presence struct {
	NotIP, IPv4, IPv6 bool
	// Protos are the protocols whose headers it is; a later fragment has none of them. Of a header
	// that does not depend on the protocol they are nil.
	Protos []uint8
	Others bool // some of Protos have no class of packets of their own
	Tags   int  // how many VLAN tags at least
}

// Presence returns which packets have the header: none of a header that is not known.
func (h Header) Presence() *Presence {
	if int(h) >= len(headers) {
		h = NoHeader
	}
	return &headers[h]
}

// Compare is the way in which rules ask for the values of a field.
type Compare uint8

const (
	Unknown   Compare = iota // of which nothing may be concluded
	ByRange                  // numbers, in ranges
	ByMask                   // bits under a mask that have one value
	ByPrefix                 // addresses, in prefixes or in a set
	ByPair                   // a protocol and a port, with an address or without
	ByBytes                  // bytes at an offset, under a mask: the packet itself is read
	ByPattern                // texts and expressions that the packet itself is searched for
	ByInner                  // a match of its own, of the packet within
	ByName                   // names of the DNS, in a set or given, of the message in the packet
	ByMessage                // numbers, in ranges, of the DNS message in the packet
)

// Laws are the liberties that a compiler may take with the questions that rules ask for a field.
type Laws struct {
	// Cover: package ir may find that one question is answered whenever another of the field is. Of
	// two rules, the later one may then be removed.
	Cover bool
	// Join: two questions of a rule may become one.
	Join bool
	// Reorder: the question may be asked before others of its rule that stand in front of it.
	Reorder bool
	// Cut: the values are numbers in order, and a question holds for none outside of the least
	// interval around what it names. A tree of rules may cut there.
	Cut bool
}

// laws of each way to compare. What is not listed may not be done.
var laws = [...]Laws{
	Unknown:   {},
	ByRange:   {Cover: true, Join: true, Reorder: true, Cut: true},
	ByMask:    {Cover: true, Reorder: true},
	ByPrefix:  {Cover: true, Join: true, Reorder: true, Cut: true},
	ByPair:    {Cover: true, Reorder: true},
	ByBytes:   {},
	ByPattern: {},
	ByInner:   {},
	ByName:    {},
	ByMessage: {},
}

// Laws of a field.
func (f Field) Laws() Laws { return f.Info().Compare.Laws() }

// OfMessage tells whether the field is of the DNS message in a packet.
func (f Field) OfMessage() bool {
	by := f.Info().Compare
	return by == ByName || by == ByMessage
}

// Word returns the first word of the language about the field.
func (f Field) Word() string {
	for i := range Phrases {
		if Phrases[i].Field == f {
			return Phrases[i].Word
		}
	}
	return ""
}

// Remembered returns the fields that packets before a packet have told, or that the kernel tells.
func Remembered() (all []Field) {
	for f := range NumFields {
		if table[f].Remembered {
			all = append(all, f)
		}
	}
	return all
}

// Laws of a way to compare.
func (c Compare) Laws() Laws {
	if int(c) >= len(laws) {
		return Laws{}
	}
	return laws[c]
}

// Box is a side of a box of rules: two addresses and two numbers.
type Box uint8

const (
	NoBox      Box = iota // rules that ask for the field are in no box
	BoxSrc                // the source address
	BoxDst                // the destination address
	BoxNumber0            // the first number
	BoxNumber1            // the second; of the fields that ask for it no class of packets has two
)

// Form is the syntax of a phrase.
type Form uint8

const (
	FormAlone   Form = iota // a word alone, which asks for Lo to Hi, or for Mask and Value
	FormWord                // each of Words alone, which is a name of a value
	FormNumber              // a word, and a value, range, list or comparison
	FormMAC                 // a word, and Ethernet addresses
	FormSuffix              // a word, and the lower halves of IPv6 addresses
	FormICMP                // a protocol, "type", and types with or without code
	FormFlags               // a word, and TCP flags
	FormAddress             // a word, and addresses, services, endpoints or a set
	FormBytes               // a word, an offset, and bytes in hexadecimal with or without a mask
	FormPattern             // a word, and quoted texts, bytes in hexadecimal, /expressions/
	FormInner               // a word, and a match in parentheses
	FormName                // a word, and a name of the DNS in quotes, several, or a set
	FormSender              // a word, and the name of a sender, or several
	FormPacket              // in packets only: no field of rules
)

// Phrase is one way to ask for a field in a policy.
type Phrase struct {
	Word  string
	Words []string // of FormWord, instead
	Field Field    // of FormAddress: what addresses behind it are; pairs have the same words
	Form  Form
	What  string // what stands behind the word, for messages; "" if nothing does
	Range        // FormAlone
	Mask  uint8  // FormAlone, of flags
	Value uint8
}
