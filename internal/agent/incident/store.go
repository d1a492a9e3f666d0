package incident

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"levee/internal/host/atomicfile"
)

// version is that of the file.
const version = 1

// Bounds of the file.
const (
	most      = 500
	mostBytes = 16 << 20
	mostRules = 64 // of an incident
	// MostNotes limits the notes of an incident that are kept, the last ones.
	MostNotes = 16
)

// Store is the incidents of a machine. It may be used by several goroutines.
type Store struct {
	mu    sync.Mutex
	file  *atomicfile.Sealed
	all   []Incident // the oldest first
	last  int        // number that was given last
	dirty bool       // the file lacks something
	// Changed is told of an incident that is new, or whose state is another, if it is set. It waits
	// for nothing.
	Changed func(Incident)
	// Damaged says why the file that was there could not be read; it is put aside, to Aside.
	Damaged error
}

type contents struct {
	Last      int        `json:"last"`
	Incidents []Incident `json:"incidents"`
}

// OpenStore reads the file at path, which need not be there. What is wrong with it does not keep
// incidents from being kept in memory.
func OpenStore(path string) *Store {
	s := &Store{file: atomicfile.NewSealed(path, version, mostBytes, 0o600)}
	var c contents
	if s.Damaged = s.file.Read(&c); s.Damaged == nil {
		s.all, s.last = c.Incidents, c.Last
	}
	return s
}

// Path returns where the file is.
func (s *Store) Path() string { return s.file.Path() }

// Aside returns where a damaged file is put.
func (s *Store) Aside() string { return s.file.Aside() }

// Next returns the number of a new incident.
func (s *Store) Next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return strconv.Itoa(s.last)
}

// Put keeps an incident in the place of the one with its ID, and writes the file. Where that fails,
// the incident is kept in memory, and Save tries again.
func (s *Store) Put(i Incident) error {
	i.Rules = append([]Rule{}, i.Rules...)
	i.Rules = i.Rules[max(0, len(i.Rules)-mostRules):]
	i.Notes = i.Notes[max(0, len(i.Notes)-MostNotes):]
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
	s.dirty = true
	return s.save()
}

// Save writes the file, if it lacks something.
func (s *Store) Save() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dirty {
		return nil
	}
	return s.save()
}

func (s *Store) save() error {
	text, err := json.MarshalIndent(contents{s.last, s.all}, "", " ")
	if err != nil {
		return fmt.Errorf("write incidents: %w", err)
	}
	if err := s.file.Write(text); err != nil {
		return err
	}
	s.dirty = false
	return nil
}

// find returns the stage of an incident that is kept, the zero stage if none is.
func (s *Store) find(id string) stage {
	for k := range s.all {
		if s.all[k].ID == id {
			return s.all[k].stage()
		}
	}
	return stage{}
}

// stage holds the parts of an incident whose change is told: begun, acted upon, over, closed.
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

// List returns all incidents, the newest first.
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

// Get returns the incident of an ID.
func (s *Store) Get(id string) (Incident, bool) {
	for _, i := range s.List() {
		if i.ID == id {
			return i, true
		}
	}
	return Incident{}, false
}
