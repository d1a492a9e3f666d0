package bump

import "testing"

func TestValuesAreZeroAndDoNotOverlap(t *testing.T) {
	var s Allocator[int]
	seen := map[*int]bool{}
	for n := range 2 * most {
		got := s.Take(n)
		if len(got) != n || cap(got) != n {
			t.Fatalf("%d of %d, want %d", len(got), cap(got), n)
		}
		for i := range got {
			if got[i] != 0 || seen[&got[i]] {
				t.Fatalf("value %d of %d is in use", i, n)
			}
			seen[&got[i]] = true
			got[i] = 1
		}
	}
}

func TestKeptValuesAreCopies(t *testing.T) {
	var s Allocator[int]
	scratch := []int{1, 2, 3}
	kept := s.Keep(scratch)
	scratch[0] = 7
	if kept[0] != 1 || len(kept) != 3 || cap(kept) != 3 {
		t.Errorf("kept %v", kept)
	}
	if s.Keep(nil) != nil {
		t.Error("no values are not nil")
	}
}
