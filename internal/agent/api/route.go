package api

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Role says which routes a caller may use. A role covers those before it.
type Role uint8

const (
	_        Role = iota // of nobody: no route may have it, and it covers none
	Anybody              // who has no token: the files of the page, log in
	Viewer               // looks at everything, changes nothing
	Operator             // also changes entries, leases and incidents
	Admin                // everything
)

var roleNames = [...]string{"", "anybody", "viewer", "operator", "admin"}

func (r Role) String() string { return roleNames[r] }

// MarshalText is for JSON.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the name of a role.
func (r *Role) UnmarshalText(b []byte) (err error) {
	*r, err = ParseRole(string(b))
	return err
}

// ParseRole reads the role of a token.
func ParseRole(s string) (Role, error) {
	for r := Viewer; r <= Admin; r++ {
		if r.String() == s {
			return r, nil
		}
	}
	return 0, fmt.Errorf("%q is no role: viewer, operator or admin", s)
}

// Covers tells whether a caller with this role may do what needs another.
func (r Role) Covers(need Role) bool { return need >= Anybody && r >= need }

// Route is one row of the table. The zero value is refused.
type Route struct {
	Method string
	Path   string // as of net/http.ServeMux; parameters in braces
	Role   Role
	Doc    string // one sentence
	// Quiet routes change nothing that counts although they are no GET, and their bodies are no
	// matter of the audit log: log in, log out, the check of a text.
	Quiet bool
	// MaxBody limits the bytes of a request, 0 for 1 MiB.
	MaxBody int64

	typed func(huma.API, *huma.Operation) // of a route with types
	raw   http.Handler                    // of one without, in their stead
	kind  string                          // content type of a raw one
	event any                             // of a stream: a value of the type of its events
	query any                             // of a raw one: a value of the type of its parameters
}

// pattern returns the route as ServeMux has it.
func (r *Route) pattern() string { return r.Method + " " + r.Path }

// name returns the route's in the document and in the audit log: get-sets-set-entries.
func (r *Route) name() string {
	path := strings.TrimPrefix(r.Path, "/api/v1")
	words := strings.FieldsFunc(path, func(c rune) bool { return strings.ContainsRune("/{}.", c) })
	return strings.Join(append([]string{strings.ToLower(r.Method)}, words...), "-")
}

// output turns a handler's value into the body.
type output[Out any] struct{ Body *Out }

// typed makes a route of a function. In is a struct, whose fields are parameters by their tags
// (path:"set", query:"limit") and Body, where the request has one; the tags doc, minimum, maximum,
// minLength, maxLength, enum, default and others of huma say what is taken.
func typed[In, Out any](method, path string, role Role, doc string,
	do func(context.Context, *In) (*Out, error)) Route {
	return Route{Method: method, Path: path, Role: role, Doc: doc,
		typed: func(a huma.API, op *huma.Operation) {
			huma.Register(a, *op, func(ctx context.Context, in *In) (*output[Out], error) {
				out, err := do(ctx, in)
				if err != nil {
					return nil, err
				}
				return &output[Out]{out}, nil
			})
		}}
}

// Get returns a route that looks.
func Get[In, Out any](path string, role Role, doc string,
	do func(context.Context, *In) (*Out, error)) Route {
	return typed(http.MethodGet, path, role, doc, do)
}

// Post returns a route that changes something.
func Post[In, Out any](path string, role Role, doc string,
	do func(context.Context, *In) (*Out, error)) Route {
	return typed(http.MethodPost, path, role, doc, do)
}

// Delete returns a route that takes something away.
func Delete[In, Out any](path string, role Role, doc string,
	do func(context.Context, *In) (*Out, error)) Route {
	return typed(http.MethodDelete, path, role, doc, do)
}

// Raw returns a route that looks and answers by itself, with a content type that is not JSON, or
// one of several with ", " between them. query is a struct whose fields are its parameters in the
// document, or nil; the handler reads them by itself.
func Raw(path string, role Role, doc, contentType string, query any, h http.HandlerFunc) Route {
	return Route{Method: http.MethodGet, Path: path, Role: role, Doc: doc, raw: h,
		kind: contentType, query: query}
}

// Files serves the files of a tree below path, which ends in a slash, to everybody: they hold
// nothing of the machine. They are no part of the document.
func Files(path string, tree fs.FS) Route {
	files := http.StripPrefix(strings.TrimSuffix(path, "/"), http.FileServerFS(tree))
	return Route{Method: http.MethodGet, Path: path, Role: Anybody, Doc: "Files of the page.",
		raw: files}
}

// Refuse returns an error with a status of HTTP and a sentence that says what to do.
func Refuse(status int, format string, args ...any) error {
	return huma.NewError(status, fmt.Sprintf(format, args...))
}
