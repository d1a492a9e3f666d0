package pattern

import (
	"encoding/binary"
	"slices"
)

// builder lays out a table while states are found.
type builder struct {
	class  [classes]byte
	first  []byte // a byte of each class
	rows   []uint32
	stride int // entries of a row
}

// Numbers of the first states.
const (
	accept = iota
	dead
	fresh // the first that a row is made for
)

// newBuilder begins a table for bytes that same tells apart.
func newBuilder(signature func(c byte) string) *builder {
	b := &builder{}
	known := map[string]byte{}
	for c := range classes {
		s := signature(byte(c))
		n, ok := known[s]
		if !ok {
			n = byte(len(b.first))
			known[s] = n
			b.first = append(b.first, byte(c))
		}
		b.class[c] = n
	}
	b.stride = len(b.first) + 1
	for state := range uint32(fresh) {
		for range b.stride {
			b.rows = append(b.rows, state)
		}
	}
	return b
}

// states returns how many rows there are.
func (b *builder) states() int { return len(b.rows) / b.stride }

// row adds a state and gives its number. The error says that there is no room for it.
func (b *builder) row() (uint32, error) {
	n := b.states()
	if size := classes + entry*b.stride*(n+1) + Slack; size > MaxTable {
		return 0, &LargeError{States: n, Bytes: size}
	}
	for range b.stride {
		b.rows = append(b.rows, dead)
	}
	return uint32(n), nil
}

// set says where a state goes from in a class of bytes, or at the end in class b.stride-1.
func (b *builder) set(from uint32, class int, to uint32) {
	b.rows[int(from)*b.stride+class] = to
}

// finish returns the machine.
func (b *builder) finish(start uint32) (*Machine, error) {
	all, any := true, false // inputs match
	for n := fresh; n < b.states(); n++ {
		row := b.rows[n*b.stride : (n+1)*b.stride]
		all = all && row[b.stride-1] == accept && !slices.Contains(row, dead)
		any = any || slices.Contains(row, accept)
	}
	switch {
	case all:
		return nil, ErrEmpty
	case !any:
		return nil, ErrNever
	}
	stride := uint32(entry * b.stride)
	at := func(state uint32) uint32 { return classes + state*stride }
	m := &Machine{Accept: at(accept), Dead: at(dead), Start: at(start),
		Last: at(uint32(b.states() - 1)), End: stride - entry, States: b.states()}
	m.Table = make([]byte, max(int(m.Last+stride), int(m.Last)+Slack+entry))
	copy(m.Table, b.class[:])
	for i, to := range b.rows {
		binary.LittleEndian.PutUint32(m.Table[classes+entry*i:], at(to))
	}
	return m, nil
}
