package dataplane

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"levee/internal/filter/flow"
	"levee/internal/filter/fragment"
	"levee/internal/kernel"
)

// memoryCounts are what memories with secrets in them hold, in counts, for readers. Whoever looks
// with the rights leaves them behind: the agent each second, `levee status`.
type memoryCounts struct {
	Generation int             `json:"generation"`
	At         time.Time       `json:"at"`
	Limits     []LimitState    `json:"limits,omitempty"`
	Cookies    *CookieState    `json:"cookies,omitempty"`
	Flows      *flow.Stats     `json:"flows,omitempty"`
	Fragments  *fragment.Stats `json:"fragments,omitempty"`
	Diverted   *DivertState    `json:"diverted,omitempty"`
	SharedWith string          `json:"shared_with,omitempty"`
	Shadow     *ShadowState    `json:"shadow,omitempty"` // without flows, which are of somebody
}

// rememberAgain is how old it may be before it is written anew.
const rememberAgain = 500 * time.Millisecond

// rememberedFile lies beside the descriptions: their directory changes only when policies do
// (runStamp).
func (s *store) rememberedFile(key string) string {
	return filepath.Join(s.dir, rememberedDir, key+".json")
}

const rememberedDir = "remembered"

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
	if t.Cookies, err = s.tellCookies(a, t); err != nil {
		return err
	}
	if t.Limits, err = s.tellLimits(a, t); err != nil {
		return err
	}
	if t.Flows, err = s.tellFlows(a, t); err != nil {
		return err
	}
	if t.Fragments, err = s.tellFragments(a, t); err != nil {
		return err
	}
	if t.Diverted, err = s.tellDiverted(a, t); err != nil {
		return err
	}
	if t.Shadow, err = s.tellShadow(a); err != nil {
		return err
	}
	s.leaveRemembered(a, t)
	return nil
}

// leaveRemembered writes what readers get. That it cannot be written is no reason not to tell it
// here.
func (s *store) leaveRemembered(a *attachment, t *Attachment) {
	if readers.id() < 0 || t.Cookies == nil && t.Limits == nil && t.Flows == nil &&
		t.Fragments == nil && t.Diverted == nil && t.Shadow == nil && t.SharedWith == "" {
		return
	}
	path := s.rememberedFile(a.key)
	var before memoryCounts
	now := time.Now()
	if readJSON(path, &before) == nil && before.Generation == t.Generation &&
		now.Sub(before.At).Abs() < rememberAgain {
		return
	}
	out := memoryCounts{Generation: t.Generation, At: now, Limits: t.Limits, Cookies: t.Cookies,
		Flows: t.Flows, Fragments: t.Fragments, Diverted: t.Diverted, SharedWith: t.SharedWith}
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
	t.Told, t.Limits, t.Cookies, t.Flows = is.At, is.Limits, is.Cookies, is.Flows
	t.Fragments, t.Diverted, t.Shadow = is.Fragments, is.Diverted, is.Shadow
	t.SharedWith = is.SharedWith
	return nil
}
