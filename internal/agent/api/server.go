package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// Bounds of requests and connections.
const (
	maxBody        = 1 << 20
	maxHeader      = 16 << 10
	maxConnections = 128 // of each listener
	headerTimeout  = 5 * time.Second
	readTimeout    = 20 * time.Second
	writeTimeout   = 60 * time.Second
	idleTimeout    = 2 * time.Minute
)

// Options configure a server.
type Options struct {
	Routes  []Route
	Tokens  *Tokens // nil: only callers over the unix socket are known
	Audit   *Audit  // nil: none
	Version string
	Log     func(format string, args ...any)
}

// Server answers requests to the routes of its table. It is made by New and used by many.
type Server struct {
	opts     Options
	mux      *http.ServeMux
	routes   map[string]*Route // by pattern
	document []byte
	counts   counts
}

// New makes a server of a table. A route without a role, a sentence or a handler is an error, and
// so are two of one name.
func New(opts Options) (s *Server, err error) {
	defer func() { // huma and ServeMux panic at routes that are wrong
		if r := recover(); r != nil {
			s, err = nil, fmt.Errorf("a route of the API is wrong: %v", r)
		}
	}()
	s = &Server{opts: opts, mux: http.NewServeMux(), routes: map[string]*Route{}}
	all := slices.Concat(s.own(), opts.Routes)
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{Title: "levee agent", Version: opts.Version,
				Description: "The API of levee's agent. x-role says which role a caller needs."},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token":   {Type: "http", Scheme: "bearer"},
					"session": {Type: "apiKey", In: "cookie", Name: cookieName},
				},
			},
		},
		Formats: map[string]huma.Format{jsonType: huma.DefaultJSONFormat,
			"json": huma.DefaultJSONFormat}, // of problems too
		DefaultFormat: jsonType, RejectUnknownQueryParameters: true,
	}
	a := humago.New(s.mux, config)
	names := map[string]bool{}
	for i := range all {
		r := &all[i]
		switch name := r.name(); {
		case r.Role < Anybody || r.Role > Admin || r.Doc == "" || r.typed == nil && r.raw == nil:
			return nil, fmt.Errorf("the route %s lacks a role, a sentence or a handler",
				r.pattern())
		case names[name]:
			return nil, fmt.Errorf("two routes have the name %s", name)
		default:
			names[name] = true
		}
		s.routes[r.pattern()] = r
		s.register(a, r)
	}
	s.document, err = json.MarshalIndent(a.OpenAPI(), "", "  ")
	return s, err
}

const jsonType = "application/json"

// register makes the multiplexer and the document know a route.
func (s *Server) register(a huma.API, r *Route) {
	op := huma.Operation{OperationID: r.name(), Method: r.Method, Path: r.Path, Summary: r.Doc,
		Extensions:   map[string]any{"x-role": r.Role.String(), "x-quiet": r.Quiet},
		MaxBodyBytes: r.limit(), BodyReadTimeout: -1}
	if !r.Quiet {
		delete(op.Extensions, "x-quiet")
	}
	if r.Role > Anybody {
		op.Security = []map[string][]string{{"token": {}}, {"session": {}}}
	}
	if r.typed != nil {
		r.typed(a, &op)
		return
	}
	s.mux.Handle(r.pattern(), r.raw)
	if r.files() {
		return
	}
	schemas := a.OpenAPI().Components.Schemas
	schema := &huma.Schema{Type: huma.TypeString}
	op.Parameters = parameters(schemas, r.query)
	if r.kind == jsonType { // the document itself
		schema = &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true,
			Required: []string{"openapi", "info", "paths", "components"}}
	}
	if r.event != nil {
		least := 0.0
		op.Parameters = append(op.Parameters, &huma.Param{Name: "Last-Event-ID", In: "header",
			Description: "The number of the last event that the caller has seen: those since " +
				"then come first, as far as they are kept.",
			Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: &least}})
		schema.Description = "Each event's data is a JSON object as in itemSchema."
		schema.Extensions = map[string]any{
			"itemSchema": schemas.Schema(reflect.TypeOf(r.event), true, "Event")}
	}
	problem := schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	content := map[string]*huma.MediaType{}
	for _, kind := range strings.Split(r.kind, ", ") {
		content[kind] = &huma.MediaType{Schema: schema}
	}
	op.Responses = map[string]*huma.Response{
		"200": {Description: http.StatusText(http.StatusOK), Content: content},
		"default": {Description: "Error",
			Content: map[string]*huma.MediaType{problemType: {Schema: problem}}},
	}
	a.OpenAPI().AddOperation(&op)
}

