// Package evidence keeps the packets that an incident was judged by, as pcapng, and gives them out:
// as they are, and as a fingerprint for the DDoS clearing house.
//
// In go sampled packets by the number of an incident, out come files and three routes of the API.
// What is kept is bounded in number and size, the oldest going first. It decides nothing.
package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"levee/internal/agent/api"
	"levee/internal/agent/fingerprint"
	"levee/internal/host/atomicfile"
	"levee/internal/packet"
)

// Bounds of what is kept.
const (
	mostPackets = 1000 // of an incident
	mostFiles   = 100
	mostBytes   = 4 << 20 // of a file
	snap        = 2048
	fileMode    = 0o600
)

// ErrNone is that nothing is kept of an incident.
var ErrNone = errors.New("no packets are kept of this incident: there are those of the last 100 " +
	"for which rules were searched")

var number = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9]{1,12}$`)
})

// Packet is one that was sampled.
type Packet struct {
	At     time.Time
	Data   []byte // its beginning
	Length int    // on the wire
}

// Store is a directory of captures. It may be used by several goroutines.
type Store struct {
	dir   string
	Atlas *Atlas // says which countries sources are in; nil: nobody does
}

// Open returns the store of a directory, which is made when something is put there.
func Open(dir string) *Store { return &Store{dir: dir} }

// Path returns the directory.
func (s *Store) Path() string { return s.dir }

func (s *Store) path(id string) string { return filepath.Join(s.dir, id+".pcapng") }

// Put keeps packets of an incident, in the place of those that were kept of it: mostPackets, spread
// evenly over all.
func (s *Store) Put(id, dev string, link packet.Link, all []Packet) error {
	if !number().MatchString(id) {
		return fmt.Errorf("%q is no number of an incident", id)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of packets: %w", err)
	}
	text, err := capture(dev, link, all)
	if err != nil {
		return fmt.Errorf("keep the packets of incident %s: %w", id, err)
	}
	if err := atomicfile.Write(s.path(id), text, fileMode); err != nil {
		return err
	}
	return s.prune()
}

// capture returns a file of pcapng.
func capture(dev string, link packet.Link, all []Packet) ([]byte, error) {
	var b bytes.Buffer
	w, err := packet.NewNGWriter(&b, "levee", "")
	if err != nil {
		return nil, err
	}
	if _, err := w.Interface(packet.NGInterface{Name: dev, Link: link, Snap: snap}); err != nil {
		return nil, err
	}
	step := max(1, float64(len(all))/mostPackets)
	for at := 0.0; int(at) < len(all); at += step {
		p := &all[int(at)]
		data := p.Data[:min(len(p.Data), snap, p.Length)]
		err := w.Packet(&packet.NGPacket{At: p.At, Data: data, Length: p.Length})
		if err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// prune leaves the incidents with the largest numbers.
func (s *Store) prune() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	var ids []int
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".pcapng")
		if n, err := strconv.Atoi(name); ok && err == nil {
			ids = append(ids, n)
		}
	}
	slices.Sort(ids)
	for _, n := range ids[:max(0, len(ids)-mostFiles)] {
		if err := os.Remove(s.path(strconv.Itoa(n))); err != nil && !errors.Is(err,
			fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Read returns the capture of an incident.
func (s *Store) Read(id string) ([]byte, error) {
	if !number().MatchString(id) {
		return nil, ErrNone
	}
	f, err := os.Open(s.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("read the packets of incident %s: %w", id, err)
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, mostBytes))
}

// Facts describes an incident besides its packets.
type Facts struct {
	Target       netip.Prefix // zero: unknown
	Packets      uint64       // in all; 0: as many as are kept
	Began, Ended time.Time    // Ended zero: it goes on
	Forged       bool         // its sources are
}

// Fingerprint describes an incident for the clearing house.
func (s *Store) Fingerprint(id string, of Facts, showTarget bool) (*fingerprint.Fingerprint,
	error) {
	c := fingerprint.New(fingerprint.Options{Target: of.Target, ShowTarget: showTarget,
		Total: of.Packets, Began: of.Began, Ended: of.Ended})
	if err := s.each(id, func(p *packet.Record) { c.Add(p.Time, p.Data, p.Length) }); err != nil {
		return nil, err
	}
	return c.Fingerprint()
}

// each gives the packets that were kept of an incident. One is valid until the next.
func (s *Store) each(id string, look func(*packet.Record)) error {
	text, err := s.Read(id)
	if err != nil {
		return err
	}
	r, err := packet.NewReader(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("the packets of incident %s: %w", id, err)
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the packets of incident %s: %w", id, err)
		}
		look(&rec)
	}
}

type packetsQuery struct {
	ID string `path:"id" maxLength:"20" doc:"The incident."`
}

type fingerprintQuery struct {
	ID         string `path:"id" maxLength:"20" doc:"The incident."`
	ShowTarget bool   `query:"show_target" doc:"Name who was hit, instead of Anonymous."`
}

// Routes give out what is kept. Facts are those of an incident, false where there is none.
func (s *Store) Routes(facts func(id string) (Facts, bool)) []api.Route {
	return []api.Route{
		s.countriesRoute(facts),
		api.Get("/api/v1/incidents/{id}/fingerprint", api.Viewer,
			"An incident in the format of the DDoS clearing house.",
			func(_ context.Context, q *fingerprintQuery) (*fingerprint.Fingerprint, error) {
				of, ok := facts(q.ID)
				if !ok {
					return nil, none(q.ID)
				}
				out, err := s.Fingerprint(q.ID, of, q.ShowTarget)
				if errors.Is(err, ErrNone) || errors.Is(err, fingerprint.ErrNothing) {
					err = api.Refuse(http.StatusNotFound, "%v", err)
				}
				return out, err
			}),
		api.Raw("/api/v1/incidents/{id}/packets", api.Operator,
			"The beginnings of packets by which an incident was judged, as pcapng.",
			"application/x-pcapng", packetsQuery{}, func(w http.ResponseWriter, r *http.Request) {
				id := r.PathValue("id")
				text, err := s.Read(id)
				switch _, ok := facts(id); {
				case !ok:
					err = none(id)
				case errors.Is(err, ErrNone):
					err = api.Refuse(http.StatusNotFound, "%v", err)
				}
				if err != nil {
					api.WriteError(w, err)
					return
				}
				w.Header().Set("Content-Type", "application/x-pcapng")
				w.Header().Set("Content-Disposition", `attachment; filename="incident-`+id+`.pcapng"`)
				_, _ = w.Write(text) // who asked may be gone
			}),
	}
}

func none(id string) error {
	return api.Refuse(http.StatusNotFound, "there is no incident %.20q: GET /api/v1/incidents "+
		"lists "+
		"them", id)
}
