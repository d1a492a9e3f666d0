package policy

import (
	"slices"
	"time"

	"levee/internal/lang/listform"
)

// List is a source that says at any time what all its entries are. It is for the agent, and no part
// of the compiled policy. Exactly one of Feed, CrowdSec and DNS is given.
type List struct {
	Name     string // the origin of its entries
	Feed     *Feed
	CrowdSec *CrowdSec
	DNS      string // a name whose addresses are the entries; Name has "dns:" before it
	Every    time.Duration
	Set      *Set
	// 0: until the list does not have it. Of CrowdSec: at most, 0 as it says. Of DNS: how long an
	// address stays when the name cannot be looked up.
	Lease time.Duration
	Text  string // canonical
	Pos   Pos
}

// Feed is a list of addresses or names that others publish: plain lines, a column of CSV, or each
// value of a name in JSON.
type Feed struct {
	Path      string // of a file, absolute; else URL
	URL       string
	Header    string  // in which the key is sent; "": none is
	User      string  // whose password is sent; "": none is
	Key       string  // path of the file that holds the key or the password, absolute
	Cleartext bool    // http is good enough
	Change    float64 // which part of the list may be new, or gone, without being asked for
	Shortest4 int     // lengths of prefixes
	Shortest6 int
	Form      listform.Form // what of it is an entry
	Value     string        // of Form
	Names     bool          // entries are names of the DNS
}

// CrowdSec is a local API whose decisions are followed.
type CrowdSec struct {
	URL       string // up to the version of the API, without a slash at its end
	Key       string // path, absolute
	Cleartext bool
	Where     []Condition
}

// DNSOrigin begins the origin of addresses that DNS gives a name: no source's name has a colon.
const DNSOrigin = "dns:"

// Shortest4 and Shortest6 are how long prefixes of lists are at least, where the policy says
// nothing else: what holds more is a mistake, or an attack.
const (
	Shortest4 = 8
	Shortest6 = 16
)

// DecisionFields are the fields of CrowdSec's decisions that conditions may name.
var DecisionFields = []string{"origin", "scenario", "type"}

// Holds tells whether a condition holds for a text.
func (c *Condition) Holds(text string) bool {
	_, found := slices.BinarySearch(c.Texts, text)
	return found != c.Not
}
