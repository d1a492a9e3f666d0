package incident

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"levee/internal/host/atomicfile"
)

// Bounds of the file.
const (
	most      = 500
	mostBytes = 16 << 20
	mostRules = 64 // of an incident
	mostNotes = 16
)

// Store is the incidents of a machine. It may be used by several goroutines.
type Store struct {
	mu   sync.Mutex
	path string
	all  []Incident // the oldest first
	last int        // number that was given last
	// Changed is told of an incident that is new, or whose state is another, if it is set. It waits
	// for nothing.
	Changed func(Incident)
	// Damaged says why the file that was there could not be read; it lies beside the new one.
	Damaged error
}

type file struct {
	Last      int        `json:"last"`
	Incidents []Incident `json:"incidents"`
}

// OpenStore reads the file at path, which need not be there.
func OpenStore(path string) (*Store, error) {
	s := &Store{path: path}
	var f file
	var err error
	if s.Damaged, err = atomicfile.ReadJSON(path, mostBytes, &f); err != nil {
		return nil, fmt.Errorf("read incidents: %w", err)
	}
	if s.Damaged == nil {
		s.all, s.last = f.Incidents, f.Last
	}
	return s, nil
}

// Next is the number of a new incident.
func (s *Store) Next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return strconv.Itoa(s.last)
}

// Put keeps an incident in the place of the one with its ID, and writes the file.
func (s *Store) Put(i Incident) error {
	i.Rules = append([]Rule{}, i.Rules...)
	i.Rules = i.Rules[max(0, len(i.Rules)-mostRules):]
	i.Notes = i.Notes[max(0, len(i.Notes)-mostNotes):]
	i.Tell()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tell(s.find(i.ID), &i)
	at := slices.IndexFunc(s.all, func(o Incident) bool { return o.ID == i.ID })
	if at < 0 {
		s.all = append(s.all, i)
		s.all = s.all[max(0, len(s.all)-most):]
	} else {
		s.all[at] = i
	}
	text, err := json.MarshalIndent(file{s.last, s.all}, "", " ")
	if err != nil {
		return fmt.Errorf("write incidents: %w", err)
	}
	return atomicfile.Write(s.path, text, 0o600)
}

// find is the stage of an incident that is kept, the zero stage if none is.
func (s *Store) find(id string) stage {
	for k := range s.all {
		if s.all[k].ID == id {
			return s.all[k].stage()
		}
	}
	return stage{}
}

// stage is what is worth a word of an incident: begun, acted upon, over, closed.
type stage struct {
	state                string
	acted, ended, closed bool
}

func (i *Incident) stage() stage {
	return stage{i.State, i.Acted != nil, i.Ended != nil, i.Closed != nil}
}

func (s *Store) tell(before stage, i *Incident) {
	if s.Changed != nil && before != i.stage() {
		s.Changed(*i)
	}
}

// List are all incidents, the newest first.
func (s *Store) List() []Incident {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := append([]Incident{}, s.all...)
	for k := range out {
		out[k].Rules = append([]Rule{}, out[k].Rules...)
	}
	slices.Reverse(out)
	return out
}

// Get is the incident of an ID.
func (s *Store) Get(id string) (Incident, bool) {
	for _, i := range s.List() {
		if i.ID == id {
			return i, true
		}
	}
	return Incident{}, false
}
