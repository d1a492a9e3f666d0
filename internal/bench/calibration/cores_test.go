package calibration

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestTwoCoresAreReadAndBounded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: raises the priority of threads")
	}
	if runtime.NumCPU() < 2 {
		t.Skip("two cores are not at hand")
	}
	// On a busy machine both cores may never run at once: 0. A reading that is there is of light
	// and not of schedulers.
	for what, r := range map[string]struct {
		read  func(a, b int) (float64, error)
		least float64
		most  float64
	}{"a cache line there and back": {Distance, 0, 1e5}, "an operation": {WorkOn, 1e-6, 100}} {
		begun := time.Now()
		ns, err := r.read(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if ns < r.least || ns > r.most {
			t.Errorf("%s takes %v ns", what, ns)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("reading took %v", took)
		}
		if _, err := r.read(0, 1000); err == nil ||
			!strings.Contains(err.Error(), "running on core 1000") {
			t.Errorf("a core that is not there: %v", err)
		}
	}
}
