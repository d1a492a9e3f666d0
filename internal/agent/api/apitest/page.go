package apitest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const head = `# The agent's API

HTTP with JSON, at the socket /run/levee-agent/agent.sock and, where the agent was told to listen,
at a port. [The agent's guide](../guides/agent.md#the-api) says how to reach it, and how callers get
a token. This page is made from the OpenAPI document that the agent serves, and a test keeps them
equal.

The role is the least that a caller needs; *anybody* needs no token. Parameters and fields with a
star are required, or always there. What commands show too is explained in [json.md](json.md).
Errors are objects of the type application/problem+json, whose ` + "`detail`" + ` says what to do.

`

// Page returns a page for people, in Markdown, of an OpenAPI document.
func Page(text []byte) (string, error) {
	d, err := readDocument(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(head)
	b.WriteString("| route | role | |\n|---|---|---|\n")
	ops := d.operations()
	for i := range ops {
		op := &ops[i]
		fmt.Fprintf(&b, "| [`%s %s`](#%s) | %s | %s |\n", op.method, op.path, anchor(op), op.role,
			d.summary(op))
	}
	for i := range ops {
		d.section(&b, &ops[i])
	}
	return b.String(), nil
}

func (d *document) summary(op *operation) string {
	s, _ := object(d.root, "paths", op.path, strings.ToLower(op.method))["summary"].(string)
	return s
}

// anchor returns the name that renderers of Markdown give the heading.
func anchor(op *operation) string {
	keep := func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return -1
	}
	return strings.Map(keep, strings.ToLower(op.method+" "+op.path))
}

func (d *document) section(b *strings.Builder, op *operation) {
	fmt.Fprintf(b, "\n## %s %s\n\nRole: %s.\n", op.method, op.path, op.role)
	for _, line := range wrap(d.summary(op)) {
		b.WriteString(line + "\n")
	}
	if len(op.params) > 0 {
		b.WriteString("\n| parameter | type | |\n|---|---|---|\n")
		for _, v := range op.params {
			p := object(v)
			name, _ := p["name"].(string)
			needed, _ := p["required"].(bool)
			said, _ := p["description"].(string)
			schema := object(p, "schema")
			if said == "" {
				said, _ = schema["description"].(string)
			}
			fmt.Fprintf(b, "| `%s`%s | %s | %s |\n", name, star(needed), d.kind(schema), said)
		}
	}
	if op.body != nil {
		b.WriteString("\n| field of the request | type | |\n|---|---|---|\n")
		d.fields(b, op.body, "", nil)
	}
	for kind, v := range object(op.responses, "200", "content") {
		schema := object(v, "schema")
		if of := object(schema, "itemSchema"); len(of) > 0 {
			schema = of
			kind = "data of an event"
		} else if !strings.HasSuffix(kind, "/json") || d.resolve(schema)["type"] != "object" {
			continue
		} else {
			kind = "field of the answer"
		}
		fmt.Fprintf(b, "\n| %s | type | |\n|---|---|---|\n", kind)
		d.fields(b, schema, "", nil)
	}
}

func star(needed bool) string {
	if needed {
		return "\\*"
	}
	return ""
}

// fields are rows for the fields of an object, and of those within it.
func (d *document) fields(b *strings.Builder, schema map[string]any, path string, in []string) {
	schema = d.resolve(schema)
	required, _ := schema["required"].([]any)
	all := object(schema, "properties")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		of := object(all[name])
		said, _ := of["description"].(string)
		if said == "" {
			said, _ = d.resolve(of)["description"].(string)
		}
		fmt.Fprintf(b, "| `%s%s`%s | %s | %s |\n", path, name, star(slices.Contains(required,
			any(name))),
			d.kind(of), said)
		at := path + name + "."
		if d.resolve(of)["type"] == "array" {
			of, at = object(d.resolve(of), "items"), path+name+"[]."
		}
		ref, _ := of["$ref"].(string)
		if d.resolve(of)["type"] == "object" && (ref == "" || !slices.Contains(in, ref)) {
			d.fields(b, of, at, append(slices.Clone(in), ref))
		}
	}
}

// kind returns a schema in words.
func (d *document) kind(schema map[string]any) string {
	schema = d.resolve(schema)
	name := "any"
	switch t := schema["type"].(type) {
	case string:
		name = t
	case []any:
		var all []string
		for _, one := range t {
			all = append(all, fmt.Sprint(one))
		}
		name = strings.Join(all, " or ")
	}
	if name == "array" {
		name = "list of " + d.kind(object(schema, "items"))
	}
	if format, _ := schema["format"].(string); format == "date-time" {
		name = "time"
	}
	if of, ok := schema["enum"].([]any); ok {
		var all []string
		for _, v := range of {
			all = append(all, fmt.Sprint(v))
		}
		name = strings.Join(all, ", ")
	}
	if low, ok := schema["minimum"]; ok {
		name += fmt.Sprintf(", %v", low)
		if high, ok := schema["maximum"]; ok {
			name += fmt.Sprintf(" to %v", high)
		} else {
			name += " or more"
		}
	}
	if v, ok := schema["default"]; ok {
		name += fmt.Sprintf(", else %v", v)
	}
	return name
}

// wrap breaks a sentence into lines of at most 100 columns.
func wrap(s string) (lines []string) {
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && len(line)+1+len(word) > 100 {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
