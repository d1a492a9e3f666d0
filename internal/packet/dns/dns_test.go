package dns

import (
	"bytes"
	"strings"
	"testing"

	"levee/internal/lang/dnsname"
)

func name(t testing.TB, text string) dnsname.Name {
	t.Helper()
	p, err := dnsname.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p.Name
}

func TestAMessageIsReadAsItWasMade(t *testing.T) {
	for _, m := range []Message{
		{Header: true, Question: true, Name: name(t, "www.example.com"), Type: 28},
		{Header: true, Question: true, Name: name(t, "."), Type: 2, EDNS: true, Size: 4096},
		{Header: true, Response: true, Question: true, Name: name(t, "x"), Type: 1},
		{Header: true, Response: true, Malformed: true, Question: true, Name: name(t, "x"),
			Type: 1},
		{Header: true, Opcode: 4, Question: true, Name: name(t, "x"), Type: 6},
		{Header: true, EDNS: true, Size: 1232},
		{Header: true},
	} {
		if got := Read(Query(m), false); got != m {
			t.Errorf("made of %+v, read as %+v", m, got)
		}
	}
}

func TestWhatNoResolverSendsIsMalformed(t *testing.T) {
	query := Query(Message{Question: true, Name: name(t, "www.example.com"), Type: 1})
	edns := Query(Message{Question: true, Name: name(t, "x"), Type: 1, EDNS: true, Size: 512})
	with := func(b []byte, at int, v byte) []byte {
		b = append([]byte(nil), b...)
		b[at] = v
		return b
	}
	long := strings.Repeat("x", 63)
	most := Query(Message{Question: true, Type: 1,
		Name: name(t, strings.Join([]string{long, long, long, long[:61]}, "."))})
	for what, b := range map[string][]byte{
		"nothing": nil, "half a header": query[:11], "two questions": with(query, 5, 2),
		"a pointer": with(query, 12, 0xc0), "a label of an unknown kind": with(query, 12, 0x41),
		"a name without an end": query[:20], "no type": query[:len(query)-3],
		"trailing bytes":           append(query[:len(query):len(query)], 0),
		"an OPT record too few":    with(query, 11, 1),
		"half an OPT record":       edns[:len(edns)-1],
		"bytes behind OPT":         append(edns[:len(edns):len(edns)], 0),
		"options longer than that": with(edns, len(edns)-1, 1),
		"a name of 256 bytes":      with(most, len(most)-5-62, 62),
	} {
		if m := Read(b, false); !m.Malformed {
			t.Errorf("%s: %+v", what, m)
		}
	}
	for what, b := range map[string][]byte{
		"a query": query, "with EDNS": edns, "a name of 255 bytes": most,
		"a signed one":              append(with(query, 11, 1), 1, 'k', 0, 0, 250),
		"a response with an answer": append(with(with(query, 2, 0x80), 7, 1), 0xc0, 12, 0, 1),
	} {
		if m := Read(b, false); m.Malformed {
			t.Errorf("%s is malformed: %+v", what, m)
		}
	}
	if !Read(query, true).Malformed || Read(with(query, 2, 0x80), true).Malformed {
		t.Error("a query in fragments is malformed, a response is not")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(Query(Message{Question: true, Name: name(f, "www.example.com"), EDNS: true}), false)
	f.Add([]byte{11: 0, 12: 0xc0, 13: 12}, true)
	f.Fuzz(func(t *testing.T, b []byte, cut bool) {
		m := Read(b, cut)
		if m.Question && (len(m.Name)+1 > dnsname.MaxName || m.Name.Labels() > dnsname.MaxLabels) {
			t.Errorf("%x has a name of %d bytes", b, len(m.Name))
		}
		if m.Question && !m.Header || m.EDNS && m.Response {
			t.Errorf("%x is %+v", b, m)
		}
	})
}

// An answer must not be longer than its query, or forged sources have it make a flood larger.
func TestAnAnswerIsNoLongerThanItsQuery(t *testing.T) {
	for _, m := range []Message{
		{Question: true},
		{Question: true, Name: "\x07example\x03com", Type: 28},
		{Question: true, Name: "\x07eXample\x03com", Type: 255, EDNS: true, Size: 4096},
	} {
		query := Query(m)
		query[3] |= 0x30 // AD, CD
		answer := Truncated(query)
		a := Read(answer, false)
		if len(answer) > len(query) || !a.Response || !a.Question || a.Malformed ||
			a.Name != dnsname.Lower([]byte(m.Name)) || a.Type != m.Type {
			t.Errorf("%x is answered by %x: %+v", query, answer, a)
		}
		if answer[2] != 0x83 || answer[3] != 0x10 || !bytes.Equal(answer[:2], query[:2]) {
			t.Errorf("%x is answered by %x", query, answer)
		}
	}
}
