package ast

import "levee/internal/lang/action"

// Rule is a statement that begins with the word of an action.
type Rule struct {
	Common
	Out     bool // `out` stands before it: it is about what leaves
	Action  string
	Terms   []Term          // as written
	Limit   *Limit          // of a limit
	Sample  *Word           // of a log: `1/100`
	Answers action.Answered // of a cookie
	After   *Word           // of a greylist: `100ms`
	Within  *Word           // of a greylist: `10s`
	Above   *Word           // of a cookie or a greylist: `10kpps`
	Ring    *Word           // of a redirect: its name
	Else    *Word           // of a redirect: the verdict while nobody reads the ring
	Label   *Word
}

func (p *printer) rule(r *Rule) {
	if r.Out {
		p.words("out")
	}
	p.words(r.Action)
	if r.Action == action.Track.String() {
		p.words("track")
	}
	if word := r.Answers.Info().Word; word != "" {
		p.words(word)
	}
	p.terms(r.Terms)
	if r.Limit != nil {
		p.limit(r.Limit)
	}
	if r.Sample != nil {
		p.words("sample", r.Sample.Text)
	}
	if r.After != nil {
		p.words("after", r.After.Text)
	}
	if r.Within != nil {
		p.words("within", r.Within.Text)
	}
	if r.Above != nil {
		p.words("above", r.Above.Text)
	}
	if r.Ring != nil {
		p.words("to", "ring", Quoted(*r.Ring))
	}
	if r.Else != nil {
		p.words("else", r.Else.Text)
	}
	if r.Label != nil {
		p.words("as", Quoted(*r.Label))
	}
}
