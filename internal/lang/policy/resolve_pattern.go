package policy

import (
	"encoding/hex"
	"errors"
	"io"
	"regexp/syntax"
	"strconv"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/pattern"
)

// MaxPatterns is how many different searches a policy may have: each is a function of the program,
// of which the kernel takes 256.
const MaxPatterns = 32

// MaxFind is how many bytes a text that is searched for may have.
const MaxFind = 256

// Pattern is what a term searches payloads for: any of the items.
type Pattern struct {
	Items   []pattern.Item
	AnyCase bool             // letters of ASCII are found in either case
	Machine *pattern.Machine // that finds them
	Text    string           // as it is written in a policy
	Within  int              // how many bytes of a stream are searched; 0 of a payload
}

// MaxStreams is how many different searches of streams a policy may have: each has a place of its
// own for a stream.
const MaxStreams = 4

// MaxStream is how many bytes of a stream are searched at most, and where a rule says nothing.
const MaxStream = 16 << 10

// search resolves what a term searches payloads for. Terms with the same text share it.
func (r *resolver) search(t *Term, s *ast.Term) bool {
	text := strings.TrimPrefix(s.Whole(), s.Words()+" ")
	within, ok := r.within(s)
	if !ok {
		return false
	}
	if t.Unknown = s.Value.Unknown; t.Unknown {
		text = strings.TrimSuffix(text, " or unknown")
	}
	key := text
	if within > 0 {
		key = "stream contains " + text
	}
	if t.Pattern = r.patterns[key]; t.Pattern != nil {
		return true
	}
	p := &Pattern{AnyCase: s.Value.AnyCase, Text: text, Within: within}
	before, bad := r.c.Errors(), len(r.fileDiags)
	for i := range s.Value.Elems {
		e := &s.Value.Elems[i]
		if path, ok := strings.CutPrefix(e.Text, "file("); ok {
			path = strings.TrimSuffix(path, ")")
			r.findsOf(p, ast.Word{Text: path[1 : len(path)-1], Pos: e.Pos})
			continue
		}
		it, wrong := readFind(e.Text, p.AnyCase)
		if wrong.found() {
			r.problem(e.Pos, wrong)
		}
		p.Items = append(p.Items, it)
	}
	if r.c.Errors() != before || len(r.fileDiags) != bad {
		return false
	}
	var err error
	if p.Machine, err = pattern.Compile(p.Items, p.AnyCase); err != nil {
		r.problem(s.Value.Pos, notFound("this list", err))
		return false
	}
	if len(r.patterns) == MaxPatterns {
		r.c.Errorf(s.Pos, "search for what several rules look for by one list.",
			"a policy has at most %d different searches of payloads", MaxPatterns)
		return false
	}
	if within > 0 && !r.mayStream(s, p) {
		return false
	}
	r.patterns[key] = p
	t.Pattern = p
	return true
}

// within is how many bytes of a stream a term searches, 0 of one that searches payloads.
func (r *resolver) within(s *ast.Term) (n int, ok bool) {
	w := s.Value.Within
	switch {
	case s.Field != field.Stream:
		return 0, true
	case w == nil:
		return MaxStream, true
	}
	n, err := strconv.Atoi(w.Text)
	if err != nil || n < 1 || n > MaxStream {
		r.c.Errorf(w.Pos, "leave it out for all of these.",
			"of a stream the first 1 to %d bytes are searched, not %s", MaxStream, short(w.Text))
		return 0, false
	}
	return n, true
}

// mayStream says whether streams may be searched for something, and counts it.
func (r *resolver) mayStream(s *ast.Term, p *Pattern) bool {
	if p.Machine.AsksEnd() {
		r.c.Errorf(s.Value.Pos, "leave $ and \\b at the end out, or name the byte that follows.",
			"%s asks what follows, or whether anything does: a stream has no end that could be "+
				"waited for", short(p.Text))
		return false
	}
	if r.streams++; r.streams > MaxStreams {
		r.c.Errorf(s.Pos, "search for what several rules look for by one list.",
			"a policy has at most %d different searches of streams", MaxStreams)
		return false
	}
	return true
}

// maxFinds is how many bytes a file of things to look for may have.
const maxFinds = 16 << 20

