package generation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// Settle brings an attachment to a state in which nothing is left to do: a trial past its deadline,
// which the kernel has ended already, is ended here too, counts of replaced generations are carried
// over, and what a killed command left is removed. It can be killed at any step and begun again.
// The attachment is closed and opened anew; nil means that nothing is attached.
func Settle(s *store.Store, key string) (*attach.Attachment, error) {
	if err := attach.FinishDispatchers(s, key); err != nil {
		return nil, err
	}
	a, err := attach.Open(s, key)
	if err != nil {
		return nil, err
	}
	if a, err = endTrial(s, a); err != nil || a == nil {
		return nil, err
	}
	if a.Unseen {
		return nil, nil
	}
	if a.Link == nil {
		noteUnmounted(s, a)
		a.Close()
		return nil, Remove(s, key)
	}
	if a.Ifindex == 0 {
		defer a.Close()
		if attach.Waits(s, a) {
			return nil, nil
		}
		return nil, removeVanished(s, a)
	}
	if err := clean(s, a); err != nil {
		a.Close()
		return nil, err
	}
	attach.NoteDeaf(s, a)
	return a, nil
}

// rollBack ends a trial whose deadline has passed: the kernel judges by the fallback already (the
// trial program hands over to it), so the link may be given to it at leisure.
func endTrial(s *store.Store, a *attach.Attachment) (*attach.Attachment, error) {
	g := a.Trial()
	if g == nil || a.Ifindex == 0 {
		return a, nil
	}
	left, err := store.TimeLeft(g.Deadline)
	if err != nil || left > 0 {
		return a, err
	}
	defer a.Close()
	why := "was not confirmed in time"
	if g.Deadline == endedByHand {
		why = "was given up before it was confirmed"
	}
	rb := store.RolledBack{Policy: g.Policy, Generation: g.Generation, Deadline: g.ConfirmBy}
	if g.Fallback == 0 {
		s.Note("%s: %s %s; there was no policy before it, so nothing is attached now", g.Dev,
			g.Policy, why)
		return nil, Detach(s, a)
	}
	if err := s.Step("roll back"); err != nil {
		return nil, err
	}
	if g.IsLive() {
		if err := endLive(s, a, g); err != nil {
			return nil, err
		}
		return attach.Open(s, a.Key)
	}
	s.Note("%s: %s %s; the policy before it is back", g.Dev, g.Policy, why)
	a.Carried.RolledBack = &rb
	if err := store.WriteJSON(s.State(a.Key, store.CarriedFile), a.Carried); err != nil {
		return nil, err
	}
	if err := Give(s, a, g.Fallback); err != nil {
		return nil, err
	}
	return attach.Open(s, a.Key)
}

// Give hands the link to the program of a generation that is staged, the one without a deadline.
func Give(s *store.Store, a *attach.Attachment, generation int) error {
	prog, err := s.OpenProgram(filepath.Join(s.Pins(a.Key, generation), store.PinProg))
	if err != nil {
		return err
	}
	defer prog.Close()
	writers, err := s.Exclude(a.Key, false)
	if err != nil {
		return err
	}
	defer writers.Close()
	var turn *Turn
	if g := a.Generations[generation]; g != nil {
		if turn, err = OpenTurn(s, a, g); err != nil {
			return err
		}
	}
	defer turn.Close()
	if err := a.Link.Update(prog); err != nil { // traffic changes here
		return kernel.Refuse(err, "replace the program")
	}
	turn.Give(generation, 0, 0)
	return nil
}

// clean carries counts over and removes every generation that judges no packet any more.
func clean(s *store.Store, a *attach.Attachment) error {
	needed := a.Needed()
	if needed == nil {
		return kernel.Refuse(nil,
			"interface %d runs program %d, which levee did not put there, on levee's link; "+
				"`levee down` removes it", a.Ifindex, a.Program)
	}
	var keep, gone []*store.Description
	for _, g := range a.All() {
		if slices.Contains(needed, g.Generation) {
			keep = append(keep, g)
		} else {
			gone = append(gone, g)
		}
	}
	if err := dropComing(s, a, gone); err != nil {
		return err
	}
	if err := giveTurn(s, a); err != nil { // of which a killed command may have come short
		return err
	}
	if err := attach.Unlink(s, a.Key, a.All(), needed); err != nil {
		return err
	}
	if len(gone) > 0 {
		if err := s.WaitForPrograms(); err != nil {
			return err
		}
		if err := fold(s, a, gone, keep); err != nil {
			return err
		}
		if err := s.Step("forget"); err != nil {
			return err
		}
		for _, g := range gone {
			err := os.Remove(s.DescriptionPath(a.Key, g.Generation))
			if err == nil {
				err = os.RemoveAll(s.FilesPath(a.Key, g.Generation))
			}
			if err != nil {
				return kernel.Refuse(err, "remove a replaced generation")
			}
			delete(a.Generations, g.Generation)
		}
	}
	if a.Trial() == nil {
		if err := removeTrial(s, a.Key, a.Generations[needed[0]]); err != nil {
			return err
		}
	}
	hookShadows(s, a)
	return removePins(s, a.Key, needed)
}

