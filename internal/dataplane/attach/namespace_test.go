package attach

import (
	"os"
	"path/filepath"
	"testing"
)

// What is mounted is listed before it is opened: a namespace that is taken away in between leaves
// the file over which it was mounted, or none.
func TestNamespaceThatGoesWhileItIsLookedForIsNone(t *testing.T) {
	beneath := filepath.Join(t.TempDir(), "gone")
	if err := os.WriteFile(beneath, nil, 0); err != nil {
		t.Fatal(err)
	}
	for path, there := range map[string]bool{
		"/proc/self/ns/net": true, beneath: false, beneath + "er": false, "/proc/0/ns/net": false,
	} {
		file, err := openNetns(path)
		if err != nil || (file != nil) != there {
			t.Errorf("%s: %v, %v", path, file, err)
		}
		file.Close()
	}
}
