package policy

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/field"
)

// Prove is one `prove` statement: bytes of a reply over UDP that its client sends back. Who has
// them has received the reply, and so sends from his own address and port.
type Prove struct {
	Name  string
	Ports []field.Range // of the service: sorted, disjoint, not adjacent
	Reply []Reply       // that replies have to match
	Bytes int           // how many come back, LeastEcho to MostEcho
	At    int           // where replies have them, behind the UDP header
	In    []int         // where packets of clients may have them
	Text  string        // canonical
	Pos   Pos
}

// Reply is what a reply has to have, or must not have, at a place.
type Reply struct {
	*Bytes
	Not bool // it has other bytes there
}

// MostDiffering is how many bytes a reply may be asked to have none of.
const MostDiffering = 8

// Bounds of `prove`. What fewer bytes hold can be guessed: see docs/reference/language.md "Proof by
// echo".
const (
	MaxProves   = 16
	LeastEcho   = 4
	MostEcho    = 20
	MaxEchoes   = 4 // places in packets of clients
	MaxServices = 8 // ranges of ports
	MaxReply    = 4 // terms that replies have to match
)

// prove resolves a `prove` statement.
func (r *resolver) prove(s *ast.Prove) {
	errors := r.c.Errors()
	out := &Prove{Name: strings.Clone(s.Name.Text), Text: s.Text(), Pos: r.pos(s.Pos)}
	r.proveName(s.Name)
	r.proveService(s, out)
	r.proveReply(s, out)
	if n, err := strconv.Atoi(s.Bytes.Text); err != nil || n < LeastEcho || n > MostEcho {
		r.c.Errorf(s.Bytes.Pos, "fewer can be guessed; of a longer value name a part.",
			"%s bytes: a proof is %d to %d bytes", short(s.Bytes.Text), LeastEcho, MostEcho)
	} else {
		out.Bytes = n
	}
	out.At = r.proveOffset(s.At, out.Bytes)
	for i, w := range s.In {
		at := r.proveOffset(w, out.Bytes)
		switch {
		case i == MaxEchoes:
			r.c.Errorf(w.Pos, "write one statement for some of them, and one for the others.",
				"clients may send the bytes back in %d places at most", MaxEchoes)
		case slices.Contains(out.In, at):
			r.c.Errorf(w.Pos, "remove one of the two.", "the place %d is given twice", at)
		}
		out.In = append(out.In, at)
	}
	if r.c.Errors() == errors {
		if free := out.freeBits(); free < 8*LeastEcho {
			r.c.Errorf(s.At.Pos, "name bytes that are other ones for each client.",
				"who never saw a reply can guess these bytes: \"reply\" leaves %d bits of them "+
					"open, and a proof takes %d", free, 8*LeastEcho)
		}
	}
	if len(r.pol.Proves) == MaxProves {
		r.c.Errorf(s.Pos, "", "a policy has at most %d \"prove\" statements", MaxProves)
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
	for _, p := range r.pol.Proves {
		if p.Name == w.Text {
			r.c.Errorf(w.Pos, "choose another name.", "line %d has the name %q already",
				p.Pos.Line, short(w.Text))
		}
	}
}

// proveService resolves which service replies.
func (r *resolver) proveService(s *ast.Prove, out *Prove) {
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
			if len(out.Ports) > MaxServices {
				r.c.Errorf(src.Pos, "write one statement for some of them, and one for the "+
					"others.", "a proof has at most %d ranges of ports", MaxServices)
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
func (r *resolver) proveReply(s *ast.Prove, out *Prove) {
	all := r.resolveTerms(s.Reply, nil)
	for i := range all {
		t, src := &all[i].term, all[i].src
		switch {
		case t.Bytes == nil:
			r.c.Errorf(src.Pos, "write the bytes that tell such replies from others: reply "+
				"payload at 4 41.", "%q cannot stand behind \"reply\"", src.Text())
			return
		case i == MaxReply:
			r.c.Errorf(src.Pos, "name the bytes that tell such replies from others.",
				"at most %d terms stand behind \"reply\"", MaxReply)
		}
		if t.Not && len(t.Bytes.Value) > MostDiffering {
			r.c.Errorf(src.Pos, "name the first of them.",
				"behind \"not\" at most %d bytes stand here", MostDiffering)
		}
		out.Reply = append(out.Reply, Reply{t.Bytes, t.Not})
	}
}

// proveOffset reads where n bytes are.
func (r *resolver) proveOffset(w ast.Word, n int) int {
	at, err := strconv.Atoi(w.Text)
	if err != nil || at+n > maxPayload {
		r.c.Errorf(w.Pos, "count from the end of the UDP header; the bytes may reach to "+
			strconv.Itoa(maxPayload)+".", "offset %s is too large", short(w.Text))
	}
	return at
}

// freeBits is how many bits of the bytes that come back the reply's terms leave open.
func (p *Prove) freeBits() int {
	known := make([]byte, p.Bytes)
	for _, b := range p.Reply {
		if b.Not {
			continue
		}
		for i, m := range b.Mask {
			if at := b.At + i - p.At; at >= 0 && at < len(known) {
				known[at] |= m
			}
		}
	}
	free := 8 * p.Bytes
	for _, k := range known {
		free -= bits.OnesCount8(k)
	}
	return free
}
