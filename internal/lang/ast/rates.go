package ast

// Rates are those of a limit by prefix: `rate to { PREFIX RATE [burst N], ... }`, or `from` for
// those of sources. They may stand in a file.
type Rates struct {
	Side Word   // to or from
	List *Value // of elements such as `192.0.2.0/24 1kpps burst 2000`; nil with Path
	Path *Word
}

func (p *printer) rates(r *Rates) {
	p.words("rate", r.Side.Text)
	if r.List != nil {
		p.value(r.List)
		return
	}
	p.words("file(" + Quoted(*r.Path) + ")")
}
