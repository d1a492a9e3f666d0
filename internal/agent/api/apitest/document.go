package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// document is an OpenAPI document.
type document struct {
	root    map[string]any
	schemas *jsonschema.Compiler
	known   map[string]*jsonschema.Schema
}

// operation is a method of a path.
type operation struct {
	method, path string
	role         string
	quiet        bool // changes nothing although it is no GET
	params       []any
	body         map[string]any // schema, nil where there is no body
	responses    map[string]any
	at           string // in the document, as a JSON pointer
}

func readDocument(text []byte) (*document, error) {
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	d := &document{schemas: jsonschema.NewCompiler(), known: map[string]*jsonschema.Schema{}}
	d.root, _ = root.(map[string]any)
	d.schemas.AssertFormat()
	return d, d.schemas.AddResource("api.json", root)
}

func object(v any, names ...string) map[string]any {
	for _, n := range names {
		m, _ := v.(map[string]any)
		v = m[n]
	}
	m, _ := v.(map[string]any)
	return m
}

// operations returns all of the document, in order.
func (d *document) operations() (all []operation) {
	for path, methods := range object(d.root, "paths") {
		for method, v := range object(methods) {
			op := operation{method: strings.ToUpper(method), path: path,
				at: "/paths/" + escape(path) + "/" + method}
			o := object(v)
			op.role, _ = o["x-role"].(string)
			op.quiet, _ = o["x-quiet"].(bool)
			op.params, _ = o["parameters"].([]any)
			op.responses = object(o, "responses")
			op.body = object(o, "requestBody", "content", "application/json", "schema")
			all = append(all, op)
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.at, b.at) })
	return all
}

func escape(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

// resolve follows references.
func (d *document) resolve(schema map[string]any) map[string]any {
	for {
		ref, ok := schema["$ref"].(string)
		if !ok {
			return schema
		}
		schema = object(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
}

// check compares an answer with what the document says of it.
func (d *document) check(op *operation, status int, contentType string, body []byte) error {
	key := fmt.Sprint(status)
	if op.responses[key] == nil {
		key = "default"
	}
	content := object(op.responses, key, "content")
	kind, _, _ := strings.Cut(contentType, ";")
	name := ""
	for k := range content {
		if k == contentType || strings.HasPrefix(k, kind) {
			name = k
		}
	}
	if name == "" {
		if len(content) == 0 && len(body) == 0 {
			return nil
		}
		return fmt.Errorf("content type %q is not in the document for %d", contentType, status)
	}
	if !strings.HasSuffix(kind, "json") {
		return nil
	}
	at := op.at + "/responses/" + key + "/content/" + escape(name) + "/schema"
	schema := d.known[at]
	if schema == nil {
		var err error
		if schema, err = d.schemas.Compile("api.json#" + at); err != nil {
			return err
		}
		d.known[at] = schema
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%d has no JSON: %w", status, err)
	}
	if err := schema.Validate(v); err != nil {
		return fmt.Errorf("%d is not as the document says: %w", status, err)
	}
	return nil
}

// text returns a value as JSON.
func text(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return b
}
