package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Problem is the one form of errors (RFC 9457). Its detail is a sentence that says what to do.
type Problem struct {
	Title  string   `json:"title" doc:"The status in words."`
	Status int      `json:"status" doc:"The status of HTTP."`
	Detail string   `json:"detail" doc:"What is wrong, and what to do."`
	Faults []*Fault `json:"errors,omitempty" doc:"What is wrong with which part of the request."`
}

// Fault is one thing that is wrong with a request.
type Fault struct {
	Message  string `json:"message"`
	Location string `json:"location,omitempty" doc:"As body.entries[3] or query.limit."`
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus is for huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is for huma.
func (p *Problem) ContentType(string) string { return problemType }

const problemType = "application/problem+json"

func newProblem(status int, detail string, errs ...error) *Problem {
	p := &Problem{Title: http.StatusText(status), Status: status, Detail: detail}
	var said []string
	for _, err := range errs {
		if err == nil {
			continue
		}
		f := &Fault{Message: err.Error()}
		if d, ok := err.(huma.ErrorDetailer); ok {
			f.Message, f.Location = d.ErrorDetail().Message, d.ErrorDetail().Location
		}
		p.Faults = append(p.Faults, f)
		line := f.Message
		if f.Location != "" {
			line = f.Location + ": " + line
		}
		said = append(said, line)
	}
	if len(said) > 0 {
		p.Detail = strings.Join(said, "; ")
	}
	if len(p.Detail) > 1000 {
		p.Detail = strings.ToValidUTF8(p.Detail[:1000], "") + "..."
	}
	return p
}

// huma keeps the form of errors, and whether lists may be null, in variables of its package.
func init() {
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return newProblem(status, msg, errs...)
	}
	huma.DefaultArrayNullable = false
}

func writeProblem(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(newProblem(status, fmt.Sprintf(format, args...)))
}

// Fail answers a request of a raw route with an error; the sentence says what to do.
func Fail(w http.ResponseWriter, status int, format string, args ...any) {
	writeProblem(w, status, format, args...)
}
