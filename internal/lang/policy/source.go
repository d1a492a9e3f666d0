package policy

import (
	"net/netip"
	"slices"
	"time"

	"levee/internal/agent/source/inlet"
	"levee/internal/lang/ast"
)

// Source is one `source` statement: events that become leased entries of a dynamic set. It is for
// the agent, and no part of the compiled policy.
type Source struct {
	Name     string // the origin of its entries
	Format   Format
	Place    inlet.Place
	Where    []Condition
	Patterns []string      // of Lines, those of logline
	Except   []string      // patterns of lines that Patterns match besides, and that do not count
	Programs []string      // that write the lines, besides what Where says; none: all
	After    int           // that many events of an address,
	Within   time.Duration // within that time, lease it; 0: each does
	Add      string        // the field of the address, or of the name
	Bits4    int           // of the prefix of it that is counted and leased, of IPv4
	Bits6    int           // and of IPv6
	Labels   int           // of the end of a name that is counted and leased; 0: all
	Set      *Set
	Lease    time.Duration // 0: until withdrawn
	Text     string        // canonical
	Pos      Pos
}

// Format is the format of a source's events.
type Format uint8

const (
	EVE   Format = iota // JSON objects with the fields of the table
	JSON                // JSON objects with any fields
	Lines               // lines of text
)

// Condition is one condition of a source. It never holds for events without the field. For a field
// with several values it holds if one of them meets it; with Not, if one of them does not.
type Condition struct {
	Field   string
	Not     bool
	Op      ast.Op   // Equal also for lists
	How     How      // of texts
	AnyCase bool     // of texts: capital letters and small ones are the same
	Numbers []int64  // sorted; one where Op is no Equal
	Texts   []string // sorted; only with Equal
	Words   []string // true, false; only with Equal
	// an expression of package regexp, with Matches
	Expression string
	File       string        // a list of texts, with Listed
	Feed       *Feed         // such a list that is fetched; in place of File
	Every      time.Duration // Feed: how often
}

// How a text is compared.
type How uint8

const (
	Equals How = iota // byte for byte
	Contains
	Begins
	Ends
	Matches
	Listed
)

// CommandOrigin is the origin of entries that were in a set before the agent came to lease them:
// no source can have that name.
const CommandOrigin = "command"

// translated are prefixes in which an address stands for one of IPv4 (RFC 6052): their neighbours
// have nothing to do with each other. Of a well-known one it is the last 32 bits.
var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	translated = []netip.Prefix{netip.MustParsePrefix("64:ff9b:1::/48"), // RFC 8215
		netip.MustParsePrefix("2001::/32")} // Teredo: a /64 is all clients of one server (RFC 4380)
)

// Prefix returns what an event of an address counts for and leases.
func (s *Source) Prefix(a netip.Addr) netip.Prefix {
	bits := s.Bits6
	switch within := func(p netip.Prefix) bool { return p.Contains(a) }; {
	case a.Is4():
		bits = s.Bits4
	case nat64.Contains(a):
		bits = nat64.Bits() + s.Bits4
	case slices.ContainsFunc(translated, within):
		bits = a.BitLen()
	}
	return netip.PrefixFrom(a, bits).Masked()
}
