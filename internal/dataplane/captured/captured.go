// Package captured writes what was captured after a policy has judged it. In go packets with what
// decided them, out comes a capture in pcapng. It must never open a file before there is something
// to write, so that a capture that fails leaves an older file as it is.
package captured

import (
	"errors"
	"io"
	"runtime"
	"time"

	"levee/internal/dataplane/tap"
	"levee/internal/packet"
)

// File is a capture that is written.
type File struct {
	Dev     string // the interface
	Filter  string // what it takes, in words
	Snap    int    // bytes of a packet
	Program string // who captures
	Open    func() (io.WriteCloser, error)

	to     io.WriteCloser
	writer *packet.NGWriter    // nil until there is something to write
	links  map[packet.Link]int // interfaces of the capture
}

// Packet writes a packet; rule is what decided it.
func (f *File) Packet(p *tap.Captured, rule string) error {
	at, err := f.interfaceOf(p.Link)
	if err != nil {
		return err
	}
	return f.writer.Packet(&packet.NGPacket{Interface: at, At: p.At, Data: p.Packet,
		Length: p.Bytes,
		Judged: &packet.NGJudged{Comment: p.Verdict + " by " + rule, ID: p.ID,
			Queue: uint32(p.Queue), AtTC: p.AtTC, Code: int(p.Code)}})
}

// interfaceOf returns the number of the interface for packets of a link layer. The capture begins
// with the first.
func (f *File) interfaceOf(l packet.Link) (int, error) {
	if at, ok := f.links[l]; ok {
		return at, nil
	}
	if f.writer == nil {
		var err error
		if f.to, err = f.Open(); err != nil {
			return 0, err
		}
		if f.writer, err = packet.NewNGWriter(f.to, f.Program, runtime.GOARCH); err != nil {
			return 0, err
		}
		f.links = map[packet.Link]int{}
	}
	at, err := f.writer.Interface(packet.NGInterface{Name: f.Dev, Filter: f.Filter, Link: l,
		Snap: f.Snap})
	if err != nil {
		return 0, err
	}
	f.links[l] = at
	return at, nil
}

// End ends the capture with what was lost. Without packets it is one all the same.
func (f *File) End(l tap.CaptureLosses) error {
	if f.writer == nil {
		if _, err := f.interfaceOf(packet.Ethernet); err != nil {
			return err
		}
	}
	err := f.writer.Statistics(0, time.Now(), l.Taken, l.Above+l.Kernel)
	return errors.Join(err, f.to.Close())
}
