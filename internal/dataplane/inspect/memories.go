package inspect

import (
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/lang/diag"
)

// memoryCounts counts the contents of memories that hold secrets, for readers without rights. Each
// look with the rights writes it anew: the agent's each second, and that of `levee status`.
type memoryCounts struct {
	Generation int       `json:"generation"`
	At         time.Time `json:"at"`
	state.Memories
	IDs        []string     `json:"ids"` // of Limits
	SharedWith string       `json:"shared_with,omitempty"`
	Shadow     *ShadowState `json:"shadow,omitempty"` // without flows, which are of somebody
}

// rememberAgain is the age at which it is written anew.
const rememberAgain = 500 * time.Millisecond

// LeaveMemories leaves what readers get of a policy that has come into force: who looks next would
// else be the first.
func LeaveMemories(s *store.Store, a *attach.Attachment) {
	if g := a.Current(); g != nil && store.Readers.ID() >= 0 {
		_ = tellMemories(s, a, &Attachment{Generation: g.Generation})
	}
}

// tellMemories reads the memories of what is in force, and the program that judges.
func tellMemories(s *store.Store, a *attach.Attachment, t *Attachment) error {
	s.Tighten(a.Key)
	pin := store.PinProg
	if a.Trial() != nil {
		pin = store.PinTrial
	}
	g := a.Current()
	prog, err := s.OpenProgram(filepath.Join(s.Pins(a.Key, g.Generation), pin))
	if err != nil {
		return err
	}
	defer prog.Close()
	if t.Program, err = ProgramInfo(prog); err != nil {
		return err
	}
	t.Program.Frags = g.Frags
	if err := readMemories(s, a, t); err != nil {
		return err
	}
	if t.Shadow, err = tellShadow(s, a); err != nil {
		return err
	}
	leaveRemembered(s, a, t)
	return nil
}

// readMemories reads each memory of the policy in force, except shared ones that another interface
// reports.
func readMemories(s *store.Store, a *attach.Attachment, t *Attachment) error {
	for i := range state.Table {
		row, g := &state.Table[i], a.Current()
		if row.OfShadow {
			g = a.Shadow()
		}
		if row.Tell == nil || g == nil {
			continue
		}
		for _, use := range g.Maps {
			if use.Holds.What != row.What {
				continue
			}
			if err := readMemory(s, a, g, t, row, use); err != nil {
				return err
			}
		}
	}
	return nil
}

// readMemory reads one map of a row.
func readMemory(s *store.Store, a *attach.Attachment, g *store.Description, t *Attachment,
	row *state.Row, use codegen.MapUse) error {
	clock, err := s.Jiffies()
	if err != nil {
		return err
	}
	m, err := s.OpenPinned(a.Key, g.Generation, use.Name)
	if err != nil || m == nil {
		return err
	}
	defer m.Close()
	first, err := teller(s, a, m)
	if err != nil || first != "" {
		t.SharedWith = max(t.SharedWith, first)
		return err
	}
	r := readingOf(g, use.Name)
	r.Now, r.HZ, r.Name = clock.Now(), clock.HZ(), use.Holds.Name
	var failed error
	r.Taken = func(of state.Identity) (taken []int) {
		taken, err := tap.Taken(s, a, of)
		failed = errors.Join(failed, err)
		return taken
	}
	r.Beside = func(of state.Identity, read func([]byte)) {
		failed = errors.Join(failed, readBeside(s, a, g, of, read))
	}
	if m.Flags()&unix.BPF_F_MMAPABLE == 0 {
		row.Tell(&r, &t.Memories)
		return failed
	}
	return errors.Join(s.WithMemory(m, func(memory []byte) {
		r.Memory = memory
		row.Tell(&r, &t.Memories)
	}), failed)
}

// readBeside reads another map of a row.
func readBeside(s *store.Store, a *attach.Attachment, g *store.Description, of state.Identity,
	read func([]byte)) error {
	name, ok := codegen.MapLike(g.Maps, of)
	if !ok {
		return nil
	}
	m, err := s.OpenPinned(a.Key, g.Generation, name)
	if err != nil || m == nil {
		return err
	}
	defer m.Close()
	return s.WithMemory(m, read)
}

// reading describes the memory in a map.
func readingOf(d *store.Description, name string) (r state.Reading) {
	r.Logs = len(d.Logs)
	for _, l := range d.Limits {
		if l.Map == name {
			r.Shape = l.Shape
			r.Limit.ID = l.ID
			r.Limit.Rule, r.Limit.Label = ruleOf(d, l.ID)
		}
	}
	for _, k := range d.Cookies {
		rule, _ := ruleOf(d, k.ID)
		r.Cookies = append(r.Cookies, state.Answering{Rule: rule, Meter: k.Meter, Always: k.Always})
	}
	for _, g := range d.Greylists {
		rule, _ := ruleOf(d, g.ID)
		r.Greylists = append(r.Greylists,
			state.Answering{Rule: rule, Meter: g.Meter, Always: g.Always})
	}
	for _, e := range d.Echoes {
		r.Echoes = append(r.Echoes, state.Proving(e))
	}
	return r
}

// ruleOf returns where the rule of an identity stands, and its label.
func ruleOf(d *store.Description, id string) (where diag.Shown, label string) {
	for i := range d.Slots {
		if d.Slots[i].ID == id {
			return diag.Shown(d.Slots[i].Where), d.Slots[i].Label
		}
	}
	return "", ""
}

// leaveRemembered writes what readers get. That it cannot be written is no reason not to tell it
// here.
func leaveRemembered(s *store.Store, a *attach.Attachment, t *Attachment) {
	if store.Readers.ID() < 0 || reflect.ValueOf(t.Memories).IsZero() && t.Shadow == nil &&
		t.SharedWith == "" {
		return
	}
	path := s.RememberedFile(a.Key)
	var before memoryCounts
	now := time.Now()
	if store.ReadJSON(path, &before) == nil && before.Generation == t.Generation &&
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
	_ = store.WriteJSON(path, out) // the next one who looks tries again
}

// readRemembered is tellMemories for a reader.
func readRemembered(s *store.Store, a *attach.Attachment, t *Attachment) error {
	g := a.Current()
	t.Program = g.Info
	if a.Trial() != nil {
		t.Program = g.TrialInfo
	}
	t.Program.Frags = g.Frags
	var is memoryCounts
	err := store.ReadJSON(s.RememberedFile(a.Key), &is)
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
