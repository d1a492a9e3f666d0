package state

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"levee/internal/filter/echo"
	"levee/internal/filter/flow"
	"levee/internal/filter/greylist"
	"levee/internal/filter/stream"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// all is a use of everything that a program may remember.
func all() *Use {
	return &Use{CPUs: 2, HZ: 250, Tracks: true, Room: flow.MinRoom, Protocols: []uint8{6, 17},
		Limits: []Limit{{Limit: &policy.Limit{}, ID: "a", Map: "limit_0"}}, Logs: []uint32{1},
		Cookies: 1, Answered: [action.NumAnswered]bool{action.SYNs: true},
		Asks: map[field.Field]bool{field.Flow: true, field.Proven: true}, Fragments: 2,
		Echoes:  []echo.Form{{}},
		Streams: []stream.Ports{{Lo: 80, Hi: 80}}, Greylists: 1, Strangers: greylist.MinRoom,
		Rings: []string{"dns"}, RingsReached: 1,
		Families: map[action.Action]int{action.Divert: 1}, JudgedBytes: 64}
}

// A row that lacks something would be a memory that some stage forgets.
func TestARowSaysAllOfItsMemory(t *testing.T) {
	u, maps := all(), map[string]string{}
	if got := len(u.In()); got != len(Table) {
		t.Fatalf("of %d rows %d are used", len(Table), got)
	}
	for i := range Table {
		r := &Table[i]
		if Of(r.What) != r {
			t.Errorf("%s: another row holds %s too", r.Name, r.What)
		}
		if r.Used(&Use{Plain: true}) {
			t.Errorf("%s: a program that asks for nothing has it", r.Name)
		}
		if (r.Emit == nil) != (r.Bound == nil) {
			t.Errorf("%s: its functions have no bound, or there are none", r.Name)
		}
		if r.Bound != nil {
			if b := r.Bound(u); b.Functions == 0 || b.Instructions == 0 {
				t.Errorf("%s: its functions have no bound: %+v", r.Name, b)
			}
		}
		if (r.Seed == nil) != (r.Head == 0) {
			t.Errorf("%s: %d bytes of a head, and who writes them", r.Name, r.Head)
		}
		shared := slices.Clone(r.Shared)
		for j, m := range r.Maps(u) {
			shared = slices.DeleteFunc(shared, func(c Contents) bool { return c == m.Holds.What })
			// own addresses are of an interface, not of its policy
			if m.Lifetime.Continues() && r.Seed != nil && m.Holds.What != HoldsOwn &&
				!slices.Contains(r.Shared, m.Holds.What) {
				t.Errorf("%s: interfaces with one policy have a map %s each", r.Name, m.Name)
			}
			if j == 0 && m.Holds.What != r.What {
				t.Errorf("%s: its first map holds %s", r.Name, m.Holds.What)
			}
			if of := maps[m.Name]; of != "" {
				t.Errorf("%s: %s has a map %s too", r.Name, of, m.Name)
			}
			maps[m.Name] = r.Name
			if m.Bytes < r.Head && j == 0 || m.Bytes == 0 || m.For == "" {
				t.Errorf("%s: the map %s has %d bytes for %q", r.Name, m.Name, m.Bytes, m.For)
			}
			if m.Spec != nil && m.Spec.Name != m.Name {
				t.Errorf("%s: the map %s is described as %s", r.Name, m.Name, m.Spec.Name)
			}
		}
		if len(shared) > 0 {
			t.Errorf("%s: it shares %v, which none of its maps holds", r.Name, shared)
		}
		if b := r.Beside; b != nil {
			judges := all()
			judges.JudgedBytes = 0 // a shadow may need none
			spec, err := b.Spec(judges)
			if err != nil || spec.Name != b.Name || b.At == Ingress ||
				spec.Type == ebpf.UnspecifiedProgram {
				t.Errorf("%s: its program %+v at %s: %v", r.Name, spec, b.At, err)
			}
		}
	}
}

// Keys of hashes are drawn for each memory by itself: one that two share is known to both.
func TestAHeadIsDrawnAnew(t *testing.T) {
	for i := range Table {
		r := &Table[i]
		if r.Seed == nil {
			continue
		}
		a, b := make([]byte, r.Head), make([]byte, r.Head)
		r.Seed(a, 250)
		r.Seed(b, 250)
		if string(a) == string(b) {
			t.Errorf("%s: two heads are the same", r.Name)
		}
	}
}

// A memory of which nothing is told, in a metric and in words, is one that fills up unseen.
func TestEachMemoryTells(t *testing.T) {
	names := map[string]bool{}
	for i := range Table {
		r := &Table[i]
		u, m := all(), &Memories{}
		if r.Tell == nil || len(r.Values) == 0 || (r.Lines == nil) != (r.Elsewhere != "") {
			t.Fatalf("%s: it has no metric, or no words, or is told twice", r.Name)
		}
		lines := func() []Line {
			if r.Lines == nil {
				return nil
			}
			return r.Lines(m, "eth0")
		}
		if len(lines()) > 0 {
			t.Errorf("%s: it is in words where there is none", r.Name)
		}
		for _, v := range r.Values {
			if samples := v.Of(m); len(samples) > 0 {
				t.Errorf("%s: %s is %v where there is none", r.Name, v.Metric, samples)
			}
		}
		r.Tell(&Reading{Memory: make([]byte, r.Maps(u)[0].Bytes), Now: 1 << 20, HZ: 250,
			Limit:  Budgets{ID: "label:a", Rule: "a.levee:1"},
			Taken:  func(Identity) []int { return nil },
			Beside: func(Identity, func([]byte)) {}, Logs: len(u.Logs)}, m)
		if l := lines(); r.Lines != nil && (len(l) != 1 || l[0].Live != 0 || l[0].Now == "") {
			t.Errorf("%s: of an empty memory it says %+v", r.Name, l)
		}
		for _, v := range r.Values {
			if samples := v.Of(m); len(samples) != 1 {
				t.Errorf("%s: %s has %d samples", r.Name, v.Metric, len(samples))
			}
			if names[v.Metric] || !strings.HasSuffix(v.Metric, v.Unit) || v.Help == "" {
				t.Errorf("%s: the metric %s, of %s: %q", r.Name, v.Metric, v.Unit, v.Help)
			}
			names[v.Metric] = true
		}
	}
	if n := reflect.TypeFor[Memories]().NumField(); n > len(Table) {
		t.Errorf("%d memories tell, of %d", n, len(Table))
	}
}
