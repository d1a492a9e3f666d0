package resolve

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// Bounds and defaults of detectors.
const (
	maxDetects        = 16
	defaultCollateral = 1.0 / 1000
	defaultLease      = time.Minute
	defaultQuiet      = 45 * time.Second
	minDetectLease    = 10 * time.Second
	maxDetectLease    = 24 * time.Hour
	minQuiet          = 5 * time.Second
)

// detect resolves a `detect` statement.
func (r *resolver) detect(s *ast.Detect) {
	errors := r.c.Errors()
	out := &policy.Detect{Name: strings.Clone(s.Name.Text), Text: s.Text(), Pos: r.pos(s.Pos),
		Collateral: defaultCollateral, Lease: defaultLease, Quiet: defaultQuiet}
	r.agentName(s.Name, s.Pos.Line, "detector", "it is typed in commands and stands in labels.")
	if s.To != nil {
		out.To = r.detectAddresses(ast.To, s.To)
	}
	for i, w := range s.Above {
		r.detectAbove(out, w, i)
	}
	switch s.Mode.Text {
	case "propose":
		out.Mode = policy.Propose
	case "enforce":
		out.Mode = policy.Enforce
	}
	if s.Collateral != nil {
		one, of, ok := strings.Cut(s.Collateral.Text, "/")
		n, err := strconv.ParseUint(of, 10, 32)
		if !ok || one != "1" && one != "0" || err != nil || n < 2 || n > 1e6 {
			r.c.Errorf(s.Collateral.Pos, "write 1/1000 for one good packet in a thousand, 0/1000 "+
				"for none.", "%q is not a part from 1/2 to 1/1000000", diag.Clip(s.Collateral.Text))
		} else if out.Collateral = 1 / float64(n); one == "0" {
			out.Collateral = 0
		}
	}
	if s.Keep != nil {
		out.Keep = r.detectAddresses(ast.From, s.Keep)
		out.KeepText = s.KeepText()
	}
	r.detectTime(s.Lease, &out.Lease, minDetectLease, maxDetectLease, "lease")
	r.detectTime(s.Quiet, &out.Quiet, minQuiet, maxDetectLease, "quiet time")
	if len(r.pol.Detects) == maxDetects {
		r.c.Errorf(s.Pos, "", "a policy has at most %d detectors", maxDetects)
	}
	if r.c.Errors() == errors {
		r.pol.Detects = append(r.pol.Detects, out)
	}
}

// detectAbove reads one threshold.
func (r *resolver) detectAbove(out *policy.Detect, w ast.Word, i int) {
	const example = "write packets or bits a second to one host, as in 50000/s, 50kpps or 1gbit/s."
	var l policy.Limit
	p := l.SetRate(w.Text)
	switch {
	case p.Message != "":
		if !strings.HasPrefix(p.Hint, "did you mean") {
			p.Hint = example
		}
		r.problem(w.Pos, p)
	case l.Rate.Per != time.Second:
		r.c.Errorf(w.Pos, example, "a detector counts by the second, not %s", diag.Clip(w.Text))
	case l.Rate.Bits && out.Bits > 0, !l.Rate.Bits && out.Packets > 0:
		r.c.Errorf(w.Pos, "one rate of packets and one of bits can be given.",
			"a rate of this kind is given already")
	case l.Rate.Bits:
		out.Bits = l.Rate.Amount
	default:
		out.Packets = l.Rate.Amount
	}
}

// detectTime reads a duration.
func (r *resolver) detectTime(w *ast.Word, out *time.Duration, least, most time.Duration,
	what string) {
	if w == nil {
		return
	}
	d, p := literal.Lease(w.Text)
	switch {
	case p.Found():
		if strings.HasPrefix(p.Hint, "leave \"lease\" out") {
			p.Hint = "write a duration such as 45s, 2m or 1h."
		}
		r.problem(w.Pos, p)
	case d < least || d > most:
		r.c.Errorf(w.Pos, "", "the %s of a detector is from %s to %s", what, least,
			strings.TrimSuffix(most.String(), "0m0s"))
	default:
		*out = d
	}
}

// detectAddresses resolves what a detector watches or keeps.
func (r *resolver) detectAddresses(kind ast.TermKind, v *ast.Value) []netip.Prefix {
	var t policy.Term
	if !r.address(&t, &ast.Term{Kind: kind, Value: v, Pos: v.Pos}) {
		return nil
	}
	at := v.Pos
	switch {
	case t.Field != field.SrcAddr && t.Field != field.DstAddr:
		r.c.Errorf(at, "name addresses and prefixes.", "a detector takes no ports")
	case t.Set != nil && t.Set.Kind == policy.Dynamic && kind == ast.From:
		r.c.Errorf(at, "write the addresses, or ask the set in a protect rule, which live rules "+
			"never overrule.", "the entries of a dynamic set come and go")
	case t.Set != nil && t.Set.Kind == policy.Dynamic:
		r.c.Errorf(at, "leave \"to\" out to watch everything that arrives, or write the "+
			"prefixes.", "the entries of a dynamic set come and go")
	case t.Set != nil:
		return t.Set.Prefixes
	}
	return t.Prefixes
}
