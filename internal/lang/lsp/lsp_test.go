package lsp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/lang/field"
	"levee/internal/lang/syntax"
)

// editor is the other end of a conversation, over pipes.
type editor struct {
	t      *testing.T
	to     io.WriteCloser
	from   *stream
	id     int
	served chan error
}

func newEditor(t *testing.T) *editor {
	in, to := io.Pipe()
	from, out := io.Pipe()
	e := &editor{t: t, to: to, from: &stream{r: bufio.NewReader(from)},
		served: make(chan error, 1)}
	go func() { e.served <- Serve(t.Context(), in, out) }()
	t.Cleanup(func() { to.Close() })
	return e
}

func (e *editor) send(message map[string]any) {
	e.t.Helper()
	message["jsonrpc"] = "2.0"
	text, err := json.Marshal(message)
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(e.to, "Content-Length: %d\r\nContent-Type: a\r\n\r\n%s", len(text),
		text); err != nil {
		e.t.Fatal(err)
	}
}

func (e *editor) notify(method string, params any) {
	e.t.Helper()
	e.send(map[string]any{"method": method, "params": params})
}

// receive is the next message that want takes.
func (e *editor) receive(want func(m map[string]any) bool) map[string]any {
	e.t.Helper()
	for {
		var m map[string]any
		if err := e.from.ReadObject(&m); err != nil {
			e.t.Fatal(err)
		}
		if want(m) {
			return m
		}
	}
}

// ask is the result of a request as JSON, or its error.
func (e *editor) ask(method string, params any) string {
	e.t.Helper()
	e.id++
	e.send(map[string]any{"id": e.id, "method": method, "params": params})
	m := e.receive(func(m map[string]any) bool { return m["id"] == float64(e.id) })
	if m["error"] != nil {
		return fmt.Sprint(m["error"])
	}
	text, err := json.Marshal(m["result"])
	if err != nil {
		e.t.Fatal(err)
	}
	return string(text)
}

func (e *editor) open(uri, text string) {
	e.t.Helper()
	e.notify("textDocument/didOpen", map[string]any{"textDocument": map[string]any{
		"uri": uri, "languageId": "levee", "version": 1, "text": text}})
}

// published are the next diagnostics.
func (e *editor) published() string {
	e.t.Helper()
	m := e.receive(func(m map[string]any) bool {
		return m["method"] == "textDocument/publishDiagnostics"
	})
	text, err := json.Marshal(m["params"])
	if err != nil {
		e.t.Fatal(err)
	}
	return string(text)
}

func at(uri string, line, character int) map[string]any {
	return map[string]any{"textDocument": map[string]any{"uri": uri},
		"position": map[string]any{"line": line, "character": character}}
}

func TestAnEditorsConversation(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bogons.txt"), []byte("10.0.0.0/8\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	uri := "file://" + dir + "/edge.levee"
	e := newEditor(t)
	has := func(what, got string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: no %s in %s", what, w, got)
			}
		}
	}
	has("initialize", e.ask("initialize", map[string]any{"capabilities": map[string]any{}}),
		`"hoverProvider":true`)
	e.notify("initialized", map[string]any{})
	e.open(uri, "drop   udp form 192.0.2.1\ndefault pass\n")
	has("an error", e.published(), `"severity":1`, `did you mean`, `"line":0`,
		`"character":11`, `"character":15`)

	const policy = "set bogons = file(\"bogons.txt\")\nset web = { 80, 443 }\n" +
		"set bad = dynamic(max 10, lease 1h)\n" +
		"drop from bogons as \"𝄞 bogon\"   # why\n" +
		"drop  from bad\npass tcp port web\npass tcp port 80\ndefault drop\n" +
		"test \"t\" { packet from 10.0.0.1 expect drop by \"𝄞 bogon\" }\n"
	e.notify("textDocument/didChange", map[string]any{
		"textDocument":   map[string]any{"uri": uri, "version": 2},
		"contentChanges": []any{map[string]any{"text": policy}}})
	has("a warning", e.published(), `"severity":2`, `"line":6`, `"version":2`)

	has("a set", e.ask("textDocument/hover", at(uri, 3, 12)), "Set of 1 addresses", "10.0.0.0/8")
	has("a dynamic set", e.ask("textDocument/hover", at(uri, 4, 12)), "at most 10 entries")
	has("a label", e.ask("textDocument/hover", at(uri, 8, 55)), "line 4", "drop from bogons")
	has("a word", e.ask("textDocument/hover", at(uri, 5, 6)), "protocol", `"character":5`)
	has("nothing", e.ask("textDocument/hover", at(uri, 3, 36)), "null")
	has("beyond", e.ask("textDocument/hover", at(uri, 300, -7)), "null")
	has("a set's place", e.ask("textDocument/definition", at(uri, 5, 16)),
		`"start":{"character":4,"line":1}`, `"end":{"character":7,"line":1}`)
	// the clef is two code units
	has("a label's place", e.ask("textDocument/definition", at(uri, 8, 55)),
		`"start":{"character":20,"line":3}`, `"end":{"character":30,"line":3}`)
	has("sets", e.ask("textDocument/completion", at(uri, 3, 10)), `"label":"bad"`,
		`"label":"any"`)
	has("terms", e.ask("textDocument/completion", at(uri, 5, 6)), `"label":"fragments"`)
	has("statements", e.ask("textDocument/completion", at(uri, 4, 2)), `"label":"protect"`)
	has("labels", e.ask("textDocument/completion", at(uri, 8, 48)), `"label":"𝄞 bogon"`)
	has("layout", e.ask("textDocument/formatting", at(uri, 0, 0)), `drop from bad\n`,
		`"line":10`)

	has("a method", e.ask("textDocument/moniker", at(uri, 0, 0)), "-32601")
	has("parameters", e.ask("textDocument/hover", []any{1}), "-32602")
	has("a document", e.ask("textDocument/hover", at("file:///x", 0, 0)), "not open")
	e.notify("textDocument/didClose", at(uri, 0, 0))
	has("the end", e.published(), `"diagnostics":[]`)
	has("shutdown", e.ask("shutdown", nil), "null")
	e.notify("exit", nil)
	select {
	case err := <-e.served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("exit does not end it")
	}
}

