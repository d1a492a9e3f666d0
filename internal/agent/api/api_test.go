package api

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// room holds the entries that the route of the tests changes.
type room struct{ entries []string }

type addInput struct {
	Set  string `path:"set" maxLength:"8"`
	Body struct {
		Entries []string `json:"entries" minItems:"1" maxItems:"3"`
	}
}

type contents struct {
	Entries []string `json:"entries"`
}

func (r *room) routes() []Route {
	return []Route{
		Get("/api/v1/sets/{set}", Viewer, "Look.",
			func(_ context.Context, in *struct {
				Set   string `path:"set"`
				Limit int    `query:"limit" minimum:"1" maximum:"9" default:"5"`
			}) (*contents, error) {
				if in.Set == "none" {
					return nil, Refuse(http.StatusNotFound, "there is no set %s", in.Set)
				}
				return &contents{append([]string{}, r.entries...)}, nil
			}),
		Post("/api/v1/sets/{set}", Operator, "Change.",
			func(_ context.Context, in *addInput) (*contents, error) {
				r.entries = append(r.entries, in.Body.Entries...)
				return &contents{append([]string{}, r.entries...)}, nil
			}),
		Post("/api/v1/panic", Admin, "Panic.",
			func(context.Context, *struct{}) (*contents, error) { panic("oh") }),
		Files("/", fstest.MapFS{"index.html": {Data: []byte("a page")}}),
	}
}

// start serves the routes of a room at a port of the loopback and at a unix socket.
func start(t *testing.T) (r *room, url, socket string, tokens *Tokens, audit string) {
	t.Helper()
	dir := t.TempDir()
	r = &room{}
	tokens = OpenTokens(filepath.Join(dir, "tokens.json"))
	log := OpenAudit(filepath.Join(dir, "audit.jsonl"), func(error) {})
	s, err := New(Options{Routes: r.routes(), Tokens: tokens, Audit: log, Version: "1",
		Log: func(string, ...any) {}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen("127.0.0.1:0", "", "", []string{"levee.example"})
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	u, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(t.Context(), l)
	go s.Serve(t.Context(), &Listener{Listener: u})
	t.Cleanup(func() { log.Close() })
	return r, strings.TrimSuffix(l.URL(), "/"), socket, tokens, filepath.Join(dir, "audit.jsonl")
}

func add(t *testing.T, tokens *Tokens, name string, role Role) string {
	t.Helper()
	text, err := tokens.Add(name, role, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// ask sends a request; headers come in pairs.
func ask(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

func TestRequestsAreAnsweredOrRefusedWithASentence(t *testing.T) {
	_, url, _, tokens, _ := start(t)
	viewer, operator := "Bearer "+add(t, tokens, "look", Viewer), "Bearer "+add(t, tokens, "ops",
		Operator)
	admin := "Bearer " + add(t, tokens, "boss", Admin)
	good := `{"entries":["a"]}`
	const auth, kind, form = "Authorization", "Content-Type", "application/x-www-form-urlencoded"
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		says               string
	}{
		"no token": {"GET", "/api/v1/sets/a", "", nil, 401, "levee agent token add"},
		"a wrong token": {"GET", "/api/v1/sets/a", "", []string{auth, "Bearer x"}, 401,
			"not known"},
		"another scheme": {"GET", "/api/v1/sets/a", "", []string{auth, "Basic eA=="}, 401,
			"Bearer TOKEN"},
		"a viewer looks": {"GET", "/api/v1/sets/a", "", []string{auth, viewer}, 200, `{"entries":[`},
		"a viewer changes": {"POST", "/api/v1/sets/a", good, []string{auth, viewer}, 403,
			"needs operator"},
		"an operator changes": {"POST", "/api/v1/sets/a", good, []string{auth, operator}, 200, `"a"`},
		"of no set": {"GET", "/api/v1/sets/none", "", []string{auth, admin}, 404,
			"there is no set"},
		"a limit too large": {"GET", "/api/v1/sets/a?limit=10", "", []string{auth, viewer},
			422, "query.limit: expected number <= 9"},
		"an unknown parameter": {"GET", "/api/v1/sets/a?limt=1", "", []string{auth, viewer}, 422,
			"limt"},
		"a body of other type": {"POST", "/api/v1/sets/a", good, []string{auth, operator, kind,
			form}, 415, "form"},
		"a body that is broken": {"POST", "/api/v1/sets/a", "{", []string{auth, operator}, 400,
			"JSON"},
		"a body without field": {"POST", "/api/v1/sets/a", "{}", []string{auth, operator}, 422,
			"entries"},
		"a field too many": {"POST", "/api/v1/sets/a", `{"entries":["a"],"x":1}`, []string{auth, operator}, 422, "body.x"},
		// No more than what is taken in before the answer: a client that still writes may miss it.
		"a body too long": {"POST", "/api/v1/sets/a", strings.Repeat(" ", maxBody+1),
			[]string{auth, operator}, 413, "in parts"},
		"another method": {"PUT", "/api/v1/sets/a", "", []string{auth, operator}, 405,
			"it takes GET, HEAD, POST"},
		"no such path":         {"GET", "/api/v1/nothing", "", nil, 404, "openapi.json"},
		"no such path to post": {"POST", "/api/v1/nothing", "", nil, 404, "openapi.json"},
		"a panic": {"POST", "/api/v1/panic", "", []string{auth, admin}, 500,
			"report"},
		"a name of another": {"GET", "/api/v1/openapi.json", "", []string{"Host",
			"evil.example"}, 421, "--host"},
		"a name that was given": {"GET", "/api/v1/openapi.json", "", []string{"Host",
			"levee.example:80"}, 200, "openapi"},
		"an address as name": {"GET", "/api/v1/openapi.json", "", []string{"Host", "[::1]:80"},
			200, "openapi"},
		"another origin": {"POST", "/api/v1/sets/a", good, []string{auth, operator,
			"Origin", "http://evil.example"}, 403, "another origin"},
		"another site": {"POST", "/api/v1/login", "{}", []string{"Sec-Fetch-Site",
			"cross-site"}, 403, "another origin"},
		"the page": {"GET", "/", "", nil, 200, "a page"},
	} {
		res, text := ask(t, c.method, url+c.path, c.body, c.headers...)
		if res.StatusCode != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s\nwant %d with %q", name, res.StatusCode, text, c.status, c.says)
		}
		var p Problem
		if c.status >= 400 && (json.Unmarshal([]byte(text), &p) != nil || p.Status != c.status ||
			p.Detail == "" || res.Header.Get("Content-Type") != problemType) {
			t.Errorf("%s: %s is no problem", name, text)
		}
	}
}