// parameters returns the fields of a struct as parameters of a raw route.
func parameters(schemas huma.Registry, of any) (out []*huma.Param) {
	if of == nil {
		return nil
	}
	t := reflect.TypeOf(of)
	for i := range t.NumField() {
		f := t.Field(i)
		for _, in := range []string{"path", "query"} {
			if name := f.Tag.Get(in); name != "" {
				out = append(out, &huma.Param{Name: name, In: in, Required: in == "path",
					Description: f.Tag.Get("doc"), Schema: huma.SchemaFromField(schemas, f, "")})
			}
		}
	}
	return out
}

// schemaName returns the package of a type and its name, so that packages need not know of each
// other.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := huma.DefaultSchemaNamer(t, hint)
	pkg := t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:]
	if pkg == "" || pkg == "main" {
		return name
	}
	return strings.ToUpper(pkg[:1]) + pkg[1:] + name
}

// files tells whether the route serves files, which are no part of the document.
func (r *Route) files() bool { return r.raw != nil && r.kind == "" }

func (r *Route) limit() int64 {
	if r.MaxBody > 0 {
		return r.MaxBody
	}
	return maxBody
}

// Document returns the OpenAPI document.
func (s *Server) Document() []byte { return s.document }

const loginPath = "/api/v1/login"

// own returns the routes of the frame itself.
func (s *Server) own() []Route {
	type none struct{}
	document := Raw("/api/v1/openapi.json", Anybody, "This document.", jsonType, nil,
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", jsonType)
			_, _ = w.Write(s.document) // who asked may be gone
		})
	login := Route{Method: http.MethodPost, Path: loginPath, Role: Anybody, Quiet: true,
		MaxBody: 1 << 10, Doc: "Take a token, and set a cookie that stands for it."}
	login.typed = func(a huma.API, op *huma.Operation) { huma.Register(a, *op, s.login) }
	logout := Route{Method: http.MethodPost, Path: "/api/v1/logout", Role: Anybody, Quiet: true,
		MaxBody: 1 << 10, Doc: "Take the cookie back."}
	logout.typed = func(a huma.API, op *huma.Operation) { huma.Register(a, *op, s.logout) }
	renew := Route{Method: http.MethodPost, Path: "/api/v1/renew", Role: Viewer, Quiet: true,
		MaxBody: 1 << 10, Doc: "Put off the end of the session that the cookie stands for."}
	renew.typed = func(a huma.API, op *huma.Operation) { huma.Register(a, *op, s.renew) }
	return []Route{document, login, renew, logout,
		Get("/api/v1/me", Anybody, "Who the caller is, and what the caller may do.",
			func(ctx context.Context, _ *none) (*Caller, error) {
				c := CallerOf(ctx)
				return &c, nil
			})}
}

// Caller is the sender of a request.
type Caller struct {
	Name string `json:"name" doc:"Of the token; root over the unix socket."`
	Role Role   `json:"role" enum:"anybody,viewer,operator,admin" doc:"What the caller may do."`
	From string `json:"from" doc:"Address, or unix."`
	// of the token
	Expires *time.Time `json:"expires,omitempty" doc:"When the token ends."`
}

// Origin returns the origin of a caller's leases and rules: command where root asks at the unix
// socket. No source or detector can have the name of a token's, as these have no colon.
func (c Caller) Origin(command string) string {
	if c.Role == Admin && c.From == "unix" {
		return command
	}
	return "api:" + c.Name
}

type callerKey struct{}

