package cli

import (
	"fmt"
	"strings"
	"testing"
)

// TestATerminalTookNamesForCommands: the name of an interface came to it as it is, though whoever
// has the interface names it.
func TestATerminalTookNamesForCommands(t *testing.T) {
	var b strings.Builder
	screen := &Output{W: &b, Terminal: true}
	const name = "y\x1b]0;x\a\r\u009b2J\u202e\xff\x1b[8m"
	fmt.Fprintf(screen, "\x1b[1;31mon\x1b[0m\t%s: in f\xc3", name)
	fmt.Fprintf(screen, "\xb6rce\n")
	const want = "\x1b[1;31mon\x1b[0m\t" + `y\x1b]0;x\a\r\u009b2J\u202e\xff\x1b[8m` + ": in f\u00f6rce\n"
	if b.String() != want {
		t.Errorf("a terminal has %q, want %q", b.String(), want)
	}
	b.Reset()
	fmt.Fprint(screen.Raw(), "\x1b[H\x1b[J")
	if got := b.String(); got != "\x1b[H\x1b[J" {
		t.Errorf("what moves the cursor is %q", got)
	}
	b.Reset()
	if fmt.Fprint(&Output{W: &b}, name); b.String() != name {
		t.Errorf("a pipe has %q, want %q", b.String(), name)
	}
}
