package dataplane

import (
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"time"

	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/lang/syntax"
)

// memoryCounts are what memories with secrets in them hold, in counts, for readers. Whoever looks
// with the rights leaves them behind: the agent each second, `levee status`.
type memoryCounts struct {
	Generation int       `json:"generation"`
	At         time.Time `json:"at"`
	state.Memories
	IDs        []string     `json:"ids"` // of Limits
	SharedWith string       `json:"shared_with,omitempty"`
	Shadow     *ShadowState `json:"shadow,omitempty"` // without flows, which are of somebody
}

// rememberAgain is how old it may be before it is written anew.
const rememberAgain = 500 * time.Millisecond

// leaveMemories leaves what readers get of a policy that has come into force: who looks next would
// else be the first.
func (s *store) leaveMemories(a *attachment) {
	if g := a.current(); g != nil && readers.id() >= 0 {
		_ = s.tellMemories(a, &Attachment{Generation: g.Generation})
	}
}

// tellMemories reads the memories of what is in force, and the program that judges.
func (s *store) tellMemories(a *attachment, t *Attachment) error {
	s.tighten(a.key)
	pin := pinProg
	if a.trial() != nil {
		pin = pinTrial
	}
	g := a.current()
	prog, err := s.openProgram(filepath.Join(s.pins(a.key, g.Generation), pin))
	if err != nil {
		return err
	}
	defer prog.Close()
	if t.Program, err = programInfo(prog); err != nil {
		return err
	}
	t.Program.Frags = g.Frags
	if err := s.readMemories(a, t); err != nil {
		return err
	}
	if t.Shadow, err = s.tellShadow(a); err != nil {
		return err
	}
	s.leaveRemembered(a, t)
	return nil
}

// readMemories reads each memory of what is in force, but for those of which another interface
// tells.
func (s *store) readMemories(a *attachment, t *Attachment) error {
	g := a.current()
	for i := range state.Table {
		row := &state.Table[i]
		if row.Tell == nil {
			continue
		}
		for _, use := range g.Maps {
			if use.Holds.What != row.What {
				continue
			}
			if err := s.readMemory(a, t, row, use.Name); err != nil {
				return err
			}
		}
	}
	if t.Diverted == nil {
		return nil
	}
	var err error
	t.Diverted.Trap, err = s.hasTrap(a)
	return err
}

// readMemory reads one map of a row.
func (s *store) readMemory(a *attachment, t *Attachment, row *state.Row, name string) error {
	g := a.current()
	clock, err := s.jiffies()
	if err != nil {
		return err
	}
	m, err := s.openPinned(a.key, g.Generation, name)
	if err != nil || m == nil {
		return err
	}
	defer m.Close()
	first, err := s.teller(a, m)
	if err != nil || first != "" {
		t.SharedWith = max(t.SharedWith, first)
		return err
	}
	r := g.reading(name)
	r.Now, r.HZ = clock.Now(), clock.HZ()
	return s.withMemory(m, func(memory []byte) {
		r.Memory = memory
		row.Tell(&r, &t.Memories)
	})
}

// reading is what a description says of the memory in a map.
func (d *description) reading(name string) (r state.Reading) {
	for _, l := range d.Limits {
		if l.Map == name {
			r.Shape = l.Shape
			r.Limit.ID = l.ID
			r.Limit.Rule, r.Limit.Label = d.ruleOf(l.ID)
		}
	}
	for _, k := range d.Cookies {
		rule, _ := d.ruleOf(k.ID)
		r.Cookies = append(r.Cookies, state.Answering{Rule: rule, Meter: k.Meter, Always: k.Always})
	}
	return r
}

// ruleOf is where the rule of an identity stands, and its label.
func (d *description) ruleOf(id string) (where syntax.Shown, label string) {
	for i := range d.Slots {
		if d.Slots[i].ID == id {
			return syntax.Shown(d.Slots[i].Where), d.Slots[i].Label
		}
	}
	return "", ""
}

// leaveRemembered writes what readers get. That it cannot be written is no reason not to tell it
// here.
func (s *store) leaveRemembered(a *attachment, t *Attachment) {
	if readers.id() < 0 || reflect.ValueOf(t.Memories).IsZero() && t.Shadow == nil &&
		t.SharedWith == "" {
		return
	}
	path := s.rememberedFile(a.key)
	var before memoryCounts
	now := time.Now()
	if readJSON(path, &before) == nil && before.Generation == t.Generation &&
		now.Sub(before.At).Abs() < rememberAgain {
		return
	}
	out := memoryCounts{Generation: t.Generation, At: now, Memories: t.Memories,
		SharedWith: t.SharedWith}
	for _, l := range t.Limits {
		out.IDs = append(out.IDs, l.ID)
	}
	if t.Shadow != nil {
		shadow := *t.Shadow
		shadow.Flows = nil
		out.Shadow = &shadow
	}
	_ = writeJSON(path, out) // the next one who looks tries again
}

// readRemembered is tellMemories for a reader.
func (s *store) readRemembered(a *attachment, t *Attachment) error {
	g := a.current()
	t.Program = g.Info
	if a.trial() != nil {
		t.Program = g.TrialInfo
	}
	t.Program.Frags = g.Frags
	var is memoryCounts
	err := readJSON(s.rememberedFile(a.key), &is)
	if errors.Is(err, fs.ErrNotExist) || err == nil && is.Generation != g.Generation {
		return nil
	}
	if err != nil {
		return kernel.Refuse(err, "read what memories hold")
	}
	for i := range min(len(is.IDs), len(is.Limits)) {
		is.Limits[i].ID = is.IDs[i]
	}
	t.Told, t.Memories, t.Shadow, t.SharedWith = is.At, is.Memories, is.Shadow, is.SharedWith
	return nil
}
