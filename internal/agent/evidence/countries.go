package evidence

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"levee/internal/agent/api"
	"levee/internal/agent/part"
	"levee/internal/host/access"
	"levee/internal/lang/mmdb"
	"levee/internal/packet"
)

// Countries are the countries that the sources of an incident are in, by the packets that were
// kept of it.
type Countries struct {
	// Why is the reason that there are none; empty if there are.
	Why     string `json:"why,omitempty"`
	Packets int    `json:"packets"`
	// Shares are the parts of the packets whose sources are in a country (ISO 3166-1 alpha-2).
	Shares map[string]float64 `json:"shares"`
	// Unknown is the part of the packets whose source the file does not know.
	Unknown float64 `json:"unknown"`
	// Forged tells that the sources are forged: the countries are those of whom they name.
	Forged bool      `json:"forged"`
	File   string    `json:"file,omitempty"` // what the file calls itself
	Built  time.Time `json:"built,omitzero"`
}

// Atlas is a MaxMind DB file with countries. It is read anew for each question, so that the agent
// has no memory of it, and so that another file in its place holds at once.
type Atlas struct {
	Path string
	// Part is told of each reading.
	Part *part.Part

	mu sync.Mutex // one at a time: a file has some 8 MB
}

// Try reads the file, so that one that is not there is told before somebody asks.
func (a *Atlas) Try() { _, _ = a.of(nil) }

// of returns the countries of addresses.
func (a *Atlas) of(addrs []netip.Addr) (mmdb.Countries, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, err := os.Open(a.Path)
	if err != nil {
		return mmdb.Countries{}, a.Part.Did(part.Do(err, access.Read(a.Path, err)))
	}
	defer f.Close()
	c, err := mmdb.CountriesOf(f, addrs)
	if err != nil {
		err = part.Do(fmt.Errorf("%s: %w", a.Path, err), "get the file of countries again")
	}
	return c, a.Part.Did(err)
}

// noAtlas is the answer of an agent that was given no file.
const noAtlas = "no file of countries is given: levee agent run --countries FILE"

// countries returns the countries of an incident.
func (s *Store) countries(id string, of Facts) (*Countries, error) {
	out := &Countries{Shares: map[string]float64{}, Forged: of.Forged}
	if s.Atlas == nil {
		out.Why = noAtlas
		return out, nil
	}
	from, err := s.sources(id, of.Target)
	if errors.Is(err, ErrNone) {
		out.Why = err.Error()
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := s.Atlas.of(from)
	if err != nil {
		out.Why = err.Error()
		return out, nil
	}
	out.Packets, out.File, out.Built = len(from), c.Type, c.Built
	for _, country := range c.Of {
		if country == "" {
			out.Unknown += 1 / float64(len(from))
			continue
		}
		out.Shares[country] += 1 / float64(len(from))
	}
	return out, nil
}

// sources returns the sources of an incident's packets to a target; of all where the target is
// unknown.
func (s *Store) sources(id string, target netip.Prefix) (out []netip.Addr, err error) {
	var buf []byte
	err = s.each(id, func(rec *packet.Record) {
		frame, missing := rec.Whole(buf)
		if missing > 0 {
			buf = frame
		}
		var p packet.Packet
		packet.Decode(frame, &p)
		if p.IsIP() && p.Src.IsValid() && (!target.IsValid() || target.Contains(p.Dst)) {
			out = append(out, p.Src)
		}
	})
	return out, err
}

type countriesQuery struct {
	ID string `path:"id" maxLength:"20" doc:"The incident."`
}

// countriesRoute gives them out.
func (s *Store) countriesRoute(facts func(id string) (Facts, bool)) api.Route {
	return api.Get("/api/v1/incidents/{id}/countries", api.Viewer,
		"The countries of an incident's sources, by the file that the agent was given.",
		func(_ context.Context, q *countriesQuery) (*Countries, error) {
			of, ok := facts(q.ID)
			if !ok {
				return nil, none(q.ID)
			}
			return s.countries(q.ID, of)
		})
}
