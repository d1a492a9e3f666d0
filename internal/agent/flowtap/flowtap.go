// Package flowtap reads the first bytes of flows on all interfaces that have a policy, for all
// sources that ask for any: one program behind that of each policy, one table of flows.
//
// In go places, out come inlets whose lines are records. Whoever uses it asks again and again, from
// one goroutine. It judges no record, and knows no policy.
package flowtap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"levee/internal/agent/source/inlet"
	"levee/internal/agent/stream"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/capture"
	"levee/internal/packet"
)

// followEvery is the interval between two looks for the policies in force.
const followEvery = time.Second

// Hub is the flows of a machine.
type Hub struct {
	// Devs are the interfaces that have a policy.
	Devs func(context.Context) ([]string, error)

	table  stream.Table
	inlets []*reading
	ports  capture.Ports
	taps   map[string]*tap.FlowReader
	failed map[string]error
	gone   uint64 // packets that taps have lost which are gone
	lost   uint64 // and all, as of the last look
	next   time.Time
	packet packet.Packet
	whole  []byte
}

// Open begins to read at a place.
func (h *Hub) Open(p *inlet.Place) (inlet.Inlet, error) { return h.open(p), nil }

func (h *Hub) open(p *inlet.Place) *reading {
	in := &reading{hub: h, of: p}
	in.reader = &stream.Reader{Protocol: stream.Named(p.At), Wants: p.Flows.Want,
		Line: func(line []byte) { in.put(line) }}
	h.inlets = append(h.inlets, in)
	h.changed()
	return in
}

// changed has the table and the taps know what is read. Flows that are under way stay with whoever
// reads them.
func (h *Hub) changed() {
	h.table.Readers = nil
	h.ports = capture.Ports{}
	for _, in := range h.inlets {
		h.table.Readers = append(h.table.Readers, in.reader)
		for _, of := range in.of.Flows.Ports {
			for port := int(of.First); port <= int(of.Last); port++ {
				h.ports[port] |= reads(in.reader.Protocol, in.of.Flows.Protos)
			}
		}
	}
	if len(h.inlets) == 0 {
		for dev := range h.taps {
			h.close(dev)
		}
		h.table = stream.Table{}
		return
	}
	h.next = time.Time{}
	for dev, t := range h.taps {
		if err := t.SetPorts(&h.ports); err != nil {
			h.fail(dev, err)
		}
	}
}

// reads returns what is read of flows to a port.
func reads(protocol *stream.Protocol, protos []uint8) (bits byte) {
	for _, p := range protos {
		switch {
		case p == stream.TCP:
			bits |= capture.ReadTCP
		case protocol.Initials:
			bits |= capture.ReadInitials
		default:
			bits |= capture.ReadUDP
		}
	}
	return bits
}

// fail ends the reading of an interface, which is tried again.
func (h *Hub) fail(dev string, err error) {
	h.close(dev)
	if !generation.IsGone(err) {
		h.note(dev, err)
	}
}

// note keeps why an interface is not read.
func (h *Hub) note(dev string, err error) {
	if h.failed == nil {
		h.failed = map[string]error{}
	}
	h.failed[dev] = fmt.Errorf("read flows of %s: %w", dev, err)
}

func (h *Hub) close(dev string) {
	if t := h.taps[dev]; t != nil {
		if n, err := t.Counted(); err == nil {
			h.gone += n.Lost
		}
		t.Close()
		delete(h.taps, dev)
	}
}

// followed goes on behind the policies that are in force.
func (h *Hub) followed(ctx context.Context, now time.Time) error {
	if now.Before(h.next) {
		return nil
	}
	h.next = now.Add(followEvery)
	devs, err := h.Devs(ctx)
	if err != nil {
		return fmt.Errorf("look at the policies in force: %w", err)
	}
	clear(h.failed)
	h.count()
	for dev, t := range h.taps {
		if !slices.Contains(devs, dev) {
			h.close(dev)
		} else if err := t.Follow(ctx); generation.IsGone(err) {
			h.close(dev)
		} else if err != nil {
			h.note(dev, err)
		}
	}
	for _, dev := range devs {
		if h.taps[dev] != nil || h.failed[dev] != nil {
			continue
		}
		t, err := tap.NewFlowReader(ctx, dev, &h.ports,
			capture.FlowBounds{Bytes: stream.Limit, Datagrams: stream.MostDatagrams})
		if err != nil {
			h.fail(dev, err)
			continue
		}
		if h.taps == nil {
			h.taps = map[string]*tap.FlowReader{}
		}
		h.taps[dev] = t
	}
	return nil
}

