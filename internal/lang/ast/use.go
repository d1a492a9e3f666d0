package ast

import (
	"fmt"

	"levee/internal/lang/diag"
)

// Use is `use NAME [VERSION] { PARAMETER VALUE } [as "NAME"]`: the statements of a profile stand
// here, with its parameters filled in.
type Use struct {
	Common
	Name    Word // of a profile that levee has
	Path    *Word
	Version *Word
	Args    []Argument
	As      *Word
}

// Argument is the value of a parameter.
type Argument struct {
	Name  Word
	Value *Value
}

func (p *printer) use(s *Use) {
	name := s.Name.Text
	if s.Path != nil {
		name = Quoted(*s.Path)
	}
	p.words("use", name)
	if s.Version != nil {
		p.words(s.Version.Text)
	}
	for _, a := range s.Args {
		p.words(a.Name.Text)
		p.value(a.Value)
	}
	if s.As != nil {
		p.words("as", Quoted(*s.As))
	}
}

// Title returns what the profile is called where it is used.
func (s *Use) Title() string {
	if s.Path != nil {
		return s.Path.Text
	}
	return s.Name.Text
}

// String returns a value as it is printed.
func (v *Value) String() string {
	var p printer
	p.value(v)
	return string(p.b)
}

// Part is a file whose statements stand in the place of one statement of another file.
type Part struct {
	Title string // of the file, for diagnostics
	Use   *Use
	Src   string
}

// Used says behind a message where the part is used.
func (p *Part) Used(file string) string {
	return fmt.Sprintf(" (used in %s:%d)", file, p.Use.Pos.Line)
}

// Lines of a part have numbers behind those of any file.
const (
	PartLines = 1 << 19 // a part has fewer
	firstPart = 1 << 27 // and so many has no file
)

// PartBase returns the number in front of that of the first line of a part.
func PartBase(part int) int32 { return int32(firstPart + part*PartLines) }

// Own returns a place in the file itself: of what is in a part, the place where that is used.
func (f *File) Own(at diag.Pos) diag.Pos {
	if at.Line < firstPart {
		return at
	}
	return f.Parts[(at.Line-firstPart)/PartLines].Use.Pos
}

// Diagnostics returns the collected diagnostics of f with the source lines that they are about.
func (f *File) Diagnostics(c *diag.Collector) diag.Diagnostics {
	var of diag.Diagnostics
	for i := range f.Parts {
		p, from := &f.Parts[i], PartBase(i)
		ds := c.Part(p.Title, from, from+PartLines).Diagnostics(p.Src)
		for j := range ds {
			ds[j].Message += p.Used(f.Name)
		}
		of = append(of, ds...)
	}
	return append(c.Diagnostics(f.Src), of...)
}
