package resolve

import (
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/listform"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// What a list does where the policy says nothing.
const (
	feedEvery     = time.Hour
	fileEvery     = time.Minute
	crowdSecEvery = 10 * time.Second
	feedChange    = 0.3
	minEvery      = time.Second
)

// list resolves a `source` statement that is a list.
func (r *resolver) list(s *ast.List) {
	errors := r.c.Errors()
	out := &policy.List{Name: strings.Clone(s.Name.Text), Text: s.Text(), Pos: r.pos(s.Pos)}
	as := &ast.Source{Name: s.Name, Set: s.Set, Lease: s.Lease}
	as.Pos = s.Pos
	r.sourceName(as)
	if s.CrowdSec {
		out.CrowdSec = r.crowdSec(s)
	} else {
		out.Feed = r.feed(s)
	}
	out.Every = r.every(s)
	bound := &policy.Source{}
	r.sourceSet(as, bound)
	if out.Set, out.Lease = bound.Set, bound.Lease; s.CrowdSec && s.Lease == nil {
		out.Lease = 0
	}
	if names := out.Set != nil && out.Set.Type == policy.Names; names && s.CrowdSec {
		r.c.Errorf(s.Set.Pos, "name a set of addresses.",
			"set %q is of names, and decisions are about addresses", diag.Clip(s.Set.Text))
	} else if names {
		if out.Feed.Names = true; s.Shortest != nil {
			r.c.Errorf(s.Shortest.Pos, "leave \"shortest\" out.", "names have no prefix length")
		}
	}
	if out.Feed != nil && out.Lease > 0 && out.Lease < out.Every {
		at := s.Set.Pos
		if s.Lease != nil {
			at = s.Lease.Pos
		}
		r.c.Errorf(at, "give entries a lease of several times \"every\".",
			"entries would leave before the list is read again")
	}
	if len(r.pol.Lists) == maxSources {
		r.c.Errorf(s.Pos, "", "a policy has at most %d lists", maxSources)
	}
	if r.c.Errors() == errors && out.Set != nil {
		r.pol.Lists = append(r.pol.Lists, out)
	}
}

// every returns how often a list is read.
func (r *resolver) every(s *ast.List) time.Duration {
	switch {
	case s.Every == nil && s.CrowdSec:
		return crowdSecEvery
	case s.Every == nil && s.Path != nil:
		return fileEvery
	case s.Every == nil:
		return feedEvery
	}
	every, p := literal.Lease(s.Every.Text)
	switch {
	case p.Found():
		r.problem(s.Every.Pos, p)
	case every < minEvery:
		r.c.Errorf(s.Every.Pos, "", "a list is read at most once a second")
	}
	return every
}

func (r *resolver) feed(s *ast.List) *policy.Feed {
	out := &policy.Feed{Change: feedChange, Shortest4: policy.Shortest4,
		Shortest6: policy.Shortest6,
		Cleartext: s.Cleartext != nil}
	if s.Path != nil {
		out.Path = r.agentPath(*s.Path)
	} else {
		out.URL = r.url(s, "https://www.spamhaus.org/drop/drop_v4.json")
	}
	r.feedKey(s, out)
	if s.Change != nil {
		digits, percent := strings.CutSuffix(s.Change.Text, "%")
		n, err := strconv.ParseUint(digits, 10, 32)
		if err != nil || !percent || n < 1 || n > 1000 {
			r.c.Errorf(s.Change.Pos, "write: change 30%. A list that changes by more waits for "+
				"`levee agent accept`.", "%q is no part from 1%% to 1000%%",
				diag.Clip(s.Change.Text))
		}
		out.Change = float64(n) / 100
	}
	if s.Shortest != nil {
		four, six, both := strings.Cut(s.Shortest.Text, ",")
		digits, slash := strings.CutPrefix(four, "/")
		n4, err4 := strconv.ParseUint(digits, 10, 8)
		n6, err6 := uint64(policy.Shortest6), error(nil)
		if both {
			n6, err6 = strconv.ParseUint(six, 10, 8)
		}
		if !slash || err4 != nil || err6 != nil || n4 > 32 || n6 > 128 {
			r.c.Errorf(s.Shortest.Pos, "write: shortest /8, or /8,16 for IPv4 and IPv6.",
				"%q are no lengths of prefixes", diag.Clip(s.Shortest.Text))
		}
		out.Shortest4, out.Shortest6 = int(n4), int(n6)
	}
	if s.Form != listform.Lines {
		out.Form, out.Value = s.Form, strings.Clone(s.Value.Text)
		if err := s.Form.Info().Check(out.Value); err != nil {
			r.c.Errorf(s.Value.Pos, s.Form.Info().Hint, "%q %v", diag.Clip(out.Value), err)
		}
	}
	return out
}

// headerName matches the names of HTTP headers (RFC 9110, without rare signs).
var headerName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
})

