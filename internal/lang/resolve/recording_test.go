package resolve

import (
	"io"
	"strings"
	"testing"

	"levee/internal/lang/setfile"
)

// TestALimitOfWhatLeavesWasTakenForOneOfWhatArrives: each side has limits of its own, and `levee
// show` writes the rates of files into both.
func TestALimitOfWhatLeavesWasTakenForOneOfWhatArrives(t *testing.T) {
	src := []byte("out limit udp rate from file(\"out\")\nlimit udp rate to file(\"in\")\n" +
		"out limit tcp rate 10/s\ndefault pass\n")
	var rec setfile.Recording
	open := rec.Through(func(path string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(map[string]string{
			"out": "192.0.2.0/24 5kpps\n", "in": "198.51.100.0/24 7kpps\n"}[path])), nil
	})
	if _, ds := Parse("a.levee", src, open); ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	whole, err := Whole("a.levee", src, rec.Files())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"out limit udp rate from { 192.0.2.0/24 5kpps }",
		"\nlimit udp rate to { 198.51.100.0/24 7kpps }"} {
		if !strings.Contains(string(whole), want) {
			t.Errorf("no %q in\n%s", want, whole)
		}
	}
}
