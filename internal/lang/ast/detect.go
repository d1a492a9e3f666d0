package ast

// Detect is `detect "NAME" [to ADDRESSES] [above RATE, ...] observe|propose|enforce
// [collateral PART] [keep ADDRESSES] [lease DURATION] [quiet DURATION]`.
type Detect struct {
	Common
	Name       Word
	To         *Value
	Above      []Word
	Mode       Word
	Collateral *Word
	Keep       *Value
	Lease      *Word
	Quiet      *Word
}

func (p *printer) detect(s *Detect) {
	p.words("detect", Quoted(s.Name))
	if s.To != nil {
		p.words("to")
		p.value(s.To)
	}
	for i, w := range s.Above {
		if i == 0 {
			p.words("above")
		} else {
			p.b = append(p.b, ',')
		}
		p.words(w.Text)
	}
	p.words(s.Mode.Text)
	if s.Collateral != nil {
		p.words("collateral", s.Collateral.Text)
	}
	if s.Keep != nil {
		p.words("keep")
		p.value(s.Keep)
	}
	if s.Lease != nil {
		p.words("lease", s.Lease.Text)
	}
	if s.Quiet != nil {
		p.words("quiet", s.Quiet.Text)
	}
}

// Text returns a detector in one line, as it is printed.
func (s *Detect) Text() string {
	var p printer
	p.detect(s)
	return string(p.b)
}

// KeepText returns what stands behind `keep` in one line, or "".
func (s *Detect) KeepText() string {
	if s.Keep == nil {
		return ""
	}
	var p printer
	p.value(s.Keep)
	return string(p.b)
}
