package agent

import (
	"context"
	"errors"
	"time"

	"levee/internal/agent/api"
	"levee/internal/agent/ledger"
	"levee/internal/agent/part"
	"levee/internal/agent/pubsub"
	"levee/internal/host/access"
)

// NewParts returns the register of an agent's parts. What fails is told as an alarm, in the log and
// to those who watch, once, and told to be over when it works again. What ends as ctx has ended is
// not over: the next agent has it again.
func NewParts(ctx context.Context, hub *pubsub.Hub,
	log func(format string, args ...any)) *part.Register {
	return part.NewRegister(func(c part.Change, s part.Status) {
		e := pubsub.Event{Kind: pubsub.Recovered, Text: s.Title() + " works again", Part: s.Title()}
		switch c {
		case part.Failed:
			e.Kind, e.Text = pubsub.Alarm, s.Sentence()
			log("alarm: %s", e.Text)
		case part.Differs:
			log("alarm: %s", s.Sentence())
			return
		case part.Gone:
			if ctx.Err() != nil {
				return
			}
			e.Text = s.Title() + " is no longer there"
			log("%s", e.Text)
		case part.Recovered:
			log("%s", e.Text)
		}
		hub.Publish(e)
	})
}

// PartsReport are the parts of an agent.
type PartsReport struct {
	Parts []part.Status `json:"parts"`
}

// Listen is an address where the API answers.
type Listen struct {
	Name string
	// Open listens. release takes away what was made for that, besides the listener.
	Open func() (l *api.Listener, release func(), err error)

	opened bool // Try has been called
	l      *api.Listener
	free   func()
	err    error
}

// Try opens it once, so that whoever waits for the agent finds it there. The first attempt to serve
// goes on with what it has opened, or with the error.
func (o *Listen) Try() error {
	o.l, o.free, o.err = o.Open()
	o.opened = true
	return o.err
}

func (o *Listen) take() (*api.Listener, func(), error) {
	if !o.opened {
		_ = o.Try()
	}
	o.opened = false
	return o.l, o.free, o.err
}

// serve answers requests at each address until ctx ends. An address that cannot be had is tried
// again. It returns when each was tried once.
func (a *Agent) serve(ctx context.Context) error {
	s, err := a.server()
	if err != nil {
		return err
	}
	for i := range a.opts.Listen {
		o := &a.opts.Listen[i]
		if !o.opened {
			_ = o.Try()
		}
		p := a.parts.Begin(part.API, o.Name, "")
		if o.err == nil {
			p.Works()
		}
		a.reading.Go(func() {
			p.Run(ctx, func(ctx context.Context) error {
				l, release, err := o.take()
				if err != nil {
					return err
				}
				if release != nil {
					defer release()
				}
				p.Works()
				return s.Serve(ctx, l)
			})
		})
	}
	return nil
}

// openLedger opens the ledger, unless it is open or was tried a moment ago. Without it no entry is
// leased or withdrawn, and no source is read; all else goes on. It is an error that another process
// has it.
func (a *Agent) openLedger(wait time.Duration) error {
	if a.ledger.IsOpen() || time.Now().Before(a.nextLedger) {
		return nil
	}
	l, err := ledger.Open(a.opts.Ledger, wait)
	if err != nil {
		a.ledgerFailures++
		a.nextLedger = time.Now().Add(part.Pause(a.ledgerFailures))
		a.ledgerPart.FailsUntil(part.Do(err, access.Write(a.opts.Ledger, err)), a.nextLedger)
		if errors.Is(err, ledger.ErrBusy) {
			return err
		}
		return nil
	}
	a.ledger, a.ledgerFailures = l, 0
	a.ledgerPart.Works()
	if l.Damaged != "" {
		a.alarm("the ledger was damaged (%v) and lies in %s now; its leases go on in the kernel "+
			"until they end, and cannot be listed or withdrawn", l.Reason, l.Damaged)
	}
	return nil
}

// wrote tells whether the ledger was written, and gives the error back.
func (a *Agent) wrote(err error) error {
	switch {
	case errors.Is(err, ledger.ErrClosed): // whoever opens it says why
	case errors.Is(err, ledger.ErrFull):
		a.ledgerPart.Fails(part.Do(errors.New("it is full: new leases are not taken"),
			"levee agent withdraw --origin ORIGIN; levee agent list shows what it holds"))
	default:
		_ = a.ledgerPart.Did(part.Do(err, access.Write(a.opts.Ledger, err)))
	}
	return err
}

// alarms returns the alarms of all parts: what has happened, and the parts that do not work.
func (a *Agent) alarms(parts []part.Status) []Alarm {
	out := append([]Alarm{}, a.status.Alarms...)
	for _, p := range part.Failing(parts) {
		out = append(out, Alarm{p.Since, p.Sentence(), p.Title()})
	}
	return out
}
