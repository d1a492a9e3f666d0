package resolve

import (
	"fmt"
	"testing"
)

func TestDoublesAreThoseOfOneList(t *testing.T) {
	var d duplicates
	d.begin(1)
	for range 2 {
		if d.add("a") {
			t.Error("a list of one element has a double")
		}
	}
	for list := range 3 {
		d.begin(100)
		for i := range 100 {
			if text := fmt.Sprint(i); d.add(text) || !d.add(text) {
				t.Fatalf("list %d: %s is there before it was added, or not behind that", list, text)
			}
		}
	}
	d.begin(2)
	for _, tc := range []struct {
		text string
		want bool
	}{{"7", false}, {"8", false}, {"9", false}, {"9", false}, {"8", true}, {"7", true}} {
		if got := d.add(tc.text); got != tc.want {
			t.Errorf("%s: %v, want %v: two texts are remembered", tc.text, got, tc.want)
		}
	}
}

// The number of the list has 32 bits, and begins again.
func TestDoublesForgetAfterTheLastNumberOfAList(t *testing.T) {
	var d duplicates
	d.begin(4)
	d.add("a")
	d.list = 1<<32 - 1
	d.begin(4)
	if d.add("a") {
		t.Error("a text of the first list is in the one that has its number again")
	}
}
