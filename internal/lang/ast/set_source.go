package ast

// Names is `names("NAME", ..., stale DURATION)`: the addresses that DNS gives names.
type Names struct {
	Names []Word
	Stale *Word
}

// MMDB is `mmdb("PATH", country DE)` or `mmdb("PATH", as { 64500, 64501 })`: networks by what a
// file says about them.
type MMDB struct {
	Path   Word
	What   Word // country or as
	Values *Value
}

func (p *printer) names(n *Names) {
	text := "names("
	for i, w := range n.Names {
		if i > 0 {
			text += ", "
		}
		text += Quoted(w)
	}
	if n.Stale != nil {
		text += ", stale " + n.Stale.Text
	}
	p.words(text + ")")
}

func (p *printer) mmdb(m *MMDB) {
	p.words("mmdb("+Quoted(m.Path)+",", m.What.Text)
	p.value(m.Values)
	p.b = append(p.b, ')')
}
