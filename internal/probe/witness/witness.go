package witness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/bpf"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/capture"
	"levee/internal/packet"
)

// perSecond bounds the packets a second and CPU that are told.
const perSecond = 100_000

// Watch tells what becomes of the packets from some addresses that come to an interface with a
// policy, until in ends, ctx does, or there is no policy any more. It answers lines of in.
func Watch(ctx context.Context, dev string, from []netip.Addr, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &teller{to: json.NewEncoder(out), dev: dev, stop: cancel}
	questions := make(chan struct{})
	go func() {
		defer cancel() // an error is an end, too
		for lines := bufio.NewScanner(in); lines.Scan(); {
			select {
			case questions <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	var looking sync.WaitGroup
	answered := 0
	lost, err := tap.Capture(ctx, tap.Capturing{Dev: dev, Snap: Snap, Rate: perSecond,
		Filter: func(l packet.Link) ([]bpf.Instruction, error) {
			return capture.FromSources(l, from), nil
		},
		Begun: func() {
			if t.failed = t.policy(ctx); t.failed != nil {
				cancel()
			}
			looking.Go(func() { t.follow(ctx) })
		},
		Questions: questions,
		Drained: func() {
			answered++
			_ = t.tell(&Told{Drained: answered}) // an error has ended it
		}}, t.packet)
	cancel()
	looking.Wait()
	if err := errors.Join(t.failed, err); err != nil {
		return err
	}
	return t.tell(&Told{End: &End{Taken: lost.Taken, Lost: lost.Above + lost.Kernel}})
}

type teller struct {
	dev    string
	stop   func()
	failed error // to read the policy at the beginning

	mu     sync.Mutex
	to     *json.Encoder
	source []byte // of the policy that was told last
	err    error
}

// tell tells, until that fails once; the error is that of then.
func (t *teller) tell(what *Told) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = t.to.Encode(what)
	}
	if t.err != nil {
		t.stop()
	}
	return t.err
}

func (t *teller) packet(p tap.Captured) bool {
	err := t.tell(&Told{Packet: &Packet{Slot: p.Rule.ID, Rule: p.Rule.Rule, Label: p.Rule.Label,
		Verdict: p.Verdict, Link: p.Link.String(), Bytes: p.Packet,
		Length: p.Bytes}})
	return err == nil
}

// policy tells the policy in force, if it is not the one that was told last.
func (t *teller) policy(ctx context.Context) error {
	p, _, err := inspect.Show(ctx, t.dev)
	if err != nil || t.source != nil && bytes.Equal(t.source, p.Source) {
		return err
	}
	t.source = append([]byte{}, p.Source...)
	return t.tell(&Told{InForce: &InForce{Dev: t.dev, Name: p.Name(), Source: string(p.Source),
		Files: p.Files, Fallback: p.OnError != ""}})
}

// follow looks once a second whether the policy is another one.
func (t *teller) follow(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// Without a policy the capture ends, and says so.
			_ = t.policy(ctx)
		}
	}
}
