package a2s

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// TestQueriesAreAsValveDescribesThem holds queries and answers to the bytes of Valve's page.
func TestQueriesAreAsValveDescribesThem(t *testing.T) {
	for want, got := range map[string][]byte{
		"ffffffff54536f7572636520456e67696e6520517565727900":         Query(Info),
		"ffffffff54536f7572636520456e67696e65205175657279000a0b0c0d": Query(Info, 0x0d0c0b0a),
		"ffffffff554ba1d522": Query(Player, 0x22d5a14b),
		"ffffffff564ba1d522": Query(Rules, 0x22d5a14b),
		"ffffffff410a0b0c0d": Answer(0x0d0c0b0a),
	} {
		if hex.EncodeToString(got) != want {
			t.Errorf("%x, want %s", got, want)
		}
	}
}

// TestNumbersComeBack: what an answer gives is what the query has, and nothing else is taken for a
// query or an answer.
func TestNumbersComeBack(t *testing.T) {
	const number = 0xfedcba98
	for _, of := range []byte{Info, Player, Rules} {
		q := Query(of, number)
		if n, ok := Echo(q); !ok || n != number || !IsQuery(q) {
			t.Errorf("%x: number %x, %v", q, n, ok)
		}
		for n := range q {
			if _, ok := Echo(q[:n]); ok {
				t.Errorf("%x has no whole number", q[:n])
			}
			if IsQuery(q[:n]) != (n >= 9) {
				t.Errorf("%x: a cookie answers it %v", q[:n], n < 9)
			}
		}
		if a := Answer(number); len(a) > len(q) || IsQuery(a) {
			t.Errorf("the answer %x to %x", a, q)
		}
	}
	if n, ok := Number(Answer(number)); !ok || n != number {
		t.Errorf("an answer gives %x, %v", n, ok)
	}
	for _, b := range [][]byte{nil, Query(Player, number), append(Answer(1), 0), Answer(1)[:8],
		bytes.Repeat([]byte{0xff}, 9)} {
		if _, ok := Number(b); ok {
			t.Errorf("%x is taken for an answer", b)
		}
	}
	if IsQuery(append(whole, 0x57, 0, 0, 0, 0)) || IsQuery(append(whole, 0x53, 0, 0, 0, 0)) {
		t.Error("other types are taken for queries")
	}
}
