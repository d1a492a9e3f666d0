// Package inlettest reads inlets in tests, as the agent does. In goes a row and a place, out come
// lines. It must be in no program.
package inlettest

import (
	"fmt"
	"testing"

	"levee/internal/agent/source/inlet"
	"levee/internal/await"
)

// Open begins to read.
func Open(t testing.TB, row *inlet.Row, p *inlet.Place, o inlet.Opening) inlet.Inlet {
	t.Helper()
	in, err := row.Open(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// Poll polls, as the agent does, until done says so. It keeps what has come.
func Poll(t testing.TB, in inlet.Inlet, into *[]string, done func() bool) {
	t.Helper()
	await.OK(t, func() error {
		_, err := in.Poll(1<<20, func(b []byte) { *into = append(*into, string(b)) })
		in.Kept()
		if done() {
			return nil
		}
		return fmt.Errorf("%d lines have come, %v", len(*into), err)
	})
}
