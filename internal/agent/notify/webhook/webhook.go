// Package webhook tells by a POST of JSON, signed as Standard Webhooks say (standardwebhooks.com).
// It must never follow a redirect, or show the path of a URL.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"levee/internal/agent/notify/way"
)

// Way is the row.
var Way = way.Way{
	Name: "webhook", Usage: "POST JSON there",
	Says: "A webhook is a POST of JSON, tried four times, signed as Standard Webhooks say; the " +
		"key of its signatures is printed once.",
	Prepare: func(p *way.Place) { p.Secret = NewSecret() },
	Check:   func(p *way.Place) error { return CheckURL(p.To) },
	Where:   Where, Host: Host, Send: post,
}

// Where returns the host of a URL: its path may be secret.
func Where(p *way.Place) string {
	u, err := url.Parse(p.To)
	if err != nil {
		return p.To
	}
	return u.Scheme + "://" + u.Host + "/..."
}

// Host returns the server of a URL.
func Host(p *way.Place) string {
	u, err := url.Parse(p.To)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// CheckURL returns an error for what is no URL of a webhook.
func CheckURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%.60q is no URL: write https://HOST/PATH", s)
	case u.User != nil:
		return errors.New("a URL with a password in it stands in logs: put the secret into the " +
			"path")
	case u.Scheme == "http" && !way.IsLoopback(u.Hostname()):
		return fmt.Errorf("http to %s would tell everybody on the way: use https", u.Hostname())
	}
	return nil
}

// post sends a webhook with the headers of Standard Webhooks (standardwebhooks.com).
func post(ctx context.Context, p *way.Place, m *way.Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	h := http.Header{}
	h.Set("Webhook-Id", m.ID)
	h.Set("Webhook-Timestamp", now)
	if p.Secret != "" {
		sum, err := Sign(p.Secret, m.ID, now, body)
		if err != nil {
			return way.Never(err)
		}
		h.Set("Webhook-Signature", sum)
	}
	return Deliver(ctx, http.MethodPost, p.To, h, body)
}

// Deliver sends JSON to a URL once. What another attempt would meet again is way.Permanent. Errors
// show no path of the URL.
func Deliver(ctx context.Context, method, to string, h http.Header, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return way.Never(err)
	}
	req.Header = h
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "levee")
	shown := Where(&way.Place{To: to})
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%s to %s: %w", strings.ToLower(method), shown, withoutURL(err))
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	switch {
	case res.StatusCode/100 == 2:
		return nil
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode >= 500,
		res.StatusCode == http.StatusRequestTimeout:
		return fmt.Errorf("%s answers %s", shown, res.Status)
	}
	return way.Never(fmt.Errorf("%s answers %s: look at its URL", shown, res.Status))
}

// withoutURL returns an error of net/http without the URL, which may hold a secret.
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
		TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: way.Timeout,
		MaxResponseHeaderBytes: 16 << 10},
}

// Sign returns the signature of a webhook: v1 and HMAC-SHA256 of its id, time and body.
func Sign(secret, id, at string, body []byte) (string, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil {
		return "", errors.New("the secret of the webhook is damaged: add the target again")
	}
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%s.%s.%s", id, at, body)
	return "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil)), nil
}

// NewSecret returns a key for signatures, as Standard Webhooks have it.
func NewSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// secretPrefix is that of Standard Webhooks.
const secretPrefix = "whsec_"
