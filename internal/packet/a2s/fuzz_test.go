package a2s

import "testing"

// FuzzRead: of what strangers send nothing is a query and an answer, the number of a query is one
// that it could have been made of, and no answer is longer than what it answers.
func FuzzRead(f *testing.F) {
	for _, of := range []byte{Info, Player, Rules} {
		f.Add(Query(of))
		f.Add(Query(of, 0x0d0c0b0a))
	}
	f.Add(Answer(0xfedcba98))
	f.Fuzz(func(t *testing.T, b []byte) {
		query := IsQuery(b)
		if _, ok := Number(b); ok && query {
			t.Errorf("%x is a query and an answer", b)
		}
		if query && len(Answer(0)) > len(b) {
			t.Errorf("the answer to %x is longer", b)
		}
		number, ok := Echo(b)
		if !ok {
			return
		}
		if again, ok := Echo(Query(b[4], number)); !query || !ok || again != number {
			t.Errorf("%x has number %x, of a query with it %x, %v", b, number, again, ok)
		}
	})
}
