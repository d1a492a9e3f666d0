package resolve

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"levee/internal/lang/diag"
	"levee/internal/lang/literal"
	"levee/internal/lang/mmdb"
	"levee/internal/lang/policy"
	"levee/internal/lang/setfile"
)

// Bounds of sets of names. Each name has room for so many addresses.
const (
	maxNames     = 256
	nameRoom     = 64
	defaultStale = 24 * time.Hour
	minStale     = time.Minute
)

// namesSet resolves `names(...)`: a dynamic set that the agent fills.
func (r *resolver) namesSet(d *setDef) {
	n := d.stmt.Names
	d.set.Kind, d.set.Max = policy.Dynamic, nameRoom*min(len(n.Names), maxNames)
	if len(n.Names) > maxNames {
		r.c.Errorf(n.Names[maxNames].Pos, "make a second set.", "a set has at most %d names",
			maxNames)
	}
	stale := defaultStale
	if n.Stale != nil {
		var p diag.Problem
		if stale, p = literal.Lease(n.Stale.Text); p.Found() {
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
				"%q is no name of DNS", diag.Clip(w.Text))
			continue
		case slices.Contains(d.set.Names, name):
			r.c.Errorf(w.Pos, "remove one of the two.", "%q stands there twice", diag.Clip(w.Text))
			continue
		}
		d.set.Names = append(d.set.Names, name)
		r.pol.Lists = append(r.pol.Lists, &policy.List{Name: policy.DNSOrigin + name, DNS: name,
			Set:   d.set,
			Lease: stale, Text: fmt.Sprintf("%s %s %s %v", policy.DNSOrigin, name, d.set.Name,
				stale),
			Pos: r.pos(w.Pos)})
	}
}

// dnsName tells whether a text is a name of a host, in lower case, with a dot in it (RFC 1123, 2.1;
// underscores are in use).
func dnsName(name string) bool {
	if len(name) > 253 || !strings.Contains(name, ".") ||
		literal.AllDigits(strings.ReplaceAll(name, ".", "")) {
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
	of := setfile.Selection{Path: m.Path.Text, Query: mmdb.Query{Country: m.What.Text == "country"}}
	for _, e := range m.Values.Elems {
		switch upper := strings.ToUpper(e.Text); {
		case of.Country && (len(e.Text) != 2 || strings.ContainsFunc(upper, func(c rune) bool {
			return c < 'A' || c > 'Z'
		})):
			r.c.Errorf(e.Pos, "", "%q is no country: two letters, as in ISO 3166",
				diag.Clip(e.Text))
		case of.Country:
			of.Values = append(of.Values, upper)
		default:
			digits := strings.TrimPrefix(upper, "AS")
			n, err := strconv.ParseUint(digits, 10, 32)
			if err != nil {
				r.c.Errorf(e.Pos, "write: as 64500.", "%q is no number of an autonomous system",
					diag.Clip(e.Text))
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
