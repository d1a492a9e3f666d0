package resolve

import (
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/action"
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// prove resolves a `prove` statement.
func (r *resolver) prove(s *ast.Prove) {
	errors := r.c.Errors()
	out := &policy.Prove{Name: strings.Clone(s.Name.Text), Text: s.Text(), Pos: r.pos(s.Pos)}
	r.proveName(s.Name)
	r.proveService(s, out)
	r.proveReply(s, out)
	if n, err := strconv.Atoi(s.Bytes.Text); err != nil || n < policy.LeastEcho ||
		n > policy.MostEcho {
		r.c.Errorf(s.Bytes.Pos, "fewer can be guessed; of a longer value name a part.",
			"%s bytes: a proof is %d to %d bytes", diag.Clip(s.Bytes.Text), policy.LeastEcho,
			policy.MostEcho)
	} else {
		out.Bytes = n
	}
	out.At = r.proveOffset(s.At, out.Bytes)
	for i, w := range s.In {
		at := r.proveOffset(w, out.Bytes)
		switch {
		case i == policy.MaxEchoes:
			r.c.Errorf(w.Pos, "write one statement for some of them, and one for the others.",
				"clients may send the bytes back in %d places at most", policy.MaxEchoes)
		case at >= 0 && slices.Contains(out.In, at):
			r.c.Errorf(w.Pos, "remove one of the two.", "the place %d is given twice", at)
		}
		out.In = append(out.In, at)
	}
	if r.c.Errors() == errors {
		if free := out.FreeBits(); free < 8*policy.LeastEcho {
			r.c.Errorf(s.At.Pos, "name bytes that are other ones for each client.",
				"who never saw a reply can guess these bytes: \"reply\" leaves %d bits of them "+
					"open, and a proof takes %d", free, 8*policy.LeastEcho)
		}
	}
	if len(r.pol.Proves) == policy.MaxProves {
		r.c.Errorf(s.Pos, "", "a policy has at most %d \"prove\" statements", policy.MaxProves)
	}
	if r.c.Errors() == errors {
		r.pol.Proves = append(r.pol.Proves, out)
	}
}

// proveName checks a name, which commands print.
func (r *resolver) proveName(w ast.Word) {
	if w.Text == "" || len(w.Text) > maxSourceName {
		r.c.Errorf(w.Pos, "", "the name of a proof has 1 to %d bytes", maxSourceName)
	}
	if w.Text == policy.ProvedByCookie {
		r.c.Errorf(w.Pos, "choose another name.",
			"%q is the name under which what cookies for A2S ask for is counted", w.Text)
	}
	for _, p := range r.pol.Proves {
		if p.Name == w.Text {
			r.c.Errorf(w.Pos, "choose another name.", "line %d has the name %q already",
				p.Pos.Line, diag.Clip(w.Text))
		}
	}
}

// proveService resolves which service replies.
func (r *resolver) proveService(s *ast.Prove, out *policy.Prove) {
	const example = `name the ports of the service: prove "a2s" udp port 27015 reply ...`
	all := r.resolveTerms(s.Terms, nil)
	if len(all) < len(s.Terms) {
		return
	}
	udp := false
	for i := range all {
		t, src := &all[i].term, all[i].src
		switch {
		case src.Kind == ast.ProtoName && src.Name == "udp" && !t.Not && !udp:
			udp = true
		case t.Field == field.DstPort && !t.Not && out.Ports == nil:
			out.Ports = slices.Clone(t.Ranges)
			if t.Set != nil {
				out.Ports = slices.Clone(t.Set.Ports)
			}
			if len(out.Ports) > policy.MaxServices {
				r.c.Errorf(src.Pos, "write one statement for some of them, and one for the "+
					"others.", "a proof has at most %d ranges of ports", policy.MaxServices)
			}
		default:
			r.c.Errorf(src.Pos, example, "%q cannot stand in front of \"reply\"", src.Text())
			return
		}
	}
	if !udp || out.Ports == nil {
		r.c.Errorf(s.Pos, example, "a proof is of clients of some ports over udp")
	}
}

// proveReply resolves what replies have to match.
func (r *resolver) proveReply(s *ast.Prove, out *policy.Prove) {
	all := r.resolveTerms(s.Reply, nil)
	for i := range all {
		t, src := &all[i].term, all[i].src
		switch {
		case t.Bytes == nil:
			r.c.Errorf(src.Pos, "write the bytes that tell such replies from others: reply "+
				"payload at 4 41.", "%q cannot stand behind \"reply\"", src.Text())
			return
		case i == policy.MaxReply:
			r.c.Errorf(src.Pos, "name the bytes that tell such replies from others.",
				"at most %d terms stand behind \"reply\"", policy.MaxReply)
		}
		if t.Not && len(t.Bytes.Value) > policy.MostDiffering {
			r.c.Errorf(src.Pos, "name the first of them.",
				"behind \"not\" at most %d bytes stand here", policy.MostDiffering)
		}
		out.Reply = append(out.Reply, policy.Reply{Bytes: t.Bytes, Not: t.Not})
	}
}

// proveOffset reads where n bytes are; -1 after an error.
func (r *resolver) proveOffset(w ast.Word, n int) int {
	at, p := literal.Offset(w.Text, n)
	if p.Found() {
		r.problem(w.Pos, p)
		return -1
	}
	return at
}

// checkProofs counts what cookies for A2S ask for among the proofs by echo: programs have room for
// so many together.
func (r *resolver) checkProofs() {
	i := slices.IndexFunc(r.resolved, func(s *policy.Rule) bool {
		return s.Cookie != nil && s.Cookie.Answers == action.A2SQueries
	})
	if i < 0 || len(r.pol.Proves) < policy.MaxProves {
		return
	}
	at := r.resolved[i].Pos
	end := at.Col + int32(len(action.Cookie.String()))
	r.c.Errorf(diag.Pos{Line: at.Line, Col: at.Col, EndCol: end},
		"remove a `prove`.", "beside a cookie for A2S a policy has at most %d \"prove\" statements",
		policy.MaxProves-1)
}
