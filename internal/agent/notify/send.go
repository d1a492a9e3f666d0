package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/smtp"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"levee/internal/agent/live"
)

// Message is what a target is told, as JSON.
type Message struct {
	ID      string    `json:"id"`
	Machine string    `json:"machine"`
	At      time.Time `json:"at"`
	Kind    live.Kind `json:"kind"` // of the event; summary or test
	Text    string    `json:"text"`
	Event   *Event    `json:"event,omitempty"`
	// of a summary: how many events of each kind the limit held back, and the first texts
	Held  map[live.Kind]int `json:"held,omitempty"`
	First []string          `json:"first,omitempty"`
	Lost  int               `json:"lost,omitempty"` // events that no summary counts
}

// Event is what a message says of an event besides its text.
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
	Summary live.Kind = "summary"
	Test    live.Kind = "test"
)

func newMessage(kind live.Kind, text string, at time.Time) *Message {
	b := make([]byte, 12)
	_, _ = rand.Read(b)
	name, _ := os.Hostname()
	return &Message{ID: "msg_" + hex.EncodeToString(b), Machine: name, At: at, Kind: kind,
		Text: text}
}

// NewTest is a message that tests a target.
func NewTest() *Message {
	return newMessage(Test, "levee: a test of this notification", time.Now().UTC())
}

// sendTimeout is how long one attempt may take.
const sendTimeout = 10 * time.Second

// permanent is an error that another attempt would meet again.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Send tells a target once.
func (t *Target) Send(ctx context.Context, m *Message) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	switch t.Way {
	case Webhook:
		return t.post(ctx, m, body)
	case Mail:
		return t.mail(ctx, m)
	}
	return t.run(ctx, append(body, '\n'))
}

// post sends a webhook with the headers of Standard Webhooks (standardwebhooks.com).
func (t *Target) post(ctx context.Context, m *Message, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.To, bytes.NewReader(body))
	if err != nil {
		return permanent{err}
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "levee")
	req.Header.Set("Webhook-Id", m.ID)
	req.Header.Set("Webhook-Timestamp", now)
	if t.Secret != "" {
		sum, err := Sign(t.Secret, m.ID, now, body)
		if err != nil {
			return permanent{err}
		}
		req.Header.Set("Webhook-Signature", sum)
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("post to %s: %w", t.Where(), withoutURL(err))
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	switch {
	case res.StatusCode/100 == 2:
		return nil
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode >= 500,
		res.StatusCode == http.StatusRequestTimeout:
		return fmt.Errorf("%s answers %s", t.Where(), res.Status)
	}
	return permanent{fmt.Errorf("%s answers %s: look at its URL", t.Where(), res.Status)}
}

// withoutURL is an error of net/http without the URL, which may hold a secret.
func withoutURL(err error) error {
	var u interface{ Unwrap() error }
	if errors.As(err, &u) && u.Unwrap() != nil {
		return u.Unwrap()
	}
	return err
}

// client follows no redirect: whoever answers with one would choose where the message goes.
var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: sendTimeout,
		MaxResponseHeaderBytes: 16 << 10},
}

// Sign is the signature of a webhook: v1 and HMAC-SHA256 of its id, time and body.
func Sign(secret, id, at string, body []byte) (string, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil {
		return "", errors.New("the secret of the webhook is damaged: add the target again")
	}
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%s.%s.%s", id, at, body)
	return "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil)), nil
}

// mail sends a message by SMTP, or by the local sendmail.
func (t *Target) mail(ctx context.Context, m *Message) error {
	from := t.From
	if from == "" {
		from = "levee@" + m.Machine
	}
	text := letter(from, t.To, m)
	if t.Server != "" {
		return t.smtp(ctx, from, text)
	}
	return execute(ctx, "/usr/sbin/sendmail", []string{"-t", "-i"}, text)
}

func letter(from, to string, m *Message) []byte {
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

func (t *Target) smtp(ctx context.Context, from string, text []byte) error {
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
	if ok, _ := s.Extension("STARTTLS"); ok && !isLoopback(host) {
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

func (t *Target) run(ctx context.Context, body []byte) error {
	if err := checkCommand(t.To); err != nil {
		return permanent{err}
	}
	return execute(ctx, t.To, nil, body)
}

// execute runs a program with a text as its input, and kills it with its children when the time is
// over.
func execute(ctx context.Context, path string, args []string, input []byte) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(input)
	said := &limited{left: 512}
	cmd.Stderr = said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil {
		err = nil // it has ended well, and left somebody who goes on
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("it took more than %s", sendTimeout)
		}
		if text := strings.TrimSpace(said.String()); text != "" {
			return fmt.Errorf("run %s: %w: %q", path, err, text)
		}
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}

// limited keeps the beginning of what is written to it.
type limited struct {
	bytes.Buffer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	_, _ = l.Buffer.Write(b[:n])
	return len(b), nil
}
