// Package slack tells by an incoming webhook of Slack, whose form Mattermost, Rocket.Chat and, at
// URLs that end in /slack, Discord take as well (https://docs.slack.dev, "incoming webhooks").
package slack

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"levee/internal/agent/notify/way"
	"levee/internal/agent/notify/webhook"
)

// Way is the row.
var Way = way.Way{
	Name: "slack", Usage: "write into the channel of this incoming webhook",
	Says: "Slack is the form of its incoming webhooks, which Mattermost, Rocket.Chat and Discord " +
		"take too.",
	Check: func(p *way.Place) error { return webhook.CheckURL(p.To) },
	Where: webhook.Where, Host: webhook.Host, Send: send,
}

// escape keeps text of the network from being a link or a mention of everybody: in Slack's form,
// and in that of Mattermost, Rocket.Chat and Discord, where a blank of no width ends both.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;",
	"@", "@\u200b", "](", "]\u200b(")

// Body returns a message as Slack takes it.
func Body(m *way.Message) ([]byte, error) {
	text := "*" + escape.Replace(m.Machine) + "*: " + escape.Replace(m.Text)
	for _, first := range m.First {
		text += "\n• " + escape.Replace(first)
	}
	return json.Marshal(map[string]any{"text": text, "unfurl_links": false})
}

func send(ctx context.Context, p *way.Place, m *way.Message) error {
	body, err := Body(m)
	if err != nil {
		return way.Never(err)
	}
	return webhook.Deliver(ctx, http.MethodPost, p.To, http.Header{}, body)
}
