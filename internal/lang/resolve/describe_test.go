package resolve

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"levee/internal/lang/ast"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
)

// shortNames lists the names of fields in goldens, where these are not those of the table.
var shortNames = map[field.Field]string{
	field.Proto: "protocol", field.InnerVLAN: "inner VLAN", field.VLAN: "VLAN", field.Tags: "tags",
	field.SrcMAC:   "source MAC",
	field.DstMAC:   "destination MAC",
	field.Fragment: "fragment",
}

func fieldName(f field.Field) string {
	if n := shortNames[f]; n != "" {
		return n
	}
	return f.Info().Name
}

// describe prints a resolved policy for people, the counterpart of `pfctl -nv`.
func describe(p *policy.Policy) string {
	var b strings.Builder
	fmt.Fprintf(&b, "file %s, interface %q, default %s, essential %v, on error %d\n", p.File,
		strings.Join(p.Interfaces, ", "), p.Default.Action, p.Essential, p.OnError)
	if p.MaxConnections > 0 {
		fmt.Fprintf(&b, "connections max %d\n", p.MaxConnections)
	}
	for _, s := range p.Sets {
		fmt.Fprintf(&b, "set %s: kind %d, type %d, max %d, lease %s, path %q\n", s.Name, s.Kind,
			s.Type, s.Max, s.Lease, s.Path)
		if s.RollUp {
			b.WriteString("    rolls up\n")
		}
		if s.Keep {
			b.WriteString("    keeps its entries\n")
		}
		fmt.Fprintf(&b, "    %s\n", values(s.Prefixes, s.Ports, s.Services, s.Endpoints))
	}
	for _, s := range p.Sources {
		fmt.Fprintf(&b, "%d:%d source %s: %q, %s/%d,%d to %s, lease %s\n", s.Pos.Line, s.Pos.Col,
			s.Name, s.Place.At, s.Add, s.Bits4, s.Bits6, s.Set.Name, s.Lease)
		if f := s.Place.Flows; len(f.Protos) > 0 {
			fmt.Fprintf(&b, "    flows of %d to %v\n", f.Protos, f.Ports)
		}
		for _, c := range s.Where {
			fmt.Fprintf(&b, "    %s: not %v, op %d, %d %q\n", c.Field, c.Not, c.Op, c.Numbers,
				c.Texts)
		}
	}
	for _, d := range p.Detects {
		fmt.Fprintf(&b, "%d:%d detect %s: to %v, above %d/s, %d bit/s, %s, collateral %g, keep %v "+
			"%q, lease %s, quiet %s\n", d.Pos.Line, d.Pos.Col, d.Name, d.To, d.Packets, d.Bits,
			d.Mode,
			d.Collateral, d.Keep, d.KeepText, d.Lease, d.Quiet)
	}
	rules := slices.Concat(p.Protect, p.Rules)
	if p.Out != nil {
		fmt.Fprintf(&b, "out default %s\n", p.Out.Default.Action)
		rules = slices.Concat(rules, p.Out.Protect, p.Out.Rules)
	}
	for _, r := range rules {
		fmt.Fprintf(&b, "%d:%d %s, malformed %v, label %q\n    id %s\n", r.Pos.Line, r.Pos.Col,
			r.Action, r.Malformed, r.Label, r.ID)
		for _, t := range r.Match {
			not := ""
			if t.Not {
				not = "not "
			}
			v := values(t.Prefixes, t.Ranges, t.Services(), t.Endpoints())
			switch {
			case t.Set != nil:
				v = "set " + t.Set.Name
			case t.Pattern != nil:
				v = fmt.Sprintf("%s, %d states", t.Pattern.Text, t.Pattern.Machine.States)
			case t.Field == field.TCPFlags:
				v = fmt.Sprintf("flags & %#02x == %#02x", t.Mask, t.Value)
			}
			fmt.Fprintf(&b, "    %d:%d %s%s: %s\n", t.Pos.Line, t.Pos.Col, not, fieldName(t.Field),
				v)
		}
	}
	for _, t := range p.Tests {
		fmt.Fprintf(&b, "%d:%d test %q\n", t.Pos.Line, t.Pos.Col, t.Name)
		for _, s := range t.Steps {
			if s.Set != nil {
				fmt.Fprintf(&b, "    %d:%d %s: %s\n", s.Pos.Line, s.Pos.Col, s.Text, s.Entry)
				continue
			}
			if s.Leaves && !s.Judged {
				fmt.Fprintf(&b, "    %d:%d %s leaves\n        %x\n", s.Pos.Line, s.Pos.Col,
					s.Text, s.Frame)
				continue
			}
			fmt.Fprintf(&b, "    %d:%d %s: %s, by %q, label %q\n        %x\n", s.Pos.Line,
				s.Pos.Col, s.Text, s.Expect, s.By, s.Label, s.Frame)
		}
	}
	return b.String()
}

func values(ps []netip.Prefix, rs []field.Range, ss []policy.Service, es []policy.Element) string {
	var out []string
	for _, p := range ps {
		out = append(out, p.String())
	}
	for _, r := range rs {
		if r.Lo == r.Hi {
			out = append(out, fmt.Sprint(r.Lo))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", r.Lo, r.Hi))
		}
	}
	for _, s := range ss {
		out = append(out, fmt.Sprintf("%d/%d-%d", s.Proto, s.Lo, s.Hi))
	}
	for _, e := range es {
		out = append(out, e.String())
	}
	return strings.Join(out, " ")
}

// sameMeaning compares policies without their positions.
var sameMeaning = cmp.Options{
	cmpopts.IgnoreTypes(policy.Pos{}),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
	cmp.AllowUnexported(policy.Term{}, policy.Given{}),
	cmpopts.IgnoreUnexported(policy.Policy{}),
}

// checkFixpoint shows that formatting again changes nothing, and that the formatted policy means
// what p does. Set files are relative to dir.
func checkFixpoint(t *testing.T, p *policy.Policy, formatted []byte, dir string) {
	t.Helper()
	f, ds := syntax.Parse(p.File, formatted)
	if err := ds.Err(); err != nil {
		t.Fatalf("the formatted policy has errors: %v\n%s", err, formatted)
	}
	if diff := cmp.Diff(string(formatted), string(ast.Format(f))); diff != "" {
		t.Errorf("formatting twice changes (-once +twice):\n%s", diff)
	}
	again, ds := Resolve(f, func(name string) (io.ReadCloser,
		error) {
		return os.Open(filepath.Join(dir, name))
	})
	if err := ds.Err(); err != nil {
		t.Fatalf("the formatted policy has errors: %v\n%s", err, formatted)
	}
	if diff := cmp.Diff(p, again, sameMeaning); diff != "" {
		t.Errorf("formatting changes the meaning (-before +after):\n%s", diff)
	}
}
