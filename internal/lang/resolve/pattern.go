package resolve

import (
	"io"
	"strconv"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// maxSearches is the largest number of different searches that a policy may have: each is a
// function of the program, of which the kernel takes 256.
const maxSearches = 32

// maxStreams is the largest number of different searches of streams that a policy may have: each
// has a place of its own for a stream.
const maxStreams = 4

// MaxStream limits the bytes of a stream that are searched, and is those where a rule says nothing.
const MaxStream = 16 << 10

// search resolves what a term searches payloads for. Terms with the same text share it.
func (r *resolver) search(t *policy.Term, s *ast.Term) bool {
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
	if len(r.patterns) == maxSearches {
		r.c.Errorf(s.Pos, "search for what several rules look for by one list.",
			"a policy has at most %d different searches of payloads", maxSearches)
		return false
	}
	p := &policy.Pattern{AnyCase: s.Value.AnyCase, Text: text, Within: within}
	before, bad := r.c.Errors(), len(r.fileDiags)
	for i := range s.Value.Elems {
		e := &s.Value.Elems[i]
		if path, ok := strings.CutPrefix(e.Text, "file("); ok {
			path = strings.TrimSuffix(path, ")")
			r.findsOf(p, ast.Word{Text: path[1 : len(path)-1], Pos: e.Pos})
			continue
		}
		it, wrong := literal.Find(e.Text, p.AnyCase, &r.searching)
		r.problem(e.Pos, wrong)
		p.Items = append(p.Items, it)
	}
	if r.c.Errors() != before || len(r.fileDiags) != bad {
		return false
	}
	var err error
	if p.Machine, err = r.searching.Compile(p.Items, p.AnyCase); err != nil {
		r.problem(s.Value.Pos, literal.FindProblem("this list", err))
		return false
	}
	if within > 0 && !r.mayStream(s, p) {
		return false
	}
	r.patterns[key] = p
	t.Pattern = p
	return true
}

// within returns how many bytes of a stream a term searches, 0 of one that searches payloads.
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
			"of a stream the first 1 to %d bytes are searched, not %s", MaxStream,
			diag.Clip(w.Text))
		return 0, false
	}
	return n, true
}

// mayStream says whether streams may be searched for something, and counts it.
func (r *resolver) mayStream(s *ast.Term, p *policy.Pattern) bool {
	if p.Machine.AsksEnd() {
		r.c.Errorf(s.Value.Pos, "leave $ and \\b at the end out, or name the byte that follows.",
			"%s asks what follows, or whether anything does: a stream has no end that could be "+
				"waited for", diag.Clip(p.Text))
		return false
	}
	if r.streams++; r.streams > maxStreams {
		r.c.Errorf(s.Pos, "search for what several rules look for by one list.",
			"a policy has at most %d different searches of streams", maxStreams)
		return false
	}
	return true
}

// maxFinds is the largest size of a file of things to look for, in bytes.
const maxFinds = 16 << 20

// findsOf adds what stands in a file, one thing a line, as it is written in a policy.
func (r *resolver) findsOf(p *policy.Pattern, path ast.Word) {
	in := r.openFile(path, path.Text)
	if in == nil {
		return
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxFinds+1))
	switch {
	case err != nil:
		r.c.Errorf(path.Pos, "", "cannot read %q: %v", diag.Clip(path.Text), err)
		return
	case len(b) > maxFinds:
		r.c.Errorf(path.Pos, "name the file with what to look for, one thing a line.",
			"%q has more than %d MB", diag.Clip(path.Text), maxFinds>>20)
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
		it, wrong := literal.Find(text, p.AnyCase, &r.searching)
		if wrong.Found() {
			c.Errorf(diag.Pos{Line: number, Col: 1, EndCol: 2}, wrong.Hint, "%s", wrong.Message)
		}
		p.Items = append(p.Items, it)
	}
	if len(p.Items) == had {
		r.c.Errorf(path.Pos, "write one text, expression or row of bytes a line.",
			"nothing to look for stands in %q", diag.Clip(path.Text))
	}
	r.fileDiags = append(r.fileDiags, c.Diagnostics(string(b))...)
}
