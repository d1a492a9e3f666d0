package ast

// Profile is the head of a file that policies use: `profile NAME VERSION { ... }`.
type Profile struct {
	Common
	Name    Word
	Version Word
	Lines   []ProfileLine
	End     []Comment // before the closing brace
}

// ProfileLine is one line of a head: `about TEXT`, or `parameter NAME TYPE VALUE TEXT`.
type ProfileLine struct {
	Comments
	Word  Word   // of ProfileWords
	Name  Word   // of a parameter, as Type and Value
	Type  Word   // of ParameterTypes
	Value *Value // that it has where a policy does not say
	Text  Word
}

// IsProfile tells whether a file begins with the head of a profile.
func IsProfile(f *File) bool {
	if len(f.Stmts) == 0 {
		return false
	}
	_, is := f.Stmts[0].(*Profile)
	return is
}

// layoutProfile prints a head, one line for each of its lines.
func layoutProfile(s *Profile) string {
	var p printer
	p.line("profile ", s.Name.Text, " ", s.Version.Text, " {")
	for i := range s.Lines {
		l := &s.Lines[i]
		c := l.Comments
		if i == 0 {
			c = dropFirstBlank(c)
		}
		p.lead(indent, &c)
		var lists []*Value
		if l.Value != nil && l.Value.List {
			lists = []*Value{l.Value}
		}
		text := fit(indent, lists, func(pr *printer) { pr.profileLine(l) })
		if l.Trail != "" {
			text += " " + l.Trail
		}
		p.line(indent, text)
	}
	p.comments(indent, s.End)
	return string(append(p.b, '}'))
}

func (p *printer) profileLine(l *ProfileLine) {
	p.words(l.Word.Text)
	if l.Value != nil {
		p.words(l.Name.Text, l.Type.Text)
		p.value(l.Value)
	}
	p.words(Quoted(l.Text))
}
