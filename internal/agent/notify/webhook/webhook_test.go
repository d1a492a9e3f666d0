package webhook

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/notify/way"
	"levee/internal/agent/pubsub"
)

// TestAWebhookIsSignedAndShowsNoPath, which may be the secret of whoever takes it.
func TestAWebhookIsSignedAndShowsNoPath(t *testing.T) {
	status, secret := http.StatusOK, NewSecret()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		want, err := Sign(secret, r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp"),
			body)
		if err != nil || r.Header.Get("Webhook-Signature") != want {
			t.Errorf("signed %s, want %s, %v", r.Header.Get("Webhook-Signature"), want, err)
		}
		w.WriteHeader(status)
	}))
	defer s.Close()
	p := way.Place{To: s.URL + "/path", Secret: secret}
	m := way.NewMessage(pubsub.Alarm, "a flood", time.Now())
	if err := Way.Send(t.Context(), &p, m); err != nil {
		t.Error(err)
	}
	for status = range map[int]bool{http.StatusNotFound: true, http.StatusFound: true} {
		err := Way.Send(t.Context(), &p, m)
		if !errors.As(err, new(way.Permanent)) || strings.Contains(err.Error(), "/path") {
			t.Errorf("%d: %v", status, err)
		}
	}
	if Way.Where(&p) != s.URL+"/..." || Way.Host(&p) != "127.0.0.1" {
		t.Error(Way.Where(&p), Way.Host(&p))
	}
}
