// Package mail tells by a letter, through an SMTP server or the local sendmail. No event chooses a
// header of it.
package mail

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/smtp"
	"strings"
	"time"

	"levee/internal/agent/notify/way"
)

// Way is the row.
var Way = way.Way{
	Name: "mail", Usage: "write to this address",
	Says: "Mail goes through the server of --smtp, or the local sendmail.",
	Options: []way.Option{
		{Flag: "smtp", Usage: "server for --mail: HOST:PORT",
			In: func(p *way.Place) *string { return &p.Server }},
		{Flag: "sender", Usage: "sender of --mail (default: levee@ this machine)",
			In: func(p *way.Place) *string { return &p.From }},
	},
	Check: check, Send: send,
	Host: func(p *way.Place) string {
		host, _, _ := net.SplitHostPort(p.Server)
		return host
	},
}

func check(t *way.Place) error {
	for _, a := range []string{t.To, t.From} {
		if a == "" && t.To != "" {
			continue
		}
		if got, err := mail.ParseAddress(a); err != nil || got.Address != a {
			return fmt.Errorf("%.60q is no address of mail, such as ops@example.net", a)
		}
	}
	if t.Server == "" {
		return nil
	}
	if host, port, err := net.SplitHostPort(t.Server); err != nil || host == "" || port == "" {
		return fmt.Errorf("%.60q is no HOST:PORT, such as 127.0.0.1:25", t.Server)
	}
	return nil
}

// send sends a message by SMTP, or by the local sendmail.
func send(ctx context.Context, t *way.Place, m *way.Message) error {
	from := t.From
	if from == "" {
		from = "levee@" + m.Machine
	}
	text := letter(from, t.To, m)
	if t.Server != "" {
		return bySMTP(ctx, t, from, text)
	}
	return way.Execute(ctx, "/usr/sbin/sendmail", []string{"-t", "-i"}, text)
}

func letter(from, to string, m *way.Message) []byte {
	var b bytes.Buffer
	subject := "levee on " + m.Machine + ": " + m.Text
	subject = strings.Join(strings.Fields(strings.ToValidUTF8(subject, "?")), " ")
	if len(subject) > 120 {
		subject = strings.ToValidUTF8(subject[:120], "") + "..."
	}
	fmt.Fprintf(&b, "From: %s\r\nTo: %s\r\nSubject: %s\r\nDate: %s\r\nMessage-ID: <%s@levee>\r\n"+
		"Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n"+
		"Content-Type: text/plain; charset=utf-8\r\n"+
		"Content-Transfer-Encoding: quoted-printable\r\n\r\n", from, to,
		mime.QEncoding.Encode("utf-8", subject), m.At.Format(time.RFC1123Z), m.ID)
	q := quotedprintable.NewWriter(&b)
	fmt.Fprintf(q, "%s\r\n\r\nmachine: %s\r\nat: %s\r\nkind: %s\r\n", m.Text, m.Machine,
		m.At.Format(time.RFC3339), m.Kind)
	if e := m.Event; e != nil {
		for _, f := range [][2]string{{"set", e.Set}, {"origin", e.Origin}, {"entry", e.Entry},
			{"incident", e.Incident}} {
			if f[1] != "" {
				fmt.Fprintf(q, "%s: %s\r\n", f[0], f[1])
			}
		}
	}
	for _, line := range m.First {
		fmt.Fprintf(q, "- %s\r\n", line)
	}
	_ = q.Close() // writes to memory
	return b.Bytes()
}

func bySMTP(ctx context.Context, t *way.Place, from string, text []byte) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Server)
	if err != nil {
		return fmt.Errorf("reach the mail server: %w", err)
	}
	defer c.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(end); err != nil {
			return err
		}
	}
	host, _, _ := net.SplitHostPort(t.Server)
	s, err := smtp.NewClient(c, host)
	if err != nil {
		return fmt.Errorf("talk to the mail server: %w", err)
	}
	if err := letterBySMTP(s, host, from, t.To, text); err != nil {
		return fmt.Errorf("talk to the mail server: %w", err)
	}
	return s.Quit()
}

func letterBySMTP(s *smtp.Client, host, from, to string, text []byte) error {
	if ok, _ := s.Extension("STARTTLS"); ok && !way.IsLoopback(host) {
		if err := s.StartTLS(tlsFor(host)); err != nil {
			return err
		}
	}
	if err := s.Mail(from); err != nil {
		return err
	}
	if err := s.Rcpt(to); err != nil {
		return err
	}
	w, err := s.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	return w.Close()
}

func tlsFor(host string) *tls.Config {
	return &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
}
