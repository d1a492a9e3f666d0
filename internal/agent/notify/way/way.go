// Package way is what the ways of telling people and programs have in common: one row each, the
// message, and where it goes. It must never send anything except by a row.
package way

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/netip"
	"os"
	"time"

	"levee/internal/agent/pubsub"
)

// Way is one way of telling: a row.
type Way struct {
	Name    string // in the file of targets, and of the flag that adds one
	Usage   string // of that flag; it names its value in backquotes, unless cli.ArgNames does
	Says    string // sentences of the help: what is done
	Options []Option
	// Prepare adds to a new place what it is to have, such as a secret; nil: nothing.
	Prepare func(*Place)
	Check   func(*Place) error
	// Where is the place without what may be secret; nil: To is not.
	Where func(*Place) string
	// Host is the server at the other end; nil: none.
	Host func(*Place) string
	// Send tells once. What another attempt would meet again is Permanent.
	Send func(context.Context, *Place, *Message) error
}

// Option is another flag of a way.
type Option struct {
	Flag, Usage string
	// In returns the variable of its value; nil: Options of the place have it.
	In func(*Place) *string
}

// Place is the destination of messages that go by a way.
type Place struct {
	To      string            `json:"to"`               // URL, address or path
	Secret  string            `json:"secret,omitempty"` // of a webhook's signatures
	Server  string            `json:"server,omitempty"` // of mail, HOST:PORT; "": the local sendmail
	From    string            `json:"from,omitempty"`   // of mail
	Options map[string]string `json:"options,omitempty"`
}

// Set sets an option.
func (p *Place) Set(o *Option, value string) {
	if o.In != nil {
		*o.In(p) = value
		return
	}
	if p.Options == nil {
		p.Options = map[string]string{}
	}
	p.Options[o.Flag] = value
}

// Timeout limits one attempt.
const Timeout = 10 * time.Second

// Permanent is an error that another attempt would meet again.
type Permanent struct{ error }

// Never makes an error permanent.
func Never(err error) error { return Permanent{err} }

func (p Permanent) Unwrap() error { return p.error }

// IsLoopback tells whether a host is this machine.
func IsLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// Message is one message to a target, as JSON.
type Message struct {
	ID      string      `json:"id"`
	Machine string      `json:"machine"`
	At      time.Time   `json:"at"`
	Kind    pubsub.Kind `json:"kind"` // of the event; summary or test
	Text    string      `json:"text"`
	Event   *Event      `json:"event,omitempty"`
	// of a summary: how many events of each kind the limit held back, and the first texts
	Held  map[pubsub.Kind]int `json:"held,omitempty"`
	First []string            `json:"first,omitempty"`
	Lost  int                 `json:"lost,omitempty"` // events that no summary counts
}

// Event holds the parts of an event that programs read.
type Event struct {
	Set      string `json:"set,omitempty"`
	Origin   string `json:"origin,omitempty"`
	Entry    string `json:"entry,omitempty"`
	Incident string `json:"incident,omitempty"`
	Part     string `json:"part,omitempty"`
	Count    int    `json:"count,omitempty"`
}

// Kinds of messages that are no events.
const (
	Summary pubsub.Kind = "summary"
	Test    pubsub.Kind = "test"
)

// NewMessage returns one of this machine.
func NewMessage(kind pubsub.Kind, text string, at time.Time) *Message {
	b := make([]byte, 12)
	_, _ = rand.Read(b)
	name, _ := os.Hostname()
	return &Message{ID: "msg_" + hex.EncodeToString(b), Machine: name, At: at, Kind: kind,
		Text: text}
}
