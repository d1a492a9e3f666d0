package event

import (
	"net/netip"
	"time"

	"levee/internal/lang/logline"
	"levee/internal/lang/policy"
)

// lines judges lines of text.
type lines struct {
	patterns logline.Patterns
	except   logline.Patterns // what they match besides, and is no attempt
	programs []string
	where    []policy.Condition // on the program
	header   logline.Header
}

func newLines(s *policy.Source) *lines {
	l := &lines{programs: s.Programs, where: s.Where}
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
func (l *lines) Match(line []byte, now time.Time) (netip.Addr, Result, error) {
	var message []byte
	l.header, message = logline.Split(line, now)
	if len(l.programs) > 0 && !logline.OneOf(l.programs, l.header.Program) {
		return netip.Addr{}, Other, nil
	}
	for _, c := range l.where {
		if l.header.Program == "" || logline.OneOf(c.Texts, l.header.Program) == c.Not {
			return netip.Addr{}, Other, nil
		}
	}
	switch a, r := l.patterns.Match(message); r {
	case logline.Matched:
		if _, r := l.except.Match(message); r != logline.Other {
			return netip.Addr{}, Other, nil
		}
		return a, Matched, nil
	case logline.Ambiguous:
		return a, Ambiguous, nil
	}
	return netip.Addr{}, Other, nil
}

// Times is how often what was matched has happened, as far as the line says so.
func (l *lines) Times() int { return l.header.Times }

// When is when the line was written, as far as it says so.
func (l *lines) When(now time.Time) time.Time {
	if l.header.Time.IsZero() {
		return now
	}
	return l.header.Time
}
