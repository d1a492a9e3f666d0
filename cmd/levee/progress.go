package main

import (
	"fmt"
	"io"
	"time"
)

// progress is one line that overwrites itself on a terminal, and nothing at all elsewhere: a log
// file or a pipe never sees a half line.
type progress struct {
	e     *env
	shown bool
	last  time.Time
}

// redraw is the shortest time between two pictures of a progress line.
const redraw = 100 * time.Millisecond

func (e *env) progress() *progress { return &progress{e: e} }

// printf shows a new state, unless the last one is too fresh to have been read.
func (p *progress) printf(format string, args ...any) {
	if !p.e.stderr.terminal {
		return
	}
	if now := p.e.now(); now.Sub(p.last) >= redraw {
		p.last = now
		p.shown = true
		fmt.Fprintf(p.e.stderr, "\r\x1b[K"+format, args...)
	}
}

// clear takes the line away; what is printed next starts at the left margin.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.e.stderr, "\r\x1b[K")
		p.shown = false
	}
}

// progressReader shows how much of a file has been read.
type progressReader struct {
	r        io.Reader
	name     string
	progress *progress
	bytes    int64
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.bytes += int64(n)
	p.progress.printf("%s: %.1f MB read", p.name, float64(p.bytes)/1e6)
	return n, err
}
