package notify

import (
	"context"
	"time"

	"levee/internal/agent/notify/mail"
	"levee/internal/agent/notify/matrix"
	"levee/internal/agent/notify/program"
	"levee/internal/agent/notify/slack"
	"levee/internal/agent/notify/way"
	"levee/internal/agent/notify/webhook"
)

// Ways are the ways of telling: a folder and a line each.
var Ways = []*way.Way{
	&webhook.Way,
	&mail.Way,
	&program.Way,
	&slack.Way,
	&matrix.Way,
}

// Message is one message to a target.
type Message = way.Message

// NewTest returns a message that tests a target.
func NewTest() *Message {
	return way.NewMessage(way.Test, "levee: a test of this notification", time.Now().UTC())
}

// Send tells a target once.
func (t *Target) Send(ctx context.Context, m *Message) error {
	w, err := t.way()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, way.Timeout)
	defer cancel()
	return w.Send(ctx, &t.Place, m)
}
