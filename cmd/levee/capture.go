package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"levee/internal/cli"
	"levee/internal/packet"
)

// capture is a file of packets that are read one at a time.
type capture struct {
	at    time.Time // of the frame that next gave last
	file  io.ReadCloser
	input *bufio.Reader // shared with reader, to see whether the next packet is there already
	*packet.Reader
	title string
	whole []byte
	// bytes at the end of that frame which were not captured, and are zero
	missing int
}

// openCapture opens a capture, "-" being standard input.
func (e *env) openCapture(path string) (*capture, error) {
	f, err := e.Open(path)
	if err != nil {
		return nil, err
	}
	c := &capture{file: f, input: bufio.NewReaderSize(f, 64<<10), title: path}
	if path == cli.StdinName {
		c.title = cli.StdinTitle
	}
	if c.Reader, err = packet.NewReader(c.input); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", c.title, err)
	}
	return c, nil
}

// next returns the next frame at its length on the wire, and whether the capture had cut it. It is
// valid until the call after. io.EOF ends the file.
func (c *capture) next() (frame []byte, cut bool, err error) {
	rec, err := c.Next()
	if err != nil {
		if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%s: %w", c.title, err)
		}
		return nil, false, err
	}
	c.at = rec.Time
	if frame, c.missing = rec.Whole(c.whole); c.missing > 0 {
		c.whole = frame
	}
	return frame, c.missing > 0, nil
}

// idle says that the reader has to wait for the next packet, or is at the end: time to let the
// output go.
func (c *capture) idle() bool { return c.input.Buffered() == 0 }

func (c *capture) Close() error { return c.file.Close() }

// nthFrame is packet n of a capture, counted from 1.
func (e *env) nthFrame(path string, n int) ([]byte, error) {
	c, err := e.openCapture(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for i := 1; ; i++ {
		frame, _, err := c.next()
		switch {
		case err == io.EOF:
			return nil, fmt.Errorf("%s has only %s, no packet %d", c.title,
				cli.Plural(i-1, "packet"),
				n)
		case err != nil:
			return nil, err
		case i == n:
			return frame, nil
		}
	}
}
