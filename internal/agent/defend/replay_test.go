package defend

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/lang/goldentest"
)

// turn is a line of a file of events: what happens, how long it lasts, and what is so then.
type turn struct {
	Event string  `json:"event"`
	Rate  float64 `json:"rate,omitempty"` // of a flood, packets a second
	ID    string  `json:"id,omitempty"`   // of an incident
	Lasts string  `json:"lasts"`

	Rules     []string `json:"rules"`     // in force
	Incidents []string `json:"incidents"` // the newest first
}

const recordedFlood = "testdata/flood.jsonl"

// TestAFloodIsReplayedFromAFile: the same events come to the same rules and incidents, with the
// packets of a flood, the searches and the changes in the kernel between. In the file the kernel
// refuses a change, a lease ends without an agent, another policy comes beneath, and what was done
// is undone. -update writes anew what is so after each event.
func TestAFloodIsReplayedFromAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := os.Open(recordedFlood)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s := newShell(t, 1)
		var out bytes.Buffer
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var one turn
			d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
			d.DisallowUnknownFields()
			if err := d.Decode(&one); err != nil {
				t.Fatalf("%s: %v", lines.Text(), err)
			}
			s.takes(&one)
			encoded, err := json.Marshal(one)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(append(encoded, '\n'))
		}
		s.end()
		goldentest.Compare(t, recordedFlood, out.Bytes())
	})
}

// takes has an event happen, and notes what has become of it.
func (s *shell) takes(one *turn) {
	s.Helper()
	switch one.Event {
	case "calm":
	case "flood":
		s.floods(one.Rate)
	case "the kernel refuses the next change":
		s.k.mu.Lock()
		s.k.before = errKernel
		s.k.mu.Unlock()
	case "another policy":
		s.k.replace(s.T)
	case "the agent ends":
		s.end()
	case "an agent begins":
		s.begin()
	case "undo":
		s.w.Do(func() {
			if found, err := s.w.undo(s.Context(), one.ID); !found || err != nil {
				s.Errorf("undo %s: %t, %v", one.ID, found, err)
			}
		})
	default:
		s.Fatalf("no event %q", one.Event)
	}
	lasts, err := time.ParseDuration(one.Lasts)
	if err != nil {
		s.Fatal(err)
	}
	s.passes(lasts)
	one.Rules, one.Incidents = append([]string{}, s.k.texts()...), []string{}
	for _, i := range s.store.List() {
		one.Incidents = append(one.Incidents,
			fmt.Sprintf("%s: %s, %s", i.ID, i.Seen.Kind, i.State))
	}
}
