package history

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// Kind is the subject of a series.
type Kind string

const (
	Verdict  Kind = "verdict"  // all packets with one verdict
	Rule     Kind = "rule"     // one counter
	Protocol Kind = "protocol" // an estimate from samples
	Source   Kind = "source"   // the same, of those who send most
)

// Kinds returns all there are.
func Kinds() []Kind { return []Kind{Verdict, Rule, Protocol, Source} }

// sparse kinds have series only while these count something. Where the kind was observed, which
// its series of Others tells, one that is missing counted nothing.
func (k Kind) sparse() bool { return k == Protocol || k == Source }

// Key is the identity of a series.
type Key struct {
	Dev  string
	Kind Kind
	ID   string // of a rule: that of its counter; else a name; Others
}

// Others is the ID of the series that stands for all that have none of their own.
const Others = ""

// Series is a series with what is shown of it: as it was last.
type Series struct {
	Key
	Label   string
	Verdict string
	Text    string
	Line    int
}

// Amount is a series with its counts over a span of time.
type Amount struct {
	Series
	Packets, Bytes uint64
}

// Longest strings, in bytes.
const (
	mostID   = 160
	mostText = 240
)

// short bounds a string. A long identity keeps its beginning and a hash of the whole.
func short(s string, most int, identity bool) string {
	if len(s) <= most {
		return s
	}
	end := most
	if identity {
		end -= 17
	}
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	if !identity {
		return s[:end]
	}
	sum := sha256.Sum256([]byte(s))
	return s[:end] + "#" + hex.EncodeToString(sum[:8])
}

// bounded returns the series as it is kept.
func (s Series) bounded() Series {
	s.Dev = short(s.Dev, mostID, true)
	s.ID = short(s.ID, mostID, true)
	s.Label = short(s.Label, mostText, false)
	s.Text = short(s.Text, mostText, false)
	s.Verdict = short(s.Verdict, 16, false)
	return s
}

func compareKeys(a, b Key) int {
	if c := strings.Compare(a.Dev, b.Dev); c != 0 {
		return c
	}
	if c := strings.Compare(string(a.Kind), string(b.Kind)); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}
