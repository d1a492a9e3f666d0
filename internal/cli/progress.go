package cli

import (
	"fmt"
	"io"
	"time"
)

// Progress is one line that overwrites itself on a terminal, and nothing at all elsewhere: a log
// file or a pipe never sees a half line.
type Progress struct {
	e     *Env
	shown bool
	last  time.Time
}

// redraw is the shortest time between two pictures of a progress line.
const redraw = 100 * time.Millisecond

func (e *Env) Progress() *Progress { return &Progress{e: e} }

// Printf shows a new state, unless the last one is too fresh to have been read.
func (p *Progress) Printf(format string, args ...any) {
	if !p.e.Stderr.Terminal {
		return
	}
	if now := p.e.Now(); now.Sub(p.last) >= redraw {
		p.last = now
		p.shown = true
		fmt.Fprint(p.e.Stderr.Raw(), "\r\x1b[K")
		fmt.Fprintf(p.e.Stderr, format, args...)
	}
}

// Clear takes the line away; what is printed next starts at the left margin.
func (p *Progress) Clear() {
	if p.shown {
		fmt.Fprint(p.e.Stderr.Raw(), "\r\x1b[K")
		p.shown = false
	}
}

// ProgressReader shows how much of a file has been read.
type ProgressReader struct {
	R        io.Reader
	Name     string
	Progress *Progress
	bytes    int64
}

func (p *ProgressReader) Read(b []byte) (int, error) {
	n, err := p.R.Read(b)
	p.bytes += int64(n)
	p.Progress.Printf("%s: %.1f MB read", p.Name, float64(p.bytes)/1e6)
	return n, err
}
