// Package matrix tells by a message in a room of Matrix (client-server API v1.11, "sending events
// to a room"). The token stands in the file of targets, and is never shown.
package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"levee/internal/agent/notify/way"
	"levee/internal/agent/notify/webhook"
)

// Way is the row.
var Way = way.Way{
	Name: "matrix", Usage: "write into this room of Matrix: https://SERVER/!ROOM:SERVER",
	Says: "Matrix wants the token of a user who is in the room, in a file: --matrix-token-file.",
	Options: []way.Option{{Flag: "matrix-token-file", Usage: "file with the token of --matrix",
		In: func(p *way.Place) *string { return &p.Secret }}},
	Check: check, Where: webhook.Where, Host: webhook.Host, Send: send,
}

// maxToken bounds the file of a token, in bytes.
const maxToken = 4096

// check reads the token, which the file of targets keeps from then on.
func check(p *way.Place) error {
	if err := webhook.CheckURL(p.To); err != nil {
		return err
	}
	if _, room, err := parts(p.To); err != nil || !strings.HasPrefix(room, "!") {
		return fmt.Errorf("%.80q names no room: write https://SERVER/!ROOM:SERVER", p.To)
	}
	if !strings.HasPrefix(p.Secret, "/") && p.Secret != "" {
		return nil // it has been read
	}
	if p.Secret == "" {
		return errors.New("--matrix-token-file is missing: a file with the token of a user " +
			"who is in the room")
	}
	text, err := os.ReadFile(p.Secret)
	if err != nil {
		return fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(token) > maxToken || strings.ContainsAny(token, " \n\r\t/") {
		return fmt.Errorf("%s holds no token alone", p.Secret)
	}
	p.Secret = token
	return nil
}

// parts returns the server's URL and the room.
func parts(to string) (server, room string, err error) {
	u, err := url.Parse(to)
	if err != nil {
		return "", "", err
	}
	return u.Scheme + "://" + u.Host, strings.TrimPrefix(u.Path, "/"), nil
}

func send(ctx context.Context, p *way.Place, m *way.Message) error {
	server, room, err := parts(p.To)
	if err != nil {
		return way.Never(err)
	}
	text := m.Machine + ": " + m.Text
	for _, first := range m.First {
		text += "\n- " + first
	}
	body, err := json.Marshal(map[string]string{"msgtype": "m.text", "body": text})
	if err != nil {
		return way.Never(err)
	}
	to := fmt.Sprintf("%s/_matrix/client/v3/rooms/%s/send/m.room.message/%s", server,
		url.PathEscape(room), url.PathEscape(m.ID))
	return webhook.Deliver(ctx, http.MethodPut, to,
		http.Header{"Authorization": {"Bearer " + p.Secret}}, body)
}
