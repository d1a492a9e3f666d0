package ast

// Prove is `prove "NAME" MATCH reply [payload at N BYTES ...] echo N bytes at N in request at N,
// ...`: which bytes of a reply a client has to send back, to prove that it has received it.
type Prove struct {
	Common
	Name  Word
	Terms []Term // of the service, as its clients address it
	Reply []Term // that replies have to match, beside
	Bytes Word   // how many are sent back
	At    Word   // where replies have them
	In    []Word // where packets of clients may have them
}

func (p *printer) prove(s *Prove) {
	p.words("prove", Quoted(s.Name))
	p.terms(s.Terms)
	p.words("reply")
	p.terms(s.Reply)
	p.words("echo", s.Bytes.Text, "bytes at", s.At.Text, "in request at")
	for i, w := range s.In {
		if i > 0 {
			p.b = append(p.b, ',')
		}
		p.words(w.Text)
	}
}

// Text returns the statement in one line, as it is printed.
func (s *Prove) Text() string {
	var p printer
	p.prove(s)
	return string(p.b)
}
