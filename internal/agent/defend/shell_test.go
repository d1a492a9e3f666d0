package defend

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/agent/rulebook"
	"levee/internal/lang/policy"
)

var shellSchedules = flag.Int("shell-schedules", 240, "random schedules of the shell")

// flooded is a shell in the middle of a flood that its rules stop.
func flooded(t *testing.T) *shell {
	t.Helper()
	s := newShell(t, 1)
	s.passes(8 * time.Second)
	if n := len(s.store.List()); n > 0 {
		t.Fatalf("%d incidents before the flood", n)
	}
	s.floods(floodRate60k)
	s.passes(3 * time.Second)
	if len(s.k.texts()) == 0 {
		t.Fatal("no rule stops the flood")
	}
	return s
}

// TestAFloodIsStoppedWithoutRights: what applies the effects of the machine was tested as root
// alone, by one story.
func TestAFloodIsStoppedWithoutRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := flooded(t)
		i := s.store.List()[0]
		if i.Seen.Kind != "udp" || i.Acted == nil {
			t.Errorf("%+v", i)
		}
		s.over()
		s.end()
	})
}

// TestRulesGoOnWithAnotherAgent, and those whose lease has ended meanwhile are gone.
func TestRulesGoOnWithAnotherAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := flooded(t)
		before := s.k.texts()
		s.end()
		s.begin()
		s.passes(20 * time.Second) // twice their lease
		if got := s.k.texts(); !slices.Equal(got, before) {
			t.Errorf("%q went on as %q", before, got)
		}
		s.end()
		time.Sleep(12 * time.Second)
		if got := s.k.texts(); len(got) > 0 {
			t.Errorf("without an agent: %q", got)
		}
		s.begin()
		s.over()
		s.end()
	})
}

// TestAnAgentThatBeginsInAFloodStopsIt: it took what came first for usual. Another one after it,
// whose rules have ended, needs no warm-up.
func TestAnAgentThatBeginsInAFloodStopsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShell(t, 1)
		s.k.mu.Lock()
		s.k.tells = true
		s.k.mu.Unlock()
		s.floods(floodRate60k)
		s.passes(9 * time.Second)
		if len(s.k.texts()) == 0 || len(s.store.List()) != 1 || !s.store.List()[0].Seen.Unknown {
			t.Fatalf("%q of %+v", s.k.texts(), s.store.List())
		}
		s.end()
		time.Sleep(12 * time.Second) // longer than their lease
		s.begin()
		s.passes(3 * time.Second)
		if len(s.k.texts()) == 0 {
			t.Errorf("nothing stops what was known to be a flood: %+v", s.store.List())
		}
		s.over()
		s.end()
	})
}

// TestWhatIsUndoneStaysUndone, though the flood goes on, for another agent too.
func TestWhatIsUndoneStaysUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := flooded(t)
		id := s.store.List()[0].ID
		s.w.Do(func() {
			if found, err := s.w.undo(t.Context(), id); !found || err != nil {
				t.Errorf("undo: %t, %v", found, err)
			}
		})
		s.passes(10 * time.Second)
		s.end()
		s.begin()
		s.passes(10 * time.Second)
		if got := s.k.texts(); len(got) > 0 {
			t.Errorf("%q", got)
		}
		s.over()
		s.end()
	})
}

// TestRulesGoIntoAnotherPolicy that comes into force beneath them. While a flood was new, nobody
// looked which policy is in force, though each change said that it is another one: rules were back
// after 4 seconds and 6 searches.
func TestRulesGoIntoAnotherPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := flooded(t)
		before := s.k.texts()
		s.k.replace(t)
		if len(s.k.texts()) > 0 {
			t.Fatal("the policy took no live rules with it")
		}
		s.passes(time.Second)
		if got := s.k.texts(); !slices.Contains(got, before[0]) {
			t.Errorf("%q became %q", before, got)
		}
		s.over()
		s.end()
	})
}

