package gen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"levee/internal/packet"
)

// Replay describes a capture to send, byte for byte. Frames that the capture's snap length has
// cut are sent at their length on the wire, zero-filled.
type Replay struct {
	// Open opens the capture, pcap or pcapng, from its beginning; it is called again for each
	// repetition.
	Open func() (io.ReadCloser, error)
	// Repeat starts again at the end, until Count or Duration ends the run.
	Repeat bool
	// Fast sends as fast as possible, where Rate is 0. Otherwise the capture's own times count.
	Fast bool
	// Rewrite replaces the Ethernet addresses by those of the lab: without it a receiver takes
	// the frames for someone else's.
	Rewrite bool
}

const (
	// roomWait is the time that a batch waits for room in the receiver's ring. A capture is sent
	// whole rather than fast; a receiver that takes nothing for so long refuses the rest.
	roomWait = 250 * time.Millisecond
	roomPoll = 20 * time.Microsecond
	// early is the time by which a frame may come early to join those that are due.
	early = 5 * time.Microsecond
)

// maxTags is the Ethernet header with two tags.
const maxTags = 22

// replayer holds one run. Its memory is bounded by sendBatch frames of the device's MTU.
type replayer struct {
	Config
	dev    device
	sock   wire
	filled int // frames of the batch
	report Report
	whole  []byte // scratch for cut frames

	start    uint64 // ns of the monotonic clock
	deadline uint64
	last     uint64        // when the last batch went
	queued   uint64        // frames read and taken over
	base     time.Duration // due time of the first frame of this pass
	due      time.Duration // of the frame read last, since start
	shown    uint64
}

func runReplay(ctx context.Context, c Config, dev device) (Report, error) {
	if c.Replay.Rewrite && !dev.inLab {
		return Report{}, errors.New("there are no lab addresses to rewrite the Ethernet " +
			"addresses to")
	}
	if c.Replay.Open == nil {
		return Report{}, errors.New("no capture is named")
	}
	sock, err := newSender(dev, dev.mtu+maxTags, patiently)
	if err != nil {
		return Report{}, err
	}
	defer sock.close()
	r := &replayer{Config: c, dev: dev, sock: sock, start: monotonic()}
	r.deadline = r.start + uint64(c.Duration)
	for {
		before := r.queued
		done, err := r.pass(ctx)
		if err != nil || done || !c.Replay.Repeat {
			return r.finish(), err
		}
		if r.queued == before {
			return r.finish(), errors.New("the capture has no frame that this device can send")
		}
		r.base = r.due
	}
}

// finish completes the report.
func (r *replayer) finish() Report {
	r.report.Duration = time.Duration(monotonic() - r.start)
	r.report.Path, r.report.How = Packet, r.sock.what()
	span, paced := r.report.Duration, r.Rate > 0 || !r.Replay.Fast
	if paced && r.report.Sent > 1 {
		span = time.Duration(r.last - r.start)
	}
	r.report.Achieved = achieved(r.report.Sent, span, paced)
	return r.report
}

// pass sends the capture once. done says that the run is over.
func (r *replayer) pass(ctx context.Context) (done bool, err error) {
	f, err := r.Replay.Open()
	if err != nil {
		return false, fmt.Errorf("opening the capture: %w", err)
	}
	defer f.Close()
	capture, err := packet.NewReader(f)
	if err != nil {
		return false, err
	}
	var first time.Time
	for ctx.Err() == nil && r.queued < r.Count {
		rec, err := capture.Next()
		if err == io.EOF {
			return ctx.Err() != nil, r.flush()
		}
		if err != nil {
			return false, errors.Join(r.flush(), err)
		}
		if first.IsZero() {
			first = rec.Time
		}
		r.schedule(rec.Time.Sub(first))
		frame, missing := rec.Whole(r.whole)
		if missing > 0 {
			r.whole = frame
		}
		switch {
		case len(frame) < 14:
			r.report.Errors++
			r.report.TooShort++
			continue
		case len(frame) > r.dev.mtu+maxTags:
			r.report.Errors++
			r.report.TooLong++
			continue
		}
		more, err := r.wait(ctx)
		if err != nil {
			return false, err
		}
		if !more {
			break
		}
		if missing > 0 {
			r.report.Filled++
		}
		buf, err := r.sock.buffer()
		if err != nil {
			return false, err
		}
		copy(buf, frame)
		if r.Replay.Rewrite {
			copy(buf, r.dev.dst[:])
			copy(buf[6:], r.dev.mac[:])
		}
		r.sock.push(len(frame))
		r.queued++
		if r.filled++; r.filled == r.sock.batch() {
			if err := r.flush(); err != nil {
				return false, err
			}
		}
	}
	return true, r.flush()
}

// schedule says when the next frame is due, given its time in the capture. Times that go back
// count as the same.
func (r *replayer) schedule(offset time.Duration) {
	switch {
	case r.Rate > 0:
		r.due = time.Duration(float64(r.queued) / r.Rate * 1e9)
	case !r.Replay.Fast:
		r.due = max(r.due, r.base+offset)
	}
}

// wait sends what is due and waits for the next frame to be. It says whether the run goes on.
func (r *replayer) wait(ctx context.Context) (bool, error) {
	due := r.start + uint64(r.due)
	now := monotonic()
	if now >= r.deadline {
		return false, nil
	}
	if due <= now+uint64(early) {
		return true, nil
	}
	if err := r.flush(); err != nil {
		return false, err
	}
	if due >= r.deadline {
		sleep(ctx, time.Duration(r.deadline-now))
		return false, nil
	}
	if due > now+2*uint64(wake) && !sleep(ctx, time.Duration(due-now)-wake) {
		return false, nil
	}
	for monotonic() < due { // at most a wake, or a late timer
	}
	return true, nil
}

// flush sends the frames that were added.
func (r *replayer) flush() error {
	if r.filled == 0 {
		return nil
	}
	r.filled = 0
	now := monotonic()
	if r.last != 0 {
		r.report.Gaps.between(now - r.last)
	}
	r.last = now
	err := r.sock.flush(&r.report)
	if r.Progress != nil && now-r.shown >= uint64(100*time.Millisecond) {
		r.shown = now
		r.Progress(Progress{Sent: r.report.Sent, Elapsed: time.Duration(now - r.start)})
	}
	return err
}