// removeTrial removes of a confirmed generation what only its trial needed: its map of the previous
// program would keep the policy before it in memory.
func removeTrial(s *store.Store, key string, g *store.Description) error {
	names := []string{store.PinTrial}
	for _, m := range g.TrialMaps {
		names = append(names, m.Name)
	}
	for _, name := range names {
		err := os.Remove(filepath.Join(s.Pins(key, g.Generation), name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return kernel.Refuse(err, "remove what the trial needed")
		}
	}
	return nil
}

// removePins removes the pins of all generations but those in keep, and files half written.
func removePins(s *store.Store, key string, keep []int) error {
	numbers, err := s.Pinned(key)
	if err != nil {
		return err
	}
	numbers = slices.DeleteFunc(numbers, func(n int) bool { return slices.Contains(keep, n) })
	if len(numbers) > 0 {
		if err := s.Step("unpin"); err != nil {
			return err
		}
	}
	for _, n := range numbers {
		if err := os.RemoveAll(s.Pins(key, n)); err != nil {
			return kernel.Refuse(err, "remove the pins of a replaced generation")
		}
	}
	half, err := filepath.Glob(filepath.Join(globQuoted(s.State(key)), "*.tmp"))
	files, err2 := filepath.Glob(filepath.Join(globQuoted(s.State(key)), "*.files"))
	for _, file := range files {
		if !slices.ContainsFunc(keep, func(n int) bool { return file == s.FilesPath(key, n) }) {
			half = append(half, file)
		}
	}
	err = errors.Join(err, err2)
	for _, file := range half {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// Detach takes the program off the interface and removes everything that was kept for it.
func Detach(s *store.Store, a *attach.Attachment) error {
	if err := errors.Join(s.Step("detach"), s.CheckWritable()); err != nil {
		return err
	}
	s.Leaves = a.Leaving()
	// traffic changes here
	if err := a.Link.Detach(); err != nil && a.Ifindex != 0 {
		return kernel.Refuse(err, "detach the program")
	}
	return Remove(s, a.Key)
}

// Remove deletes all that is kept under a key; the link goes first, since it decides what the rest
// means.
func Remove(s *store.Store, key string) error {
	for i, path := range []string{s.BPF(key, store.PinLink), s.RememberedFile(key),
		s.JudgingFile(key),
		s.State(key), s.BPF(key)} { // the last two tell of the key
		if err := s.Step(fmt.Sprint("remove ", i)); err != nil {
			return err
		}
		if i == 3 { // before what tells of them
			all, err := attach.Described(s, key)
			if err != nil {
				return err
			}
			if err := attach.Unlink(s, key, all, nil); err != nil {
				return err
			}
			attach.BeginOffloads(s, key)
		}
		if err := os.RemoveAll(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return kernel.Refuse(err, "remove what was kept for attachment %s", key)
		}
	}
	return nil
}

// removeVanished cleans up after an interface, or its whole network namespace, that is gone, or
// after somebody who has detached the link.
func removeVanished(s *store.Store, a *attach.Attachment) error {
	if gens := a.Sorted(); len(gens) > 0 {
		g := gens[len(gens)-1]
		what := fmt.Sprintf("interface %s has vanished, and its policy %s with it", g.Dev, g.Policy)
		if d, err := attach.FindDevice(g.Dev); err == nil && d.Key() == a.Key {
			what = fmt.Sprintf("policy %s was detached from %s by something else than levee",
				g.Policy, g.Dev)
			if f, ok := a.Link.(*attach.Filter); ok { // a killed command may not have come so far
				what = fmt.Sprintf("policy %s is not in force on %s, because its tc filter is "+
					"not there", g.Policy, g.Dev)
				if err := f.RemoveQdisc(); err != nil {
					return kernel.Refuse(err, "remove the qdisc clsact from %s", g.Dev)
				}
			}
		}
		s.Note("%s; what was kept for it is removed", what)
	}
	return Remove(s, a.Key)
}

// Sweep settles every attachment but one, of this and of other network namespaces.
func Sweep(s *store.Store, except string, visit func(*attach.Attachment) error) error {
	keys, err := s.Keys()
	if err != nil {
		return err
	}
	var errs []error
	for _, key := range keys {
		if key == except {
			continue
		}
		a, err := Settle(s, key)
		if err != nil {
			a, err = unsettled(s, key, err)
		}
		if err == nil && a != nil {
			err = visit(a)
			a.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
