package matrix

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"levee/internal/agent/notify/way"
)

func TestAMessageGoesIntoARoom(t *testing.T) {
	var got, authorization string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got, authorization = r.Method+" "+r.URL.EscapedPath()+" "+string(body),
			r.Header.Get("Authorization")
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("syt_secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &way.Place{To: server.URL + "/!ops:example.net", Secret: token}
	for range 2 { // the second time it has been read
		if err := Way.Check(p); err != nil {
			t.Fatal(err)
		}
	}
	m := way.NewMessage(way.Test, "a test", time.Now())
	m.Machine, m.ID = "edge", "msg_1"
	if err := Way.Send(t.Context(), p, m); err != nil {
		t.Fatal(err)
	}
	const want = `PUT /_matrix/client/v3/rooms/%21ops:example.net/send/m.room.message/msg_1 ` +
		`{"body":"edge: a test","msgtype":"m.text"}`
	if got != want || authorization != "Bearer syt_secret" {
		t.Errorf("%s, %s\nwant\n%s", got, authorization, want)
	}
}

func TestARoomWithoutATokenIsRefused(t *testing.T) {
	for _, p := range []way.Place{{To: "https://m.example/!ops:example.net"},
		{To: "https://m.example/ops", Secret: "/dev/null"},
		{To: "https://m.example/!ops:example.net", Secret: "/dev/null"},
		{To: "http://m.example/!ops:example.net", Secret: "x"}} {
		if err := Way.Check(&p); err == nil {
			t.Errorf("%+v is taken", p)
		}
	}
}
