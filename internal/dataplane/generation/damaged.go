package generation

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
)

// unsettled returns an attachment as it is, where what is kept of it cannot be brought up to date
// because the runtime directory cannot be written. Packets are judged as ever, so that whoever only
// looks is told what is in force, and why nothing was changed. why is what kept settle from its
// work; it is given back if it is anything else. The attachment is nil if there is nothing left of
// it but files.
func unsettled(s *store.Store, key string, why error) (*attach.Attachment, error) {
	full := func(errno unix.Errno) bool { return errors.Is(why, errno) }
	if !slices.ContainsFunc([]unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EROFS}, full) {
		return nil, why
	}
	a, err := attach.Open(s, key)
	if err != nil {
		return nil, errors.Join(why, err)
	}
	s.Note("%v; it is shown as it is", why)
	if a.Link == nil || a.Ifindex == 0 {
		a.Close()
		return nil, nil
	}
	if g := a.Trial(); g != nil && a.Generations[g.Fallback] != nil {
		left, err := s.TimeLeft(g.Deadline)
		if err == nil && left <= 0 {
			a.OnDevice, a.Program = a.Shown(), a.Generations[g.Fallback].Program
		}
	}
	if a.Current() == nil {
		a.Close()
		return nil, why
	}
	return a, nil
}

// noteUnmounted tells of the policy of an attachment whose pins have gone with their file system.
func noteUnmounted(s *store.Store, a *attach.Attachment) {
	gens := a.Sorted()
	if len(gens) == 0 || s.Mounted() {
		return
	}
	g := gens[len(gens)-1]
	runs := func(id uint32) bool { return id != 0 && (id == g.Program || id == g.Trial) }
	d, err := attach.FindDevice(g.Dev)
	var running []uint32
	if err == nil {
		running, _ = d.Programs() // the note says less
	}
	if slices.ContainsFunc(running, runs) {
		s.Note("the bpf file system at %s has been unmounted here, and what still mounts it "+
			"elsewhere keeps policy %s on %s: unmount it there to take the policy off", s.BPF(),
			g.Policy, g.Dev)
		return
	}
	s.Note("the bpf file system at %s has been unmounted, and policy %s on %s has gone with it: "+
		"`levee up` brings it back", s.BPF(), g.Policy, g.Dev)
}
