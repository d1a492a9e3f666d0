// Package lsp is a language server: it tells editors what the parser and the resolver know about
// the policy that is being written.
//
// In come messages of the Language Server Protocol, out go answers, and diagnostics a moment after
// each change. It reads set files that policies name, writes no file, and knows no interface. What
// an editor sends is bounded.
package lsp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

// settle is the time for which a text has to rest before it is checked: that of a large policy
// takes a moment.
const settle = 150 * time.Millisecond

// Serve answers until the editor says exit, the input ends, or ctx does.
func Serve(ctx context.Context, in io.Reader, out io.WriteCloser) error {
	s := &server{documents: map[string]*document{}}
	conn := jsonrpc2.NewConn(ctx, &stream{r: bufio.NewReaderSize(in, maxHeader), w: out},
		jsonrpc2.HandlerWithError(s.handle))
	defer conn.Close()
	select {
	case <-ctx.Done():
	case <-conn.DisconnectNotify():
	}
	return nil
}

// server is one conversation.
type server struct {
	mu        sync.Mutex
	documents map[string]*document
	stopping  bool
}

// capabilities is the server's answer to initialize. Texts are sent whole.
var capabilities = json.RawMessage(`{"capabilities": {
	"textDocumentSync": {"openClose": true, "change": 1},
	"hoverProvider": true, "definitionProvider": true, "documentFormattingProvider": true,
	"completionProvider": {"triggerCharacters": [" ", "\""]}
}, "serverInfo": {"name": "levee"}}`)

func (s *server) handle(ctx context.Context, c *jsonrpc2.Conn, r *jsonrpc2.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	params := json.RawMessage("{}")
	if r.Params != nil {
		params = *r.Params
	}
	switch r.Method {
	case "initialize":
		return capabilities, nil
	case "shutdown":
		s.stopping = true
		return nil, nil
	case "exit":
		return nil, c.Close()
	case "textDocument/didOpen":
		var p openParams
		if err := read(params, &p); err != nil {
			return nil, err
		}
		t := &p.TextDocument
		return nil, s.change(ctx, c, t.URI, t.Text, t.Version)
	case "textDocument/didChange":
		var p changeParams
		if err := read(params, &p); err != nil {
			return nil, err
		}
		if n := len(p.ContentChanges); n > 0 && s.documents[p.TextDocument.URI] != nil {
			t := &p.TextDocument
			return nil, s.change(ctx, c, t.URI, p.ContentChanges[n-1].Text, t.Version)
		}
		return nil, nil
	case "textDocument/didClose":
		var p positionParams
		if err := read(params, &p); err != nil {
			return nil, err
		}
		delete(s.documents, p.TextDocument.URI)
		return nil, c.Notify(ctx, "textDocument/publishDiagnostics",
			publishParams{URI: p.TextDocument.URI, Diagnostics: []diagnostic{}})
	case "textDocument/hover", "textDocument/definition", "textDocument/completion",
		"textDocument/formatting":
		var p positionParams
		if err := read(params, &p); err != nil {
			return nil, err
		}
		d := s.documents[p.TextDocument.URI]
		if d == nil {
			return nil, invalid("the document is not open")
		}
		d.check()
		switch r.Method {
		case "textDocument/hover":
			return d.hover(p.Position), nil
		case "textDocument/definition":
			return d.definition(p.Position), nil
		case "textDocument/completion":
			return d.complete(p.Position), nil
		}
		return d.format(), nil
	}
	if r.Notif { // what is not asked needs no answer
		return nil, nil
	}
	return nil, &jsonrpc2.Error{Code: jsonrpc2.CodeMethodNotFound, Message: "no " + r.Method}
}

// change gives a document a text, and checks it when it has rested.
func (s *server) change(ctx context.Context, c *jsonrpc2.Conn, uri, text string, v int) error {
	d, all := s.documents[uri], len(text)
	for name, other := range s.documents {
		if name != uri {
			all += len(other.text)
		}
	}
	if d == nil && len(s.documents) == maxDocuments || all > maxText {
		return invalid("too many or too large documents are open")
	}
	if d == nil {
		d = &document{uri: uri}
		s.documents[uri] = d
	}
	d.set(text, v)
	time.AfterFunc(settle, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.documents[uri] != d || d.version != v {
			return
		}
		d.check()
		// an editor that is gone is seen by who reads
		_ = c.Notify(ctx, "textDocument/publishDiagnostics",
			publishParams{uri, v, d.diagnostics()})
	})
	return nil
}

// read reads the parameters of a request.
func read(params json.RawMessage, v any) error {
	if err := json.Unmarshal(params, v); err != nil {
		var bad *json.UnmarshalTypeError
		if errors.As(err, &bad) {
			return invalid(bad.Field + " has the wrong type")
		}
		return invalid(err.Error())
	}
	return nil
}

func invalid(why string) error {
	return &jsonrpc2.Error{Code: jsonrpc2.CodeInvalidParams, Message: why}
}
