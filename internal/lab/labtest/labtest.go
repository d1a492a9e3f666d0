// Package labtest makes labs for tests, which go with the test.
package labtest

import (
	"os"
	"testing"

	"levee/internal/lab"
)

// NeedRoot skips a test that makes network namespaces where it may not.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
}

// New is the standard lab.
func New(t testing.TB) *lab.Lab {
	t.Helper()
	NeedRoot(t)
	l, err := lab.New(t.Context(), lab.Standard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
