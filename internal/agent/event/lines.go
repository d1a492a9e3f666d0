package event

import (
	"errors"
	"time"

	"levee/internal/lang/logline"
	"levee/internal/lang/policy"
)

// program is a condition on the program that has written a line.
type program struct {
	of    *policy.Condition
	texts *texts
}

func (p *program) holds(name string) bool {
	is, known := p.texts.have([]byte(name))
	if p.of.How == policy.Equals && !p.of.AnyCase {
		is = logline.OneOf(p.of.Texts, name)
	}
	return name != "" && known && is != p.of.Not
}

// lines judges lines of text.
type lines struct {
	patterns logline.Patterns
	except   logline.Patterns // what they match besides, and is no attempt
	programs []string
	where    []program
	header   logline.Header
}

func newLines(s *policy.Source, feeds feeds) *lines {
	l := &lines{programs: s.Programs}
	for i := range s.Where {
		l.where = append(l.where, program{&s.Where[i], newTexts(&s.Where[i], s.Format, feeds)})
	}
	l.patterns, l.except = compile(s.Patterns), compile(s.Except)
	return l
}

// compile prepares patterns that the policy has compiled before.
func compile(texts []string) (out logline.Patterns) {
	for _, text := range texts {
		p, err := logline.Compile(text)
		if err != nil {
			panic(err)
		}
		out = append(out, p)
	}
	return out
}

// Match judges one line.
func (l *lines) Match(line []byte, now time.Time) (subject, Result, error) {
	var message []byte
	l.header, message = logline.Split(line, now)
	if len(l.programs) > 0 && !logline.OneOf(l.programs, l.header.Program) {
		return subject{}, Other, nil
	}
	for i := range l.where {
		if !l.where[i].holds(l.header.Program) {
			return subject{}, Other, nil
		}
	}
	switch a, r := l.patterns.Match(message); r {
	case logline.Matched:
		if _, r := l.except.Match(message); r != logline.Other {
			return subject{}, Other, nil
		}
		return subject{addr: a}, Matched, nil
	case logline.Ambiguous:
		return subject{addr: a}, Ambiguous, nil
	}
	if len(l.programs)+len(l.where) == 0 {
		return subject{}, Other, nil // a log of all that comes, most of it as it should
	}
	return subject{}, Unmatched, nil
}

// Trouble is about lists.
func (l *lines) Trouble() error {
	var errs []error
	for i := range l.where {
		errs = append(errs, l.where[i].texts.trouble())
	}
	return errors.Join(errs...)
}

// Times returns how often what was matched has happened, as far as the line says so.
func (l *lines) Times() int { return l.header.Times }

// When returns the time of the line, as far as it says one.
func (l *lines) When() time.Time { return l.header.Time }
