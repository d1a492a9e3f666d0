// Package kind is the table of the kinds of floods: what each is counted by, from where on it is
// too much, what may be done about it, and its words.
//
// Everything about floods asks this table: what detects them, the rules against them, incidents,
// the page and the bench. A name that is not in it, of a file that a later version wrote, has a row
// too. The package must never count.
package kind

import (
	"slices"
	"strings"

	"levee/internal/packet"
)

// Kind is a kind of flood.
type Kind uint8

// Kinds of floods.
const (
	SYN        Kind = iota // connections that nobody completes
	UDP                    // of flows not seen before
	Reflection             // UDP from ports of services that answer with more than they are asked
	ICMP
	Fragments
	TCP     // packets of connections that nobody began
	Other   // any other protocol, and TCP with flags that no connection has
	Link    // frames that are not IP
	Packets // all; only with a fixed threshold
	Bits    // a second; only with a fixed threshold
	Num
)

// Counter is a number of packets by which kinds are known.
type Counter uint8

// Counters. Those from AllUDP to AllOther count all packets alike, whether their flow was seen
// before or not.
const (
	CountSYN   Counter = iota // SYN without ACK
	CountTCP                  // TCP of connections: all other usual flags
	CountFresh                // of these, of flows that were not seen before
	CountUDP
	CountReflection
	CountICMP
	CountFragments
	CountOther
	CountLink
	CountOdd     // TCP of other kinds than SYN and TCP, which the machine refuses, too
	CountRefused // segments that the machine has refused
	CountAllUDP
	CountAllICMP
	CountAllFragments
	CountAllOther
	CountPackets
	CountBits
	CountSamples
	CountSameUDP // packets of the flow that the one before was of
	CountSameICMP
	CountSameFragments
	CountSameOther
	CountPeers   // of all these but of TCP: from whom there are connections with, or to groups
	CountBesides // packets of other protocols than TCP
	CountHost    // of these, from where the one before came from
	NumCounters
)

// Row describes a kind of flood.
type Row struct {
	Name   string // in files and in the API; a to z, as the page has a colour of that name
	Phrase string // in a sentence
	Words  string // what it is made of
	Unit   string // of its rate
	// Floor is the rate, in packets a second, below which nothing is a flood that was learned: a
	// machine that can serve anybody takes it. 0: the kind needs a fixed threshold.
	Floor float64
	// Has says whether a packet is of this kind and of none further down in the table. Other has
	// what no kind has.
	Has func(*packet.Packet) bool
	// Repeat is the weight in Counter of a packet whose flow was seen before, 0 to 1.
	Repeat float64
	// Counter counts it, and All does so where packets of flows that go on count less in Counter;
	// otherwise both are the same.
	Counter, All Counter
	// Same counts the packets of All that are of the same flow as the one before, where both
	// counters differ: one of so many as there are flows.
	Same  Counter
	Crowd bool // a crowd of clients brings more of it
	Cut   bool // its packets come in fragments, too
	// Answered: more of it is harmless where the machine sends more, too. Others are answered by
	// the kernel, whoever asks.
	Answered bool
	// Begun: good traffic that is older than the agent looks like it at first, as the segments of
	// open connections do. Only what else speaks for a flood makes it one then.
	Begun bool
	// Limit is the match of a limit on the whole kind, Limit6 that for IPv6. Its first word is the
	// protocol, which the limit on Other leaves out. "" is none, as where no words of the language
	// are about the kind alone.
	Limit, Limit6 string
	// Again is the match of a greylist on the kind; "" is none, as where what comes has no ports,
	// or senders can be asked for a better proof.
	Again   string
	Resends bool // who is there sends again whatever is lost, as TCP does
	Rare    bool // who has no use for it has none for a little of it
	Cookie  bool // senders can be asked to prove that they are there
	// Proves says that senders can prove it where the policy says by what: `prove`, or a cookie
	// for queries.
	Proves bool
	// Near: its packets come from neighbours on the link, and keep it up, as ARP does. They are
	// told of, and nothing is done about them.
	Near  bool
	Bench string // flood of `levee bench detect` that is of this kind; "" is none
	// Colour and Night are what the page shows it in, on light and on dark ground.
	Colour, Night string
}

// repeated is Repeat of kinds in which a backup, a tunnel and a test of a line are few flows with
// many packets.
const repeated = 0.1

// reflected is narrower than reflectors: a limit on it stands for all machines.
const reflected = "udp from port { 19, 53, 111, 123, 137, 161, 389, 1900, 3702, 5353, 11211 }"

