package apitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Target is the API under test.
type Target struct {
	URL string // as http://127.0.0.1:7443
	// Tokens by role; the roles are tried one after the other, and callers without one.
	Tokens map[string]string
	// Values are texts that mean something here, by the name of a parameter or field.
	Values map[string][]string
	// State is all that a viewer may not change. Operators and admins may.
	State func() (string, error)
	// Calls have to succeed, before anything else is sent: what chance does not find.
	Calls []Call
}

// Call is a request of an operation, as the document has it.
type Call struct {
	Method, Path string
	Role, Target string
	Body         string
	Session      bool // with the cookie of a login in place of the token
}

// Report counts requests, and lists the faults that they showed.
type Report struct {
	Requests int
	Statuses map[int]int
	Faults   []string // at most 20
	// Unheld are operations that have answered nothing but errors: what the document says of their
	// answers was held against none.
	Unheld []string
}

// roles in the order of what they may do; "" has no token.
var roles = []string{"anybody", "viewer", "operator", "admin"}

// Fuzz sends requests until the time is over, each operation as each role at least once.
func Fuzz(t *Target, seed uint64, lasts time.Duration) (*Report, error) {
	rep := &Report{Statuses: map[int]int{}}
	client := &http.Client{Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request,
			[]*http.Request) error {
			return http.ErrUseLastResponse
		}}
	defer client.CloseIdleConnections()
	res, err := client.Get(t.URL + "/api/v1/openapi.json")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	doc, err := readDocument(text)
	if err != nil {
		return nil, err
	}
	ops := doc.operations()
	if len(ops) == 0 {
		return nil, errors.New("the document has no operation")
	}
	f := &fuzzer{Target: t, client: client, rep: rep,
		gen: &generator{Rand: rand.New(rand.NewPCG(seed, 1)), doc: doc, values: t.Values}}
	f.held = map[string]bool{}
	defer func() {
		for i := range ops {
			if name := ops[i].method + " " + ops[i].path; !f.held[name] {
				rep.Unheld = append(rep.Unheld, name)
			}
		}
	}()
	for i := range t.Calls {
		if err := f.call(ops, &t.Calls[i]); err != nil {
			return rep, err
		}
	}
	end := time.Now().Add(lasts)
	for round := 0; round == 0 || time.Now().Before(end); round++ {
		for i := range ops {
			for _, role := range roles {
				if err := f.one(&ops[i], role, round%3 != 0); err != nil {
					return rep, err
				}
			}
		}
	}
	return rep, f.garbage()
}

type fuzzer struct {
	*Target
	client *http.Client
	gen    *generator
	rep    *Report
	held   map[string]bool // operations that have answered what they are for
	// cookies stand for the token, where there are any
	cookies []*http.Cookie
}

func (f *fuzzer) fault(format string, args ...any) {
	if len(f.rep.Faults) < 20 {
		f.rep.Faults = append(f.rep.Faults, fmt.Sprintf(format, args...))
	}
}

func rank(role string) int {
	for i, r := range roles {
		if r == role {
			return i
		}
	}
	return len(roles)
}