// CallerOf returns who asks, for a handler.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// handler answers the requests that come by one listener.
func (s *Server) handler(via *Listener) http.Handler {
	var cross http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{ResponseWriter: w}
		begun := time.Now()
		var route *Route
		var caller Caller
		var body []byte
		defer func() {
			why := ""
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler {
					panic(p)
				}
				why = fmt.Sprint(p)
				s.opts.Log("a request for %s made the agent panic: %v\n%s", r.URL.Path, p,
					debug.Stack())
				if a.status == 0 {
					writeProblem(a, http.StatusInternalServerError,
						"the agent has made a mistake, which stands in its log: please report it")
				}
			}
			s.counts.add(route, a.status)
			s.audit(r, a, route, caller, body, begun, why)
		}()
		headers(w.Header())
		if err := via.hostAllowed(r.Host); err != nil {
			writeProblem(a, http.StatusMisdirectedRequest, "%v", err)
			return
		}
		if err := cross.Check(r); err != nil {
			writeProblem(a, http.StatusForbidden, "a page of another origin asked for this: %v; "+
				"use the agent's own page, or a token without a browser", err)
			return
		}
		h, pattern := s.mux.Handler(r)
		if route = s.routes[pattern]; route == nil || route.files() && beyond(r) {
			route = nil
			s.unknown(a, r, h)
			return
		}
		var err error
		if caller, err = s.identify(r); err != nil {
			a.Header().Set("WWW-Authenticate", `Bearer realm="levee"`)
			writeProblem(a, http.StatusUnauthorized, "%v", err)
			return
		}
		if !caller.Role.Covers(route.Role) {
			if caller.Role <= Anybody {
				a.Header().Set("WWW-Authenticate", `Bearer realm="levee"`)
				writeProblem(a, http.StatusUnauthorized, "this needs a token of the role %s: "+
					"levee agent token add NAME --role %s makes one", route.Role, route.Role)
				return
			}
			writeProblem(a, http.StatusForbidden, "%s has the role %s, and this needs %s: levee "+
				"agent token add NAME --role %s makes such a token", caller.Name, caller.Role,
				route.Role, route.Role)
			return
		}
		ctx := context.WithValue(r.Context(), callerKey{}, caller)
		ctx = context.WithValue(ctx, requestKey{}, r)
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if body, err = io.ReadAll(http.MaxBytesReader(a, r.Body, route.limit())); err != nil {
				s.unread(a, route, err)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			ctx = context.WithoutCancel(ctx) // what has begun is done, also if the caller is gone
		}
		at, _ := ctx.Value(peerKey{}).(peer)
		if caller.Role > Anybody { // whoever has no token and reads slowly makes room for others
			at.conn.answering(caller.Name)
			defer at.conn.answering("")
		}
		s.mux.ServeHTTP(a, r.WithContext(ctx))
	})
}

func (s *Server) unread(w http.ResponseWriter, route *Route, err error) {
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		writeProblem(w, http.StatusRequestEntityTooLarge, "the request has more than %d bytes: "+
			"send it in parts", route.limit())
		return
	}
	writeProblem(w, http.StatusRequestTimeout, "the request did not come whole: %v; send it again",
		err)
}

// beyond tells whether a request asks for the API, where no files are.
func beyond(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/") }

// unknown answers what no route takes, with the status that the multiplexer has for it.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request, h http.Handler) {
	probe := &answer{ResponseWriter: discard{http.Header{}}}
	h.ServeHTTP(probe, r)
	get := r.Clone(r.Context())
	get.Method = http.MethodGet
	_, other := s.mux.Handler(get)
	switch allow := probe.Header().Get("Allow"); {
	case beyond(r) && (s.routes[other] == nil || s.routes[other].files()) && allow == "GET, HEAD",
		probe.status/100 == 2:
		notFound(w)
	case probe.status == http.StatusMethodNotAllowed:
		w.Header().Set("Allow", allow)
		writeProblem(w, probe.status, "%.20s is not for this path: it takes %s", r.Method, allow)
	case probe.status/100 == 3: // a path with dots or without its last slash
		w.Header().Set("Location", probe.Header().Get("Location"))
		writeProblem(w, probe.status, "the path is written otherwise: see Location")
	default:
		notFound(w)
	}
}

func notFound(w http.ResponseWriter) {
	writeProblem(w, http.StatusNotFound, "there is no such path: GET /api/v1/openapi.json lists "+
		"them")
}

// discard is an answer that nobody gets.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) WriteHeader(int)             {}
func (d discard) Write(b []byte) (int, error) { return len(b), nil }

// answer remembers the status.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// headers are on every answer: nothing of another origin is loaded, framed or told.
func headers(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; base-uri 'none'; "+
		"form-action 'self'; frame-ancestors 'none'; object-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// Serve answers requests until ctx ends, or the listener fails. It closes that in any case.
func (s *Server) Serve(ctx context.Context, l *Listener) error {
	srv := &http.Server{Handler: s.handler(l), ReadHeaderTimeout: headerTimeout,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ConnContext: withPeer, ErrorLog: quietLog()}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	err := srv.Serve(l.listener())
	if ctx.Err() != nil {
		return nil
	}
	srv.Close()
	return fmt.Errorf("answer at %s: %w", l.Addr(), err)
}

// withPeer lets handlers know who is at the other end of a connection.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, peerOf(c))
}