// A set was known only once the whole policy had been without an error.
func TestASetIsKnownWhileSomethingElseIsWrong(t *testing.T) {
	d := &document{uri: "file:///nowhere/a.levee"}
	told := func(line, character int) string {
		d.check()
		if h := d.hover(position{line, character}); h != nil {
			return h.Contents.Value
		}
		return ""
	}
	const sets = "set a = { 10.0.0.0/8 }\nset b = dynamic(max 10)\nset c = { 10.0.0.0/33 }\n"
	d.set(sets+"drop form a\n", 1)
	if got := told(0, 4); !strings.Contains(got, "10.0.0.0/8") {
		t.Errorf("a: %q", got)
	}
	if got := told(1, 4); !strings.Contains(got, "at most 10") {
		t.Errorf("b: %q", got)
	}
	if got := told(2, 4); got != "" {
		t.Errorf("c, which has an error: %q", got)
	}
	d.set(strings.ReplaceAll(sets, "/33", "/9")+"drop from a\ndrop from c\ndefault pass\n", 2)
	told(0, 4)
	d.set(sets+"drop from a\ndrop from c\ndefault pass\n", 3)
	if got := told(2, 4); !strings.Contains(got, "10.0.0.0/9") {
		t.Errorf("c, as it was before: %q", got)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	for what, text := range map[string]string{
		"a long message": fmt.Sprintf("Content-Length: %d\r\n\r\n", maxMessage+1),
		"no length":      "A: 1\r\n\r\n{}",
		"no number":      "Content-Length: -1\r\n\r\n{}",
		"a long header":  strings.Repeat("A: 1\r\n", 1000) + "Content-Length: 2\r\n\r\n{}",
		"a long line":    strings.Repeat("A", 10000) + "\r\n\r\n{}",
		"half a message": "Content-Length: 20\r\n\r\n{}",
		"no JSON":        "Content-Length: 1\r\n\r\n{",
	} {
		var v any
		s := &stream{r: bufio.NewReaderSize(strings.NewReader(text), maxHeader)}
		if err := s.ReadObject(&v); err == nil {
			t.Errorf("%s was read as %v", what, v)
		}
	}
}

// FuzzDocument asks everything at every place of a text.
func FuzzDocument(f *testing.F) {
	f.Add("drop from a as \"b\nset a = {", 0, 9)
	f.Add("test \"\xff𝄞\" { packet by \"", 0, 300)
	f.Fuzz(func(t *testing.T, text string, line, character int) {
		d := &document{uri: "file:///nowhere/a.levee"}
		d.set(text, 1)
		d.check()
		d.diagnostics()
		at := position{line, character}
		d.hover(at)
		d.definition(at)
		d.complete(at)
		d.format()
	})
}

// TestWordsOfRulesAreOffered: behind `out` were terms, and behind a match no word but terms.
func TestWordsOfRulesAreOffered(t *testing.T) {
	for line, want := range map[string]string{
		"out ":                             "default",
		"out dr":                           "drop",
		"out drop ":                        "service",
		"out drop tcp user ":               "tcp",
		"limit udp ":                       "rate",
		"out limit udp rate 10/s by ":      "destination",
		"log udp ":                         "sample",
		"greylist udp ":                    "within",
		"cookie ":                          "a2s",
		"fragments ":                       "track",
		"redirect udp to ":                 "ring",
		"redirect udp to ring \"a\" else ": "drop",
		"    packet udp expect ":           "redirect",
		"set resolvers = ":                 "names",
	} {
		d := &document{}
		d.set(line, 1)
		d.check()
		var got []string
		for _, it := range d.complete(position{0, len(line)}) {
			got = append(got, it.Label)
		}
		if !slices.Contains(got, want) {
			t.Errorf("%q: no %s in %q", line, want, got)
		}
	}
}

// TestEachWordHasAMeaning looks for words of rules that the tables of the reference lack.
func TestEachWordHasAMeaning(t *testing.T) {
	words := syntax.Statements()
	for i := range field.Phrases {
		if ph := &field.Phrases[i]; ph.Form != field.FormPacket {
			of := strings.Fields(ph.Word)
			if ph.Form == field.FormAlone {
				of = of[:1] // the row of the first tells of both
			}
			words = append(append(words, of...), ph.Words...)
		}
	}
	for _, w := range words {
		if meaning(w) == "" {
			t.Errorf("%q has no meaning", w)
		}
	}
}
