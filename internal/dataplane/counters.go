package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/filter/codegen"
	"levee/internal/kernel"
)

// carriedFile holds the counts of generations that are gone.
const carriedFile = "carried.json"

// carried is what generations that are gone have counted. A generation's counts are in it if and
// only if its number is in Folded; both change in one rename, so that a process killed at any
// moment neither loses a packet nor counts it twice.
type carried struct {
	Folded     []int                `json:"folded"` // folded, but perhaps not yet removed
	Totals     map[string][]Counter `json:"totals"` // by what slots count, then by CPU
	RolledBack *RolledBack          `json:"rolled_back,omitempty"`
	Shadow     *carriedShadow       `json:"shadow,omitempty"` // of the one that goes on
}

// nameCounts names what is carried as slot.counts does. Earlier levees named it by identity alone:
// a policy stays in force while levee is upgraded.
func (a *attachment) nameCounts() {
	for _, g := range a.all() {
		totals := a.carried.Totals
		if g.ShadowOf != 0 {
			totals = a.carried.Shadow.of(g.Shadow).Totals
		}
		for _, s := range g.Slots {
			to := s.counts()
			if cpus, ok := totals[s.ID]; ok && to != s.ID {
				delete(totals, s.ID)
				totals[to] = cpus
			}
		}
	}
}

// addTo adds counts by what slots count; cpus is [cpu][slot].
func addTo(totals map[string][]Counter, slots []slot, cpus [][]Counter) {
	for i, s := range slots {
		sum := totals[s.counts()]
		for cpu, row := range cpus {
			if row[i] == (Counter{}) {
				continue
			}
			for len(sum) <= cpu {
				sum = append(sum, Counter{})
			}
			sum[cpu].Packets += row[i].Packets
			sum[cpu].Bytes += row[i].Bytes
		}
		totals[s.counts()] = sum
	}
}

// totals is what has been counted of all that slots count since the interface was attached, by CPU:
// carried counts and those of every generation that is not folded yet.
func (s *store) totals(a *attachment) (map[string][]Counter, error) {
	sum := map[string][]Counter{}
	for id, cpus := range a.carried.Totals {
		sum[id] = slices.Clone(cpus)
	}
	for _, g := range a.sorted() {
		if slices.Contains(a.carried.Folded, g.Generation) {
			continue
		}
		cpus, err := s.counters(a.key, g)
		if err != nil {
			return nil, kernel.Refuse(err, "read counters of %s", g.Dev)
		}
		addTo(sum, g.Slots, cpus)
	}
	return sum, nil
}

// fold moves the counts of generations that judge no packet any more into carried.json. Nothing may
// run them: the caller has waited. What no slot of the generations in keep counts is let go.
func (s *store) fold(a *attachment, gone []*description, keep []*description) error {
	if err := step("fold"); err != nil {
		return err
	}
	next := carried{Totals: map[string][]Counter{}}
	if rb := a.carried.RolledBack; rb != nil && a.current().Generation < rb.Generation {
		next.RolledBack = rb // until there is a newer policy
	}
	for id, cpus := range a.carried.Totals {
		next.Totals[id] = slices.Clone(cpus)
	}
	next.Shadow = a.carried.Shadow.clone()
	for _, g := range gone {
		next.Folded = append(next.Folded, g.Generation)
		if slices.Contains(a.carried.Folded, g.Generation) {
			continue
		}
		cpus, err := s.counters(a.key, g)
		if err != nil {
			return kernel.Refuse(err, "carry the counters of %s over", g.Dev)
		}
		if g.ShadowOf == 0 {
			addTo(next.Totals, g.Slots, cpus)
			continue
		}
		if err := s.foldShadow(a, &next, g, cpus); err != nil {
			return err
		}
	}
	a.endShadow(&next, gone, keep)
	known := map[string]bool{}
	for _, g := range keep {
		for _, sl := range g.Slots {
			known[sl.counts()] = true
		}
	}
	maps.DeleteFunc(next.Totals, func(id string, _ []Counter) bool { return !known[id] })
	if err := writeJSON(s.state(a.key, carriedFile), next); err != nil {
		return err
	}
	a.carried = next
	return nil
}

// readRows reads a counters map as [cpu][slot]. The program writes meanwhile; each word is read
// whole, but packets and bytes of a slot may be one packet apart.
func readRows(m *ebpf.Map, rowBytes, slots int) ([][]Counter, error) {
	mem, err := mapMemory(m, int(m.ValueSize()))
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(mem)
	return rowsOf(m, mem, rowBytes, slots)
}

// rowsOf reads the value of a counters map.
func rowsOf(m *ebpf.Map, mem []byte, rowBytes, slots int) ([][]Counter, error) {
	if rowBytes < slots*codegen.SlotBytes || rowBytes > int(m.ValueSize()) {
		return nil, fmt.Errorf("a row of %d bytes does not hold %d counters", rowBytes, slots)
	}
	return rows(mem[:m.ValueSize()], rowBytes, slots), nil
}

func rows(mem []byte, rowBytes, slots int) [][]Counter {
	out := make([][]Counter, 0, len(mem)/rowBytes)
	for at := 0; at+rowBytes <= len(mem); at += rowBytes {
		row := make([]Counter, slots)
		for i := range row {
			c := (*Counter)(unsafe.Pointer(&mem[at+i*codegen.SlotBytes]))
			row[i] = Counter{atomic.LoadUint64(&c.Packets), atomic.LoadUint64(&c.Bytes)}
		}
		out = append(out, row)
	}
	return out
}

// sumCPUs adds up what the CPUs counted.
func sumCPUs(cpus []Counter) Counter {
	var sum Counter
	for _, c := range cpus {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
	}
	return sum
}

// waitForPrograms returns when every run of a program that had begun before the call has ended.
// The kernel promises that for an update of a map of maps (maybe_wait_bpf_programs,
// kernel/bpf/syscall.c), on one CPU and on nohz_full machines too, where membarrier does not.
func waitForPrograms() error {
	if err := step("wait"); err != nil {
		return err
	}
	inner := &ebpf.MapSpec{Name: "levee_inner", Type: ebpf.Array, KeySize: 4, ValueSize: 4,
		MaxEntries: 1}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Name: "levee_wait", Type: ebpf.ArrayOfMaps, KeySize: 4,
		ValueSize: 4, MaxEntries: 1, InnerMap: inner})
	if err != nil {
		return kernel.LoadError("create a map of maps", err)
	}
	m, err := ebpf.NewMap(inner)
	if err != nil {
		return errors.Join(kernel.LoadError("create a map", err), outer.Close())
	}
	err = outer.Put(uint32(0), m)
	if err != nil {
		err = kernel.Refuse(err, "wait until the replaced program has ended")
	}
	return errors.Join(err, outer.Close(), m.Close())
}
