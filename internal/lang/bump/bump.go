// Package bump gives the nodes of trees and the elements of short lists memory, many from one
// allocation: a policy may have millions of them, and an allocation each would cost more time and
// memory than they do themselves.
//
// In goes how many are wanted, out come that many zeroed ones. What is given is never taken back:
// the garbage collector frees an allocation when nothing in it is in use any more.
package bump

// Allocator gives memory for values of one type. The zero value is ready to use, by one goroutine.
type Allocator[T any] struct {
	free []T
	next int // how many the last allocation had
}

// Smallest and largest number of values of one allocation. Most policies are small, and a tree that
// is let go piece by piece keeps what its last pieces share.
const (
	least = 8
	most  = 512
)

// Large is from how many values on a list gets an allocation of its own.
const Large = most / 4

// Take gives n zeroed values, with no room behind them.
func (s *Allocator[T]) Take(n int) []T {
	if n > len(s.free) {
		if n >= Large {
			return make([]T, n)
		}
		s.next = min(max(2*s.next, least, n), most)
		s.free = make([]T, s.next)
	}
	out := s.free[:n:n]
	s.free = s.free[n:]
	return out
}

// One gives a zeroed value.
func (s *Allocator[T]) One() *T { return &s.Take(1)[0] }

// Keep gives a copy of values that lie in memory which will be used again; nil of none.
func (s *Allocator[T]) Keep(values []T) []T {
	if len(values) == 0 {
		return nil
	}
	out := s.Take(len(values))
	copy(out, values)
	return out
}
