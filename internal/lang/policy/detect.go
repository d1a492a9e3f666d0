package policy

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"levee/internal/lang/ast"
	"levee/internal/lang/field"
)

// Detect is one `detect` statement: what the agent looks for in the traffic, and what it may do. It
// is no part of the compiled policy.
type Detect struct {
	Name string
	To   []netip.Prefix // what is watched; nil: everything
	// Packets and Bits are what one host may get a second; both 0: it is learned.
	Packets, Bits uint64
	Mode          DetectMode
	// Collateral is the share of good packets that rules may drop, 0 to 1.
	Collateral float64
	Keep       []netip.Prefix // sources that its rules leave alone
	KeepText   string         // as it is written; "" for none
	Lease      time.Duration  // of its rules, which the agent renews
	Quiet      time.Duration  // how long a flood is over before its rules go
	Text       string         // canonical
	Pos        Pos
}

// DetectMode is what becomes of a flood.
type DetectMode uint8

const (
	Observe DetectMode = iota
	Propose
	Enforce
)

func (m DetectMode) String() string { return [...]string{"observe", "propose", "enforce"}[m] }

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
	out := &Detect{Name: strings.Clone(s.Name.Text), Text: s.Text(), Pos: r.pos(s.Pos),
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
		out.Mode = Propose
	case "enforce":
		out.Mode = Enforce
	}
	if s.Collateral != nil {
		one, of, ok := strings.Cut(s.Collateral.Text, "/")
		n, err := strconv.ParseUint(of, 10, 32)
		if !ok || one != "1" && one != "0" || err != nil || n < 2 || n > 1e6 {
			r.c.Errorf(s.Collateral.Pos, "write 1/1000 for one good packet in a thousand, 0/1000 "+
				"for none.", "%q is not a part from 1/2 to 1/1000000", short(s.Collateral.Text))
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
func (r *resolver) detectAbove(out *Detect, w ast.Word, i int) {
	const example = "write packets or bits a second to one host, as in 50000/s, 50kpps or 1gbit/s."
	var l Limit
	p := l.rate(w.Text)
	switch {
	case p.msg != "":
		if !strings.HasPrefix(p.hint, "did you mean") {
			p.hint = example
		}
		r.problem(w.Pos, p)
	case l.Rate.Per != time.Second:
		r.c.Errorf(w.Pos, example, "a detector counts by the second, not %s", short(w.Text))
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
	d, p := parseLease(w.Text)
	switch {
	case p.found():
		if strings.HasPrefix(p.hint, "leave \"lease\" out") {
			p.hint = "write a duration such as 45s, 2m or 1h."
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
	var t Term
	if !r.address(&t, &ast.Term{Kind: kind, Value: v, Pos: v.Pos}) {
		return nil
	}
	at := v.Pos
	switch {
	case t.Field != field.SrcAddr && t.Field != field.DstAddr:
		r.c.Errorf(at, "name addresses and prefixes.", "a detector takes no ports")
	case t.Set != nil && t.Set.Kind == Dynamic && kind == ast.From:
		r.c.Errorf(at, "write the addresses, or ask the set in a protect rule, which live rules "+
			"never overrule.", "the entries of a dynamic set come and go")
	case t.Set != nil && t.Set.Kind == Dynamic:
		r.c.Errorf(at, "leave \"to\" out to watch everything that arrives, or write the "+
			"prefixes.", "the entries of a dynamic set come and go")
	case t.Set != nil:
		return t.Set.Prefixes
	}
	return t.Prefixes
}