// Rows are the kinds.
var Rows = [Num]Row{
	SYN: {Name: "syn", Phrase: "a SYN flood", Words: "SYNs", Floor: 5000, Has: hasSYN,
		Repeat: 1, Counter: CountSYN, All: CountSYN, Limit: "tcp syn", Limit6: "tcp syn",
		Cookie: true, Bench: "syn",
		Colour: "#0072b2", Night: "#3d9fe0"},
	UDP: {Name: "udp", Phrase: "a UDP flood", Words: "UDP", Floor: 10_000, Has: hasUDP,
		Repeat: repeated, Counter: CountUDP, All: CountAllUDP, Same: CountSameUDP,
		Crowd: true, Cut: true, Answered: true, Limit: "udp", Limit6: "udp",
		Again: "udp", Proves: true, Bench: "udp",
		Colour: "#d55e00", Night: "#f07f35"},
	Reflection: {Name: "reflection", Phrase: "a reflection flood", Words: "reflected UDP",
		Floor: 3000, Has: hasReflection, Repeat: 1, Counter: CountReflection, All: CountReflection,
		Crowd: true, Cut: true, Answered: true, Limit: reflected, Limit6: reflected,
		Bench:  "reflection",
		Colour: "#b8528d", Night: "#e092c4"},
	ICMP: {Name: "icmp", Phrase: "an ICMP flood", Words: "ICMP", Floor: 3000, Has: hasICMP,
		Repeat: repeated, Counter: CountICMP, All: CountAllICMP, Same: CountSameICMP,
		Crowd: true, Cut: true, Limit: "icmp", Limit6: "icmp6", Bench: "icmp",
		Colour: "#009e73", Night: "#22c497"},
	Fragments: {Name: "fragments", Phrase: "a flood of fragments", Words: "fragments", Floor: 3000,
		Has: hasFragment, Repeat: repeated, Counter: CountFragments, All: CountAllFragments,
		Same: CountSameFragments, Answered: true, Limit: "fragments", Limit6: "fragments",
		Bench:  "fragment",
		Colour: "#e0b000", Night: "#f2d15b"},
	TCP: {Name: "tcp", Phrase: "a flood of TCP packets without connections", Words: "TCP",
		Floor: 10_000, Has: hasConnection, Counter: CountFresh, All: CountFresh, Begun: true,
		Again: "tcp not syn", Resends: true, Bench: "ack",
		Colour: "#79b9e6", Night: "#a9d8fa"},
	Other: {Name: "other", Phrase: "a flood", Words: "other protocols", Floor: 10_000,
		Repeat: repeated, Counter: CountOther, All: CountAllOther, Same: CountSameOther, Cut: true,
		Answered: true, Rare: true, Bench: "gre",
		Colour: "#444a52", Night: "#c3cad3"},
	Link: {Name: "link", Phrase: "a flood of frames that are not IP",
		Words: "frames that are not IP", Floor: 5000, Has: hasNoIP, Repeat: 1, Counter: CountLink,
		All: CountLink, Near: true, Bench: "link",
		Colour: "#8c510a", Night: "#d8a55b"},
	Packets: {Name: "packets", Phrase: "a flood", Words: "packets", Counter: CountPackets,
		All:    CountPackets,
		Colour: "#7d7d1c", Night: "#cfcf5b"},
	Bits: {Name: "bits", Phrase: "a flood", Words: "bits", Unit: "bit/s", Counter: CountBits,
		All:    CountBits,
		Colour: "#882255", Night: "#b8507f"},
}

func init() {
	for k := range Rows {
		if Rows[k].Unit == "" {
			Rows[k].Unit = "packets/s"
		}
	}
	Rows[Other].Limit = noOther()
	Rows[Other].Limit6 = Rows[Other].Limit
}

// noOther matches the packets of no protocol that the limit of another kind begins with, and no
// fragments.
func noOther() string {
	var protocols []string
	for _, r := range Rows {
		for _, limit := range []string{r.Limit, r.Limit6} {
			if word, _, _ := strings.Cut(limit, " "); word != "" && word != "fragments" {
				protocols = append(protocols, word)
			}
		}
	}
	slices.Sort(protocols)
	return "not proto { " + strings.Join(slices.Compact(protocols), ", ") + " } not fragments"
}

func (k Kind) String() string { return k.Row().Name }

// Joins says whether floods of two kinds are one: fragments come with what is cut, and nobody can
// tell of what they are.
func (k Kind) Joins(o Kind) bool {
	return k == o || k == Fragments && o.Row().Cut || o == Fragments && k.Row().Cut
}

// Row is the row of a kind, that of an unknown one for any number that is none.
func (k Kind) Row() *Row {
	if k >= Num {
		return &unknown
	}
	return &Rows[k]
}

var unknown = Row{Phrase: "a flood", Unit: "packets/s"}

// Novel returns the packets of a kind that are of flows not seen before, by what its two
// counters have of them.
func (r *Row) Novel(counter, all float64) float64 {
	if r.All == r.Counter {
		return counter
	}
	return max(0, (counter-r.Repeat*all)/(1-r.Repeat))
}

// LimitTo returns a limit by the pattern of the kind, to an address or "" for all, where no drop is
// clean; "" for a kind without. rate is its end, as in " rate 100/s".
func (r *Row) LimitTo(to, rate string) string {
	what := r.Limit
	if strings.Contains(to, ":") {
		what = r.Limit6
	}
	if what == "" {
		return ""
	}
	if to != "" {
		what += " to " + to
	}
	return "limit " + what + rate
}

// Of returns the kind with a name, Num if there is none.
func Of(name string) Kind {
	at := slices.IndexFunc(Rows[:], func(r Row) bool { return r.Name == name })
	if at < 0 {
		return Num
	}
	return Kind(at)
}

// Named is the row of a name. One of a later version has its name for words.
func Named(name string) Row {
	if k := Of(name); k < Num {
		return Rows[k]
	}
	out := unknown
	out.Name, out.Words = name, name
	return out
}
