package diag

import "strings"

// Nearest returns the candidate that word is probably a misspelling of, or "". One slip is
// forgiven in words of up to five characters, two in longer ones.
func Nearest(word string, candidates []string) string {
	if len(word) > 40 {
		return ""
	}
	word = strings.ToLower(word)
	best, at := "", 3
	for _, c := range candidates {
		most := 2
		if len(c) <= 5 || len(word) <= 4 {
			most = 1
		}
		if len(c) < 3 && c != word {
			continue
		}
		if d := Distance(word, c); d <= most && d < at {
			best, at = c, d
		}
	}
	return best
}

// Distance returns the number of inserted, deleted, changed and swapped characters between a and b
// (optimal string alignment).
func Distance(a, b string) int {
	var prev2 []int
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur := make([]int, len(b)+1)
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev = prev, cur
	}
	return prev[len(b)]
}
