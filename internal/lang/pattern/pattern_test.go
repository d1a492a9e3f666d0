package pattern

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// runes is a payload as package regexp reads it: the character of each byte's number.
func runes(b []byte) []byte {
	var out strings.Builder
	for _, c := range b {
		out.WriteRune(rune(c))
	}
	return []byte(out.String())
}

func compile(t *testing.T, anyCase bool, items ...Item) *Machine {
	t.Helper()
	m, err := Compile(items, anyCase)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func text(s string) Item { return Item{Text: []byte(s)} }

func TestTextsAreFoundWhereverTheyStand(t *testing.T) {
	m := compile(t, false, text("he"), text("she"), text("hers"), text("xyxyz"))
	for in, want := range map[string]bool{
		"": false, "h": false, "he": true, "ushe": true, "xyxyxyz": true, "xyxyxy": false,
		"hxe": false, "HE": false, "\x00\xffhe": true,
	} {
		if got := m.Match([]byte(in)); got != want {
			t.Errorf("%q: %v", in, got)
		}
	}
}

// drawExpression is an expression of few letters, so that payloads of few letters match it often.
func drawExpression(r *rand.Rand, depth int) string {
	leaves := []string{"a", "b", "c", ".", "[ab]", "[^a]", `\x00`, `\xff`, "\\n", `\w`, `\W`, `\d`,
		`\s`, "k", "(?i:k)", `[\x80-\xff]`}
	if depth == 0 || r.IntN(3) == 0 {
		return leaves[r.IntN(len(leaves))]
	}
	sub := func() string { return drawExpression(r, depth-1) }
	switch r.IntN(14) {
	case 0, 1, 2, 3, 4:
		return sub() + sub()
	case 5, 6:
		return "(?:" + sub() + "|" + sub() + ")"
	case 7:
		return "(?:" + sub() + ")*"
	case 8:
		return "(?:" + sub() + ")+?"
	case 9:
		return "(" + sub() + ")?"
	case 10:
		return fmt.Sprintf("(?:%s){%d,%d}", sub(), r.IntN(2), 1+r.IntN(3))
	case 11:
		return []string{"^", "(?m:^)", "\\A"}[r.IntN(3)] + sub()
	case 12:
		return sub() + []string{"$", "(?m:$)", "\\z"}[r.IntN(3)]
	}
	return sub() + []string{`\b`, `\B`}[r.IntN(2)] + sub()
}

func drawPayload(r *rand.Rand) []byte {
	const letters = "aabbcckK\x00\xff\n_-1 \xe9\xc9"
	b := make([]byte, r.IntN(14))
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return b
}

// The automaton of an expression and package regexp know nothing of one another.
func TestExpressionsFindWhatRegexpFinds(t *testing.T) {
	for seed := range uint64(10_000) {
		r := rand.New(rand.NewPCG(seed, 40))
		expr, anyCase := drawExpression(r, 3), r.IntN(4) == 0
		m, err := Compile([]Item{{Expression: expr}}, anyCase)
		if anyCase {
			expr = "(?i)" + expr
		}
		re := regexp.MustCompile(expr)
		if errors.Is(err, ErrEmpty) || errors.Is(err, ErrNever) {
			if b := drawPayload(r); re.Match(runes(b)) != errors.Is(err, ErrEmpty) {
				t.Fatalf("seed %d: %s: %v, but not %q", seed, expr, err, b)
			}
			continue
		}
		if e := m.Example(); !re.Match(runes(e)) {
			t.Fatalf("seed %d: %s does not match %q", seed, expr, e)
		}
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, expr, err)
		}
		for range 6 {
			b := drawPayload(r)
			want := re.Match(runes(b))
			if got := m.Match(b); got != want {
				t.Fatalf("seed %d: %s in %q: %v, and regexp says %v", seed, expr, b, got, want)
			}
			// In pieces the answer is the same.
			state := m.Start
			for rest := b; len(rest) > 0; {
				n := 1 + r.IntN(len(rest))
				state, rest = m.Run(state, rest[:n]), rest[n:]
			}
			if got := m.Found(state); got != want {
				t.Fatalf("seed %d: %s in %q in pieces: %v, want %v", seed, expr, b, got, want)
			}
		}
	}
}