// TestARuleIsWrittenIntoThePolicyThatHasCome: straight after `levee up`, amid a flood, a rule of
// the API was refused, since another policy had come into force.
func TestARuleIsWrittenIntoThePolicyThatHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := flooded(t)
		s.k.replace(t)
		r := rulebook.Rule{Origin: policy.CommandOrigin, Dev: s.dev, Since: time.Now(),
			Until: time.Now().Add(time.Hour)}
		s.w.Do(func() {
			s.w.Book = rulebook.Open(filepath.Join(t.TempDir(), "rules.json"))
			err := s.w.write(t.Context(), &r, "drop udp from 203.0.113.0/24")
			if err != nil {
				t.Error(err)
			}
		})
		if got := s.k.texts(); !slices.Contains(got, r.Rule) {
			t.Errorf("in force: %q", got)
		}
		s.w.Do(func() {
			if err := s.w.erase(t.Context(), r.ID, byWriter); err != nil {
				t.Error(err)
			}
		})
		s.over()
		s.end()
	})
}

// TestAChangeThatWasMadeIsBelieved: rules that were in force were believed to have failed where an
// error came behind the change, such as that whoever asked for it was gone. Nobody renewed them.
func TestAChangeThatWasMadeIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShell(t, 1)
		s.passes(8 * time.Second)
		s.k.mu.Lock()
		s.k.behind = context.Canceled
		s.k.mu.Unlock()
		s.floods(floodRate60k)
		s.passes(time.Second)
		believed := 0
		s.w.Do(func() { believed = len(s.w.floods.Live()) })
		i := s.store.List()[0]
		if got := s.k.texts(); len(got) == 0 || believed != len(got) || i.Acted == nil {
			t.Errorf("in force: %q, believed: %d, failed: %q", got, believed, i.Failed)
		}
		if s.k.puts > 1 {
			t.Errorf("%d changes made one", s.k.puts)
		}
		s.over()
		s.end()
	})
}

// TestAnyScheduleOfTheShellKeepsThePromises: what it is asked and refused at random, no rule is in
// force without an incident, and all are gone after a time of quiet.
func TestAnyScheduleOfTheShellKeepsThePromises(t *testing.T) {
	before := debug.SetGCPercent(1000) // little is alive at any time
	t.Cleanup(func() { debug.SetGCPercent(before) })
	const lanes = 4
	for lane := range lanes {
		t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
			t.Parallel()
			for seed := lane; seed < *shellSchedules && !t.Failed(); seed += lanes {
				synctest.Test(t, func(t *testing.T) { anySchedule(t, uint64(seed)) })
			}
		})
	}
}

// anySchedule is one of them. Few packets are sampled, so that there can be many.
func anySchedule(t *testing.T, seed uint64) {
	s := newShell(t, seed)
	s.k.mu.Lock()
	s.k.sampled, s.k.calm = floodSampled/15, goodSampled/10
	s.k.mu.Unlock()
	s.passes(8 * time.Second)
	for range 30 {
		switch s.k.IntN(10) {
		case 0, 1, 2:
			s.floods(floodRate60k)
		case 3:
			s.floods(0)
		case 4, 5:
			s.k.mu.Lock()
			if s.k.IntN(2) == 0 {
				s.k.before = errKernel
			} else {
				s.k.behind = errKernel
			}
			s.k.mu.Unlock()
		case 6:
			s.k.replace(t)
		case 7:
			s.end()
			s.passes(time.Duration(s.k.IntN(15)) * time.Second)
			s.begin()
		case 8:
			for _, i := range s.store.List() {
				s.w.Do(func() { _, _ = s.w.undo(t.Context(), i.ID) })
			}
		}
		s.passes(time.Duration(s.k.IntN(2000)) * time.Millisecond)
	}
	s.over()
	s.end()
	if t.Failed() {
		t.Fatalf("schedule %d", seed)
	}
}