// read reads what has come.
func (h *Hub) read(now time.Time) error {
	ctx, stop := context.WithTimeout(context.Background(), followEvery)
	defer stop()
	err := h.followed(ctx, now)
	h.table.Forget = func(k *stream.Key) {
		if t := h.taps[k.Dev]; t != nil {
			t.Forget(k.Src, k.Dst, k.Proto)
		}
	}
	for dev, t := range h.taps {
		if failed := t.Read(func(p *tap.FlowPacket) { h.segment(dev, p) }); failed != nil {
			h.fail(dev, failed)
		}
	}
	h.table.Proves = h.proves
	h.table.Prove()
	h.table.Expire(now)
	for _, failed := range h.failed {
		err = errors.Join(err, failed)
	}
	return err
}

// proves says what the policy on an interface knows of a flow of UDP.
func (h *Hub) proves(k *stream.Key, first, datagrams uint32) stream.Proof {
	switch t := h.taps[k.Dev]; {
	case t == nil || !t.Proves():
		return stream.NoProof
	case t.Proven(k.Src, k.Dst, first, datagrams):
		return stream.Proven
	}
	return stream.Waits
}

// segment reads one packet.
func (h *Hub) segment(dev string, p *tap.FlowPacket) {
	rec := packet.Record{Data: p.Packet, Length: p.Bytes}
	whole, missing := rec.Whole(h.whole)
	if missing > 0 {
		h.whole = whole
	}
	s, ok := stream.SegmentOf(p.Link, whole, &h.packet)
	if !ok {
		return
	}
	s.At, s.Dev, s.First, s.Proven = p.At, dev, p.First, p.Proven
	if s.Proto == stream.UDP {
		s.Seq = p.Number
	}
	if s.Cut = missing > 0; s.Cut {
		s.Data = s.Data[:max(0, len(s.Data)-missing)]
	}
	h.table.Segment(&s)
}

// count counts packets that found no room.
func (h *Hub) count() {
	h.lost = h.gone
	for _, t := range h.taps {
		if n, err := t.Counted(); err == nil {
			h.lost += n.Lost
		}
	}
}

// reading is one place that is read.
type reading struct {
	hub     *Hub
	of      *inlet.Place
	reader  *stream.Reader
	lines   [][]byte
	bytes   int // of lines
	tooMuch uint64
	told    bool // that its parser has failed
}

// mostBytes bounds what waits for a source that is asked too seldom. Clients choose how long a
// record is: a number of records would bound nothing.
const mostBytes = 16 << 20

func (in *reading) put(line []byte) {
	if in.bytes+len(line) > mostBytes {
		in.tooMuch++
		return
	}
	in.bytes += len(line)
	in.lines = append(in.lines, line)
}

// Poll reads what has come for all places, and hands on what is for this one.
func (in *reading) Poll(most int64, line func([]byte)) (more bool, err error) {
	err = in.hub.read(time.Now())
	n := 0
	for ; n < len(in.lines) && most > 0; n++ {
		most -= int64(len(in.lines[n]))
		in.bytes -= len(in.lines[n])
		line(in.lines[n])
	}
	if in.lines = in.lines[n:]; len(in.lines) == 0 {
		in.lines = nil
	}
	return len(in.lines) > 0, errors.Join(err, in.fault())
}

// fault tells once that a parser has failed.
func (in *reading) fault() error {
	if in.told || in.reader.Failed == 0 {
		return nil
	}
	in.told = true
	return fmt.Errorf("the parser of %s failed on a flow, which counts as unknown: please report "+
		"it",
		in.reader.Protocol.Name)
}

// Renewal returns 0: nothing comes twice.
func (in *reading) Renewal() uint64 { return 0 }

// Position is none: nothing can be had again.
func (in *reading) Position() []byte { return nil }

// Kept has nothing to do.
func (in *reading) Kept() {}

// State returns what there is to tell.
func (in *reading) State() inlet.State {
	return inlet.State{LagLines: int64(len(in.lines)), Flows: in.reader.Flows,
		Unknown: in.reader.Unknown, Lost: in.hub.lost + in.tooMuch}
}

// Close reads no more.
func (in *reading) Close() {
	in.hub.inlets = slices.DeleteFunc(in.hub.inlets, func(o *reading) bool { return o == in })
	in.hub.changed()
}