// one sends one request as a role, and compares the answer with the document.
func (f *fuzzer) one(op *operation, role string, wrong bool) error {
	target := f.gen.target(op, wrong)
	body, media := f.gen.body(op.body, wrong)
	mayChange := rank(role) > rank("viewer")
	var before string
	var err error
	if op.method != http.MethodGet && !mayChange {
		if before, err = f.State(); err != nil {
			return err
		}
	}
	status, contentType, answer, err := f.send(op, role, target, body, media)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s %.200s as %s with %.200q", op.method, target, role, body)
	f.rep.Requests++
	f.rep.Statuses[status]++
	if status >= 500 && status != http.StatusServiceUnavailable &&
		status != http.StatusInsufficientStorage {
		f.fault("%s: %d %.300s", what, status, answer)
	}
	switch allowed := rank(role) >= rank(op.role); {
	case allowed && (status == http.StatusForbidden ||
		status == http.StatusUnauthorized && op.path != "/api/v1/login"):
		f.fault("%s: %d, although the document lets %s do it", what, status, op.role)
	case !allowed && status != http.StatusForbidden && status != http.StatusUnauthorized:
		f.fault("%s: %d, although the document wants %s", what, status, op.role)
	}
	if err := f.gen.doc.check(op, status, contentType, answer); err != nil {
		f.fault("%s: %v", what, err)
	} else if status/100 == 2 {
		f.held[op.method+" "+op.path] = true
	}
	if op.method != http.MethodGet && !mayChange {
		after, err := f.State()
		if err != nil {
			return err
		}
		if before != after {
			f.fault("%s: changed the state\nfrom %.500s\nto   %.500s", what, before, after)
		}
		if status/100 == 2 && !op.quiet {
			f.fault("%s: %d for somebody who may change nothing", what, status)
		}
	}
	return nil
}

// call sends a request that has to succeed.
func (f *fuzzer) call(ops []operation, c *Call) error {
	at := slices.IndexFunc(ops, func(o operation) bool {
		return o.method == c.Method && o.path == c.Path
	})
	if at < 0 {
		return fmt.Errorf("the document has no %s %s", c.Method, c.Path)
	}
	media := ""
	if c.Body != "" {
		media = "application/json"
	}
	if c.Session {
		res, err := f.client.Post(f.URL+"/api/v1/login", "application/json",
			strings.NewReader(fmt.Sprintf("{\"token\":%q}", f.Tokens[c.Role])))
		if err != nil {
			return err
		}
		defer res.Body.Close()
		f.cookies = res.Cookies()
		defer func() { f.cookies = nil }()
	}
	status, contentType, answer, err := f.send(&ops[at], c.Role, c.Target, []byte(c.Body), media)
	if err != nil {
		return err
	}
	err = f.gen.doc.check(&ops[at], status, contentType, answer)
	if err != nil || status/100 != 2 {
		f.fault("%s %s: %d %.300s %v", c.Method, c.Target, status, answer, err)
		return nil
	}
	f.held[c.Method+" "+c.Path] = true
	return nil
}

// send sends a request. Of a stream it reads the beginning.
func (f *fuzzer) send(op *operation, role, target string, body []byte, media string) (status int,
	contentType string, answer []byte, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, op.method, f.URL+target, bytes.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	for _, c := range f.cookies {
		req.AddCookie(c)
	}
	if token := f.Tokens[role]; token != "" && f.cookies == nil {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := f.client.Do(req)
	if err != nil {
		return 0, "", nil, fmt.Errorf("%s %s: %w", op.method, target, err)
	}
	defer res.Body.Close()
	contentType = res.Header.Get("Content-Type")
	if strings.HasPrefix(contentType, "text/event-stream") {
		first := make([]byte, 16)
		n, err := res.Body.Read(first)
		return res.StatusCode, contentType, first[:n], err
	}
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, contentType, answer, err
}

// garbage sends what is no HTTP, and asks whether the server still answers.
func (f *fuzzer) garbage() error {
	u, err := url.Parse(f.URL)
	if err != nil {
		return err
	}
	for range 50 {
		c, err := net.DialTimeout("tcp", u.Host, 5*time.Second)
		if err != nil {
			return err
		}
		b := []byte("GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ")
		for range f.gen.IntN(200) {
			b = append(b, byte(f.gen.IntN(256)))
		}
		b = append(b[f.gen.IntN(len(b)):], "\r\n\r\n"...)
		_, _ = c.Write(b) // the server may have closed it
		c.Close()
	}
	res, err := f.client.Get(f.URL + "/api/v1/openapi.json")
	if err != nil {
		return fmt.Errorf("after garbage: %w", err)
	}
	return res.Body.Close()
}
