package policy

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"levee/internal/lang/mmdb"
)

// Bounds of sets of names. Each name has room for so many addresses.
const (
	maxNames     = 256
	nameRoom     = 64
	defaultStale = 24 * time.Hour
	minStale     = time.Minute
)

// DNSOrigin begins the origin of addresses that DNS gives a name: no source's name has a colon.
const DNSOrigin = "dns:"

// namesSet resolves `names(...)`: a dynamic set that the agent fills.
func (r *resolver) namesSet(d *setDef) {
	n := d.stmt.Names
	d.set.Kind, d.set.Max = Dynamic, nameRoom*min(len(n.Names), maxNames)
	if len(n.Names) > maxNames {
		r.c.Errorf(n.Names[maxNames].Pos, "make a second set.", "a set has at most %d names",
			maxNames)
	}
	stale := defaultStale
	if n.Stale != nil {
		var p problem
		if stale, p = parseLease(n.Stale.Text); p.found() {
			r.problem(n.Stale.Pos, p)
		} else if stale < minStale {
			r.c.Errorf(n.Stale.Pos, "a resolver that is started anew takes some time.",
				"addresses stay at least a minute when a name cannot be looked up")
		}
	}
	for _, w := range n.Names {
		name := strings.ToLower(strings.TrimSuffix(w.Text, "."))
		switch {
		case !dnsName(name):
			r.c.Errorf(w.Pos, "write a whole name, such as \"partner.example.net\".",
				"%q is no name of DNS", short(w.Text))
			continue
		case slices.Contains(d.set.Names, name):
			r.c.Errorf(w.Pos, "remove one of the two.", "%q stands there twice", short(w.Text))
			continue
		}
		d.set.Names = append(d.set.Names, name)
		r.pol.Lists = append(r.pol.Lists, &List{Name: DNSOrigin + name, DNS: name, Set: d.set,
			Lease: stale, Text: fmt.Sprintf("%s %s %s %v", DNSOrigin, name, d.set.Name, stale),
			Pos: r.pos(w.Pos)})
	}
}

// dnsName tells whether a text is a name of a host, in lower case, with a dot in it (RFC 1123, 2.1;
// underscores are in use).
func dnsName(name string) bool {
	if len(name) > 253 || !strings.Contains(name, ".") ||
		allDigits(strings.ReplaceAll(name, ".", "")) {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.ContainsFunc(label, func(c rune) bool {
				return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_')
			}) {
			return false
		}
	}
	return true
}

// mmdbSet resolves `mmdb(...)`, as a set file that a selection of the database is.
func (r *resolver) mmdbSet(d *setDef) {
	m := d.stmt.MMDB
	errors := r.c.Errors()
	of := selection{path: m.Path.Text, Query: mmdb.Query{Country: m.What.Text == "country"}}
	for _, e := range m.Values.Elems {
		switch upper := strings.ToUpper(e.Text); {
		case of.Country && (len(e.Text) != 2 || strings.ContainsFunc(upper, func(c rune) bool {
			return c < 'A' || c > 'Z'
		})):
			r.c.Errorf(e.Pos, "", "%q is no country: two letters, as in ISO 3166", short(e.Text))
		case of.Country:
			of.Values = append(of.Values, upper)
		default:
			digits := strings.TrimPrefix(upper, "AS")
			n, err := strconv.ParseUint(digits, 10, 32)
			if err != nil {
				r.c.Errorf(e.Pos, "write: as 64500.", "%q is no number of an autonomous system",
					short(e.Text))
				break
			}
			of.Values = append(of.Values, strconv.FormatUint(n, 10))
		}
	}
	if m.Path.Text == "" {
		r.c.Errorf(m.Path.Pos, "", "the path is empty")
	}
	if r.c.Errors() != errors {
		return
	}
	slices.Sort(of.Values)
	of.Values = slices.Compact(of.Values)
	r.fileSet(d, m.Path, of.String())
}

// selection is a part of an MMDB file. It is read as a set file under a name of its own, so that a
// recording has the networks and not the file.
type selection struct {
	path string
	mmdb.Query
}

const selectionPrefix = "mmdb "

// String is the name under which a selection is read.
func (s *selection) String() string {
	return selectionPrefix + s.Query.String() + " " + strconv.Quote(s.path)
}

// parseSelection reads what String has made.
func parseSelection(name string) (s selection, ok bool) {
	rest, ok := strings.CutPrefix(name, selectionPrefix)
	if !ok {
		return s, false
	}
	words := strings.SplitN(rest, " ", 3)
	if len(words) != 3 {
		return s, false
	}
	path, err := strconv.Unquote(words[2])
	if err != nil {
		return s, false
	}
	s.path, s.Country, s.Values = path, words[0] == "country", strings.Split(words[1], ",")
	return s, true
}

// open reads the networks of a selection.
func (s *selection) open() (io.ReadCloser, error) {
	f, err := openRegular(s.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := mmdb.Networks(f, s.Query, MaxElements)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(strings.NewReader(text)), nil
}
