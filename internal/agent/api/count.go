package api

import (
	"errors"
	"maps"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// Answered is a kind of answers.
type Answered struct {
	Route  string // "" for what is no route
	Status int
}

// counts are answers by their kind: as many kinds as there are routes and statuses.
type counts struct {
	mu  sync.Mutex
	all map[Answered]uint64
}

func (c *counts) add(route *Route, status int) {
	of := Answered{Status: status}
	if route != nil {
		of.Route = route.name()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[Answered]uint64{}
	}
	c.all[of]++
}

// Requests returns how many requests had which answer.
func (s *Server) Requests() map[Answered]uint64 {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	return maps.Clone(s.counts.all)
}

// WriteError answers with an error, for raw routes.
func WriteError(w http.ResponseWriter, err error) {
	var status huma.StatusError
	if errors.As(err, &status) {
		writeProblem(w, status.GetStatus(), "%v", err)
		return
	}
	writeProblem(w, http.StatusInternalServerError, "%v", err)
}
