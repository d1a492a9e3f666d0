package slack

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/notify/way"
)

func TestAMessageGoesIntoAChannel(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.Path + " " + string(body)
	}))
	defer server.Close()
	m := way.NewMessage(way.Summary, "3 events <!channel> & more", time.Now())
	m.Machine, m.First = "edge", []string{"a flood of <http://x|y>",
		"@everyone, [this page](http://x) says more"}
	p := &way.Place{To: server.URL + "/services/T0/B0/secret"}
	if err := Way.Check(p); err != nil {
		t.Fatal(err)
	}
	if err := Way.Send(t.Context(), p, m); err != nil {
		t.Fatal(err)
	}
	const want = `POST /services/T0/B0/secret {"text":"*edge*: 3 events \u0026lt;!channel\u0026gt; ` +
		`\u0026amp; more\n• a flood of \u0026lt;http://x|y\u0026gt;\n• ` +
		"@\u200beveryone, [this page]\u200b(http://x) says more" + `","unfurl_links":false}`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if where := Way.Where(p); strings.Contains(where, "secret") {
		t.Error(where)
	}
}
