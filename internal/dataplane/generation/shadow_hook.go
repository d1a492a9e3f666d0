package generation

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// HashOf names a policy's text.
func HashOf(source []byte) string {
	hash := sha256.Sum256(source)
	return hex.EncodeToString(hash[:])
}

// HandsOnLeaving reports whether a generation has a program at egress, which hands what leaves to
// that of a shadow.
func HandsOnLeaving(s *store.Store, key string, of *store.Description) (bool, error) {
	if _, ok := codegen.MapOf(of.Maps, state.HoldsBehind); ok {
		return true, nil
	}
	program := filepath.Join(s.Pins(key, of.Generation), store.PinLeave, state.LeavingProgram)
	if _, err := os.Stat(program); err == nil {
		return false, errors.New("an older levee loaded the policy in force, whose program at " +
			"egress hands nothing on: load it again with `levee up`")
	}
	return false, nil
}

// hookLeaving has the program at egress of a generation hand its packets to that of a shadow.
func hookLeaving(s *store.Store, key string, of, sh *store.Description) error {
	name, ok := codegen.MapOf(of.Maps, state.HoldsBehind)
	if !ok {
		return nil
	}
	prog, err := s.OpenProgram(filepath.Join(s.Pins(key, sh.Generation), store.PinBehind))
	if err != nil {
		return err
	}
	defer prog.Close()
	behind, err := s.OpenPinned(key, of.Generation, name)
	if err == nil && behind == nil {
		err = kernel.Refuse(nil, "the array behind the program at egress is gone")
	}
	if err != nil {
		return err
	}
	defer behind.Close()
	if err := behind.Put(uint32(0), prog); err != nil {
		return kernel.Refuse(err, "have what leaves go to the shadow")
	}
	return nil
}

// unhookLeaving empties the array behind the program at egress.
func unhookLeaving(s *store.Store, key string, of *store.Description) error {
	name, ok := codegen.MapOf(of.Maps, state.HoldsBehind)
	if !ok {
		return nil
	}
	behind, err := s.OpenPinned(key, of.Generation, name)
	if err != nil || behind == nil {
		return err
	}
	defer behind.Close()
	err = behind.Delete(uint32(0))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return kernel.Refuse(err, "have nothing that leaves go to the shadow")
	}
	return nil
}

// Hook has the programs of a generation hand their packets to a shadow: what leaves, and then what
// arrives. Whoever has the latter has both.
func Hook(s *store.Store, key string, of, sh *store.Description) error {
	if err := hookLeaving(s, key, of, sh); err != nil {
		return err
	}
	prog, err := s.OpenProgram(filepath.Join(s.Pins(key, sh.Generation), store.PinProg))
	if err != nil {
		return err
	}
	defer prog.Close()
	programs, err := handed(s, key, of)
	if err != nil {
		return err
	}
	defer programs.Close()
	if err := programs.Put(uint32(state.Looks), prog); err != nil {
		return kernel.Refuse(err, "have packets go to the shadow")
	}
	// A program that captured may still be about to turn itself off.
	if err := s.WaitForPrograms(); err != nil {
		return err
	}
	return turnOn(s, key, of)
}

// handed returns the array of programs to which one hands its packets.
func handed(s *store.Store, key string, of *store.Description) (*ebpf.Map, error) {
	name, _ := codegen.MapOf(of.Maps, state.HoldsCapture)
	programs, err := s.OpenPinned(key, of.Generation, name)
	if err == nil && programs == nil {
		err = kernel.Refuse(nil, "the array of programs behind the policy is gone")
	}
	return programs, err
}

// turnOn says in each CPU's row of counters that there is a program to which packets go.
func turnOn(s *store.Store, key string, of *store.Description) error {
	name, _ := codegen.MapOf(of.Maps, codegen.Counters)
	counters, err := s.OpenPinned(key, of.Generation, name)
	if err == nil && counters == nil {
		err = kernel.Refuse(nil, "the counters of the policy are gone")
	}
	if err != nil {
		return err
	}
	defer counters.Close()
	rows, err := store.MapMemory(counters, int(counters.ValueSize()))
	if err != nil {
		return err
	}
	TurnRows(rows[:counters.ValueSize()], of, state.Looks, true)
	if _, ok := codegen.MapOf(of.Maps, state.HoldsBehind); ok {
		eachRow(rows[:counters.ValueSize()], of, func(note []byte) {
			atomic.StoreUint32((*uint32)(unsafe.Pointer(&note[noteLeaving])), 1)
		})
	}
	return unix.Munmap(rows)
}

// TurnRows says in each row of a generation's counters whether the program of a role gets its
// packets.
func TurnRows(rows []byte, of *store.Description, role uint32, on bool) {
	eachRow(rows, of, func(note []byte) {
		if word := (*uint32)(unsafe.Pointer(&note[0])); on {
			atomic.OrUint32(word, role)
		} else {
			atomic.AndUint32(word, ^role)
		}
	})
}

// noteLeaving is the place in the note behind a row of counters that says that a shadow gets what
// leaves (plan.RowBytes).
const noteLeaving = 4

// eachRow goes through the notes behind the rows of a generation's counters.
func eachRow(rows []byte, of *store.Description, do func(note []byte)) {
	for at := len(of.Slots) * plan.SlotBytes; at < len(rows); at += of.RowBytes {
		do(rows[at : at+plan.SlotBytes])
	}
}

// Unhook empties the arrays of programs. The programs in force find that, and hand on no more.
func Unhook(s *store.Store, key string, of *store.Description) error {
	if err := unhookLeaving(s, key, of); err != nil {
		return err
	}
	programs, err := handed(s, key, of)
	if err != nil {
		return err
	}
	defer programs.Close()
	err = programs.Delete(uint32(state.Looks))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return kernel.Refuse(err, "have no packets go to the shadow")
	}
	return nil
}

// hookShadows finishes what a killed command began: packets go to each shadow that is described.
func hookShadows(s *store.Store, a *attach.Attachment) {
	for _, n := range a.Judges() {
		sh := a.ShadowOf(n)
		if sh == nil {
			continue
		}
		is, err := HandsTo(s, a.Key, a.Generations[n], sh.Program)
		switch {
		case err == nil && is:
			err = turnOn(s, a.Key, a.Generations[n])
		case err == nil:
			err = Hook(s, a.Key, a.Generations[n], sh)
		}
		if err != nil {
			s.Note("the shadow %s on %s judges no packets: %v", sh.Policy, sh.Dev, err)
		}
	}
}

// HandsTo reports whether the program of a generation hands its packets to the one of an id.
func HandsTo(s *store.Store, key string, of *store.Description, id uint32) (bool, error) {
	programs, err := handed(s, key, of)
	if err != nil {
		return false, err
	}
	defer programs.Close()
	return HoldsProgram(programs, state.Looks, id)
}

// HoldsProgram reports whether an array of programs has the one of an id at a place.
func HoldsProgram(programs *ebpf.Map, place, id uint32) (bool, error) {
	var there uint32
	err := programs.Lookup(place, &there)
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return false, nil
	case err != nil:
		return false, kernel.Refuse(err, "look up who gets packets")
	}
	return there == id, nil
}
