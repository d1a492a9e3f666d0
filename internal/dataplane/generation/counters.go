package generation

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/kernel"
)

// AddTo adds counts by what slots count; cpus is [cpu][slot].
func AddTo(totals map[string][]store.Counter, slots []store.Slot, cpus [][]store.Counter) {
	for i, s := range slots {
		sum := totals[s.Counts()]
		for cpu, row := range cpus {
			if row[i] == (store.Counter{}) {
				continue
			}
			for len(sum) <= cpu {
				sum = append(sum, store.Counter{})
			}
			sum[cpu].Packets += row[i].Packets
			sum[cpu].Bytes += row[i].Bytes
		}
		totals[s.Counts()] = sum
	}
}

// Totals returns what has been counted of all that slots count since the interface was attached, by
// CPU: carried counts and those of every generation that is not folded yet.
func Totals(s *store.Store, a *attach.Attachment) (map[string][]store.Counter, error) {
	sum := map[string][]store.Counter{}
	for id, cpus := range a.Carried.Totals {
		sum[id] = slices.Clone(cpus)
	}
	for _, g := range a.Sorted() {
		if slices.Contains(a.Carried.Folded, g.Generation) {
			continue
		}
		cpus, err := Counters(s, a.Key, g)
		if err != nil {
			return nil, kernel.Refuse(err, "read counters of %s", g.Dev)
		}
		AddTo(sum, g.Slots, cpus)
	}
	return sum, nil
}

// fold moves the counts of generations that judge no packet any more into carried.json. Nothing may
// run them: the caller has waited. What no slot of the generations in keep counts is let go.
func fold(s *store.Store, a *attach.Attachment, gone []*store.Description,
	keep []*store.Description) error {
	if err := s.Step("fold"); err != nil {
		return err
	}
	next := store.Carried{Totals: map[string][]store.Counter{}}
	if rb := a.Carried.RolledBack; rb != nil && a.Current().Generation < rb.Generation {
		next.RolledBack = rb // until there is a newer policy
	}
	for id, cpus := range a.Carried.Totals {
		next.Totals[id] = slices.Clone(cpus)
	}
	next.Shadow = a.Carried.Shadow.Clone()
	for _, g := range gone {
		next.Folded = append(next.Folded, g.Generation)
		if slices.Contains(a.Carried.Folded, g.Generation) {
			continue
		}
		cpus, err := Counters(s, a.Key, g)
		if err != nil {
			return kernel.Refuse(err, "carry the counters of %s over", g.Dev)
		}
		if g.ShadowOf == 0 {
			AddTo(next.Totals, g.Slots, cpus)
			continue
		}
		if err := foldShadow(s, a, &next, g, cpus); err != nil {
			return err
		}
	}
	endShadow(a, &next, gone, keep)
	known := map[string]bool{}
	for _, g := range keep {
		for _, sl := range g.Slots {
			known[sl.Counts()] = true
		}
	}
	maps.DeleteFunc(next.Totals, func(id string, _ []store.Counter) bool { return !known[id] })
	if err := store.WriteJSON(s.State(a.Key, store.CarriedFile), next); err != nil {
		return err
	}
	a.Carried = next
	return nil
}

// readRows reads a counters map as [cpu][slot]. The program writes meanwhile; each word is read
// whole, but packets and bytes of a slot may be one packet apart.
func readRows(m *ebpf.Map, rowBytes, slots int) ([][]store.Counter, error) {
	mem, err := store.MapMemory(m, int(m.ValueSize()))
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(mem)
	return rowsOf(m, mem, rowBytes, slots)
}

// rowsOf reads the value of a counters map.
func rowsOf(m *ebpf.Map, mem []byte, rowBytes, slots int) ([][]store.Counter, error) {
	if rowBytes < slots*codegen.SlotBytes || rowBytes > int(m.ValueSize()) {
		return nil, fmt.Errorf("a row of %d bytes does not hold %d counters", rowBytes, slots)
	}
	return Rows(mem[:m.ValueSize()], rowBytes, slots), nil
}

func Rows(mem []byte, rowBytes, slots int) [][]store.Counter {
	out := make([][]store.Counter, 0, len(mem)/rowBytes)
	for at := 0; at+rowBytes <= len(mem); at += rowBytes {
		row := make([]store.Counter, slots)
		for i := range row {
			c := (*store.Counter)(unsafe.Pointer(&mem[at+i*codegen.SlotBytes]))
			row[i] = store.Counter{Packets: atomic.LoadUint64(&c.Packets),
				Bytes: atomic.LoadUint64(&c.Bytes)}
		}
		out = append(out, row)
	}
	return out
}

// SumCPUs adds up what the CPUs counted.
func SumCPUs(cpus []store.Counter) store.Counter {
	var sum store.Counter
	for _, c := range cpus {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
	}
	return sum
}

// SlotCounter is the counter of one rule, or of a built-in one.
type SlotCounter struct {
	ID      string          `json:"id"`
	Reason  string          `json:"reason"` // malformed, protect, rule, essential, default
	Action  string          `json:"action"`
	Rule    string          `json:"rule"` // "edge.levee:14", "essential:arp"
	Label   string          `json:"label"`
	Line    int             `json:"line"` // 0 for built-in rules
	Text    string          `json:"text"`
	Packets uint64          `json:"packets"`
	Bytes   uint64          `json:"bytes"`
	CPUs    []store.Counter `json:"cpus,omitempty"` // by CPU, up to the last that counted anything
}

// counter describes a slot, without counts.
func CounterOfSlot(s store.Slot) SlotCounter {
	return SlotCounter{ID: s.ID, Reason: s.Reason, Action: s.Action, Rule: s.Where, Label: s.Label,
		Line: s.Line, Text: s.Text}
}

// CounterOf is counter of the slot of an identity.
func CounterOf(d *store.Description, id string) SlotCounter {
	for _, sl := range d.Slots {
		if sl.ID == id {
			return CounterOfSlot(sl)
		}
	}
	return SlotCounter{ID: id}
}

// Counters reads the counters of a generation: [cpu][slot].
func Counters(s *store.Store, key string, g *store.Description) ([][]store.Counter, error) {
	name, _ := codegen.MapOf(g.Maps, codegen.Counters)
	m, err := s.OpenPinned(key, g.Generation, name)
	if err == nil && m == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("open the counters of generation %d: %w", g.Generation, err)
	}
	defer m.Close()
	if s.ReadOnly {
		mem, err := store.CopyOfMap(m)
		if err != nil {
			return nil, err
		}
		return rowsOf(m, mem, g.RowBytes, len(g.Slots))
	}
	return readRows(m, g.RowBytes, len(g.Slots))
}