// feedKey checks what a feed asks of whoever reads it.
func (r *resolver) feedKey(s *ast.List, out *policy.Feed) {
	if s.Key == nil {
		return
	}
	out.Key = r.agentPath(*s.Key)
	if s.Header != nil {
		if out.Header = strings.Clone(s.Header.Text); !headerName().MatchString(out.Header) {
			r.c.Errorf(s.Header.Pos, "write: header \"Auth-Key\", as the feed calls it.",
				"%q is no name of a header", diag.Clip(s.Header.Text))
		}
	}
	if s.User != nil {
		out.User = strings.Clone(s.User.Text)
		if out.User == "" || strings.ContainsFunc(out.User, func(c rune) bool {
			return c < ' ' || c == 0x7f || c == ':'
		}) {
			r.c.Errorf(s.User.Pos, "it has no colon, and no control characters.",
				"%q is no name of a user", diag.Clip(s.User.Text))
		}
	}
	switch {
	case s.Path != nil:
		r.c.Errorf(s.Key.Pos, "leave it out.", "a file asks for no key or password")
	case s.Cleartext != nil:
		r.c.Errorf(s.Cleartext.Pos, "use https.", "anybody on the way could read the key or the "+
			"password")
	}
}

// agentPath checks a path that the agent opens.
func (r *resolver) agentPath(w ast.Word) string {
	switch {
	case w.Text == "":
		r.c.Errorf(w.Pos, "", "the path is empty")
	case !filepath.IsAbs(w.Text):
		r.c.Errorf(w.Pos, "the agent runs in no directory of its own: begin the path with /.",
			"%q is not a whole path", diag.Clip(w.Text))
	}
	return strings.Clone(w.Text)
}

// url checks from where a list comes.
func (r *resolver) url(s *ast.List, example string) string {
	w := *s.URL
	u, err := url.Parse(w.Text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		r.c.Errorf(w.Pos, "write: url \""+example+"\".", "%q is no URL of http or https",
			diag.Clip(w.Text))
	case u.User != nil:
		r.c.Errorf(w.Pos, "anybody who sees the policy or the status would see it.",
			"a URL may hold no password")
	case u.Fragment != "":
		r.c.Errorf(w.Pos, "", "leave out what stands behind #")
	case u.Scheme == "http" && s.Cleartext == nil && !loopback(u.Hostname()):
		r.c.Errorf(w.Pos, "use https; or, where nobody can change what comes, write cleartext "+
			"behind it.", "anybody on the way could change what %s says", diag.Clip(u.Host))
	case u.Scheme == "https" && s.Cleartext != nil:
		r.c.Errorf(s.Cleartext.Pos, "leave \"cleartext\" out.", "the URL is encrypted")
	}
	return strings.Clone(w.Text)
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

func (r *resolver) crowdSec(s *ast.List) *policy.CrowdSec {
	out := &policy.CrowdSec{Cleartext: s.Cleartext != nil,
		URL: strings.TrimRight(r.url(s, "http://127.0.0.1:8080"), "/")}
	if s.Key == nil {
		r.c.Errorf(s.URL.Pos, "make one: cscli bouncers add levee; then write: key "+
			"\"/etc/levee/crowdsec.key\" behind the URL.", "the local API wants a key")
	} else {
		out.Key = r.agentPath(*s.Key)
	}
	for i := range s.Where {
		c := &s.Where[i]
		if !slices.Contains(policy.DecisionFields, c.Field.Text) {
			hint := "fields are " + strings.Join(policy.DecisionFields, ", ") + "."
			if m := diag.Nearest(c.Field.Text, policy.DecisionFields); m != "" {
				hint = diag.DidYouMean(m)
			}
			r.c.Errorf(c.Field.Pos, hint, "decisions have no field %q", diag.Clip(c.Field.Text))
			continue
		}
		if to, ok := r.texts(c); ok {
			out.Where = append(out.Where, to)
		}
	}
	return out
}

// texts resolves a condition on a field that holds a text.
func (r *resolver) texts(c *ast.Condition) (out policy.Condition, ok bool) {
	out = policy.Condition{Field: strings.Clone(c.Field.Text), Not: c.Not, Op: ast.Equal}
	switch {
	case c.How.Text != "" || c.AnyCase:
		r.c.Errorf(c.Field.Pos, "compare it by = or !=, or with a list in braces.",
			"decisions of CrowdSec are compared as a whole, byte for byte")
		return out, false
	case c.Value.List || c.Value.Op == ast.Equal:
	case c.Value.Op == ast.NotEqual:
		out.Not = !out.Not
	default:
		r.c.Errorf(c.Value.Pos, "compare it by = or !=, or with a list in braces.",
			"%s is a text, and has no order", out.Field)
		return out, false
	}
	for _, e := range c.Value.Elems {
		if e.Text[0] != '"' {
			r.c.Errorf(e.Pos, "write it in quotes: \""+diag.Clip(e.Text)+"\".", "%s is a text",
				out.Field)
			return out, false
		}
		out.Texts = append(out.Texts, strings.Clone(e.Text[1:len(e.Text)-1]))
	}
	r.spend(c.Value.Pos, len(c.Value.Elems))
	slices.Sort(out.Texts)
	out.Texts = slices.Compact(out.Texts)
	return out, !r.overspent
}
