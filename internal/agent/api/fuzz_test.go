package api

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzARequest: whatever somebody with a token writes is answered, by no mistake of the agent's and
// with a sentence where it is refused. Who may only look changes nothing.
func FuzzARequest(f *testing.F) {
	r := &room{}
	tokens := OpenTokens(filepath.Join(f.TempDir(), "tokens.json"))
	log := OpenAudit(filepath.Join(f.TempDir(), "audit.jsonl"), func(error) {})
	f.Cleanup(func() { log.Close() })
	routes := slices.DeleteFunc(r.routes(), func(r Route) bool { return r.name() == "post-panic" })
	s, err := New(Options{Routes: routes, Tokens: tokens, Audit: log, Version: "1",
		Log: func(format string, args ...any) { f.Errorf(format, args...) }})
	if err != nil {
		f.Fatal(err)
	}
	h := s.handler(&Listener{Listener: (&piped{})})
	var bearer [2]string
	for i, role := range []Role{Viewer, Operator} {
		text, err := tokens.Add(role.String(), role, 0)
		if err != nil {
			f.Fatal(err)
		}
		bearer[i] = "Bearer " + text
	}
	for _, text := range []string{
		"GET /api/v1/sets/a?limit=3 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"POST /api/v1/sets/a HTTP/1.1\r\nHost: [::1]:7443\r\nContent-Type: application/json\r\n" +
			"Content-Length: 17\r\n\r\n{\"entries\":[\"a\"]}",
		"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"2\r\n{}\r\n0\r\n\r\n",
		"HEAD /index.html HTTP/1.0\r\nRange: bytes=1-2,-1\r\nCookie: a=b\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: levee.example\r\nOrigin: http://x\r\n\r\n",
	} {
		f.Add(false, []byte(text))
		f.Add(true, []byte(text))
	}
	f.Fuzz(func(t *testing.T, changes bool, text []byte) {
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(text))))
		if err != nil {
			return // net/http answers it
		}
		req.Header.Set("Authorization", bearer[0])
		if changes {
			req.Header.Set("Authorization", bearer[1])
		}
		r.entries = nil
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if !changes && len(r.entries) > 0 {
			t.Errorf("who may look has changed it to %q", r.entries)
		}
		if w.Code >= http.StatusInternalServerError {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
		var said Problem
		if w.Header().Get("Content-Type") == problemType &&
			(json.Unmarshal(w.Body.Bytes(), &said) != nil || said.Detail == "") {
			t.Errorf("%d without a sentence: %q", w.Code, w.Body)
		}
	})
}