// findsOf adds what stands in a file, one thing a line, as it is written in a policy.
func (r *resolver) findsOf(p *Pattern, path ast.Word) {
	in := r.openFile(path, path.Text)
	if in == nil {
		return
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxFinds+1))
	switch {
	case err != nil:
		r.c.Errorf(path.Pos, "", "cannot read %q: %v", short(path.Text), err)
		return
	case len(b) > maxFinds:
		r.c.Errorf(path.Pos, "name the file with what to look for, one thing a line.",
			"%q has more than %d MB", short(path.Text), maxFinds>>20)
		return
	}
	c := &diag.Collector{File: path.Text}
	had, number := len(p.Items), int32(0)
	for line := range strings.Lines(string(b)) {
		number++
		text := strings.TrimSpace(line)
		if text == "" || text[0] == '#' {
			continue
		}
		it, wrong := readFind(text, p.AnyCase)
		if wrong.found() {
			c.Errorf(diag.Pos{Line: number, Col: 1, EndCol: 2}, wrong.hint, "%s", wrong.msg)
		}
		p.Items = append(p.Items, it)
	}
	if len(p.Items) == had {
		r.c.Errorf(path.Pos, "write one text, expression or row of bytes a line.",
			"nothing to look for stands in %q", short(path.Text))
	}
	r.fileDiags = append(r.fileDiags, c.Diagnostics(string(b))...)
}

// readFind reads one thing to look for, and tries whether it can be looked for by itself.
func readFind(text string, anyCase bool) (pattern.Item, problem) {
	it, wrong := parseFind(text)
	if !wrong.found() && len(it.Text) == 0 {
		_, err := pattern.Compile([]pattern.Item{it}, anyCase)
		wrong = notFound(text, err)
	}
	return it, wrong
}

// parseFind reads a text in quotes, an expression between slashes, or bytes in hexadecimal.
func parseFind(text string) (it pattern.Item, p problem) {
	open := text[0] == '"' || text[0] == '/' // of a line in a file there may be no end
	switch {
	case open && (len(text) < 2 || text[len(text)-1] != text[0]):
		return it, problemf("end it with the character that it begins with.", "%s is not closed",
			short(text))
	case text[0] == '"':
		it.Text = []byte(text[1 : len(text)-1])
	case text[0] == '/':
		it.Expression = strings.ReplaceAll(text[1:len(text)-1], `\/`, "/")
		for _, c := range it.Expression {
			if c >= 0x80 {
				return it, problemf("write its bytes: "+bytesOf(string(c))+".",
					"%q in an expression, which is about bytes", c)
			}
		}
	default:
		b, err := hex.DecodeString(text)
		if err != nil {
			return it, problemf("write a text in quotes, \"evil\", an expression, /ev.l/, or two "+
				"hexadecimal digits for each byte, 6576696c.", "%q is not bytes in hexadecimal",
				short(text))
		}
		it.Text = b
	}
	if len(it.Text) > MaxFind {
		return it, problemf("search for the bytes that tell the traffic apart.",
			"%d bytes: at most %d are searched for", len(it.Text), MaxFind)
	}
	return it, p
}

// bytesOf writes a text as the bytes that an expression asks for.
func bytesOf(s string) string {
	digits := hex.EncodeToString([]byte(s))
	var b strings.Builder
	for i := 0; i < len(digits); i += 2 {
		b.WriteString(`\x` + digits[i:i+2])
	}
	return b.String()
}

// notFound says why something cannot be searched for.
func notFound(text string, err error) problem {
	var large *pattern.LargeError
	var wrong *syntax.Error
	switch {
	case err == nil:
		return problem{}
	case errors.Is(err, pattern.ErrEmpty):
		return problemf("leave the term out, or say what the payload has to contain.",
			"%s is found in every payload", short(text))
	case errors.Is(err, pattern.ErrNever):
		return problemf("^ is the beginning of the payload, and $ its end.",
			"%s is found in no payload", short(text))
	case errors.As(err, &large):
		return problemf("bound what repeats, write [^ ]* instead of .* and {0,9} instead of "+
			"{0,999}, or split it over several rules.",
			"%s takes more than %d states, and a search has a table of %d KB at most", short(text),
			large.States, pattern.MaxTable>>10)
	case errors.As(err, &wrong):
		return problemf("expressions are those of RE2; what has a meaning there is written with a "+
			"backslash.", "%s is no expression: %s %s", short(text), wrong.Code, short(wrong.Expr))
	}
	return problemf("", "%s: %v", short(text), err)
}