func TestSetsFindWhatSearchingForEachFinds(t *testing.T) {
	for seed := range uint64(2_000) {
		r := rand.New(rand.NewPCG(seed, 41))
		anyCase := r.IntN(2) == 0
		var items []Item
		for range 1 + r.IntN(6) {
			b := drawPayload(r)
			items = append(items, Item{Text: append(b[:min(len(b), 4)], "abkK"[r.IntN(4)])})
		}
		m, err := Compile(items, anyCase)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		mixed, err := Compile(append(items, Item{Expression: "zz"}), anyCase)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for range 10 {
			b := drawPayload(r)
			want := false
			for _, it := range items {
				in, find := b, it.Text
				if anyCase {
					in, find = lower(in), lower(find)
				}
				want = want || bytes.Contains(in, find)
			}
			if got := m.Match(b); got != want {
				t.Fatalf("seed %d: %q, any case %v, in %q: %v", seed, items, anyCase, b, got)
			}
			if got := mixed.Match(b); got != want {
				t.Fatalf("seed %d: %q beside an expression in %q: %v", seed, items, b, got)
			}
		}
	}
}

// lower makes letters of ASCII small.
func lower(b []byte) []byte {
	out := bytes.Clone(b)
	for i, c := range out {
		if c >= 'A' && c <= 'Z' {
			out[i] += 'a' - 'A'
		}
	}
	return out
}

// What is found is known with its last byte, unless the next has to be looked at.
func TestAMatchIsKnownWithItsLastByte(t *testing.T) {
	for _, it := range []Item{text("abc"), {Expression: "ab+c"}, {Expression: `\babc`}} {
		m := compile(t, false, it)
		if s := m.Run(m.Start, []byte("-abc")); s != m.Accept {
			t.Errorf("%q: state %d, accepting is %d", it, s, m.Accept)
		}
	}
}

func TestWhatMatchesEverythingIsRefused(t *testing.T) {
	for _, expr := range []string{"", "a*", "a|", "^", "$", "(?:)"} {
		if _, err := Compile([]Item{{Expression: expr}}, false); !errors.Is(err, ErrEmpty) {
			t.Errorf("%q: %v", expr, err)
		}
	}
	for _, expr := range []string{"a^b", `[^\x00-\xff]`, `$a`, `\bB\b\B`} {
		if _, err := Compile([]Item{{Expression: expr}}, false); !errors.Is(err, ErrNever) {
			t.Errorf("%q: %v", expr, err)
		}
	}
	if _, err := Compile([]Item{{Text: []byte{}}}, false); !errors.Is(err, ErrEmpty) {
		t.Errorf("an empty text: %v", err)
	}
}

func TestWhatWouldBeTooLargeIsRefusedSoon(t *testing.T) {
	for _, expr := range []string{"a.{30}b", "[ab]*a[ab]{40}c"} {
		_, err := Compile([]Item{{Expression: expr}}, false)
		var large *LargeError
		if !errors.As(err, &large) || large.States == 0 {
			t.Errorf("%q: %v", expr, err)
		}
	}
}

// Every state, whatever is in a payload, leads to another within the table.
func TestNoStateLeadsOutOfTheTable(t *testing.T) {
	for _, m := range []*Machine{compile(t, false, text("abc"), text("\x00")),
		compile(t, true, Item{Expression: `^(?:GET|POST) /[^ ]* HTTP/1\.[01]$`})} {
		for s := m.Accept; s <= m.Last; s += m.Stride() {
			for at := s; at < s+m.Stride(); at += 4 {
				if to := m.at(at); to > m.Last || (to-m.Accept)%m.Stride() != 0 {
					t.Fatalf("at %d stands %d", at, to)
				}
			}
		}
		if int(m.Last)+Slack > len(m.Table) {
			t.Errorf("the table ends %d bytes behind its last row", len(m.Table)-int(m.Last))
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add("a+b", "xaab", true)
	f.Add(`^\x00\b$`, "\x00", false)
	f.Fuzz(func(t *testing.T, expr, payload string, anyCase bool) {
		m, err := Compile([]Item{{Expression: expr}}, anyCase)
		if anyCase {
			expr = "(?i)" + expr
		}
		re, bad := regexp.Compile(expr)
		var large *LargeError
		switch {
		case errors.As(err, &large):
			return
		case errors.Is(err, ErrEmpty), errors.Is(err, ErrNever):
			if bad == nil && re.Match(runes([]byte(payload))) != errors.Is(err, ErrEmpty) {
				t.Fatalf("%q: %v, but not %q", expr, err, payload)
			}
			return
		case (err == nil) != (bad == nil):
			t.Fatalf("%q: %v, and regexp says %v", expr, err, bad)
		case err == nil && m.Match([]byte(payload)) != re.Match(runes([]byte(payload))):
			t.Fatalf("%q in %q: %v", expr, payload, m.Match([]byte(payload)))
		}
	})
}
