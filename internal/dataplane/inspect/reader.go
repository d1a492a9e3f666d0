package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/kernel"
)

// DeviceCounters are the counters of the policy on an interface.
type DeviceCounters struct {
	Dev      string
	Counters []generation.SlotCounter // without CPUs

	index   int
	in      *store.Description // the generation in force
	program uint32             // that its interface shows
}

// Index returns the interface's index.
func (d *DeviceCounters) Index() int { return d.index }

// InForce returns what is in force on the interface.
func (d *DeviceCounters) InForce() *store.Description { return d.in }

// Arrived returns how many packets that arrived the policy has judged.
func (d *DeviceCounters) Arrived() (n uint64) {
	for i, c := range d.Counters {
		if d.in.Slots[i].Judges() {
			n += c.Packets
		}
	}
	return n
}

// Reader reads the counters of all policies of this network namespace again and again: a second of
// it costs microseconds, for it keeps the memory of the counters open and takes the lock only when
// something has changed. It is used by one goroutine.
type Reader struct {
	devices []*readDevice
	stamp   string // state of the runtime directory at the last look-up of devices
	looked  time.Time
}

// lookAgain is the time for which the counters of a runtime directory that looks the same are read
// before they are looked up anew: an interface may have been renamed.
const lookAgain = 30 * time.Second

type readDevice struct {
	dev     string
	index   int
	in      *store.Description       // the policy in force
	program uint32                   // that its interface shows
	before  map[string]store.Counter // of generations that are gone
	live    []readCounters
}

// readCounters are the counters of a generation that may count.
type readCounters struct {
	mem       []byte
	size, row int // bytes of the value, and of a CPU's part of it
	slots     []store.Slot
}

// Close lets the memory go.
func (r *Reader) Close() {
	for _, d := range r.devices {
		d.close()
	}
	r.devices, r.stamp = nil, ""
}

func (d *readDevice) close() {
	for _, c := range d.live {
		_ = unix.Munmap(c.mem) // of a mapping that there is
	}
}

// Read returns what all policies have counted.
func (r *Reader) Read(ctx context.Context) ([]DeviceCounters, error) {
	stamp, err := generation.RunStamp()
	if err != nil {
		return nil, err
	}
	if stamp != r.stamp || time.Since(r.looked) > lookAgain {
		if err := r.look(ctx); err != nil {
			return nil, err
		}
		if r.stamp, err = generation.RunStamp(); err != nil {
			return nil, err
		}
		r.looked = time.Now()
	}
	var out []DeviceCounters
	for _, d := range r.devices {
		out = append(out, DeviceCounters{d.dev, d.read(), d.index, d.in, d.program})
	}
	return out, nil
}

func (d *readDevice) read() []generation.SlotCounter {
	sums := maps.Clone(d.before)
	for _, c := range d.live {
		for _, row := range generation.Rows(c.mem[:c.size], c.row, len(c.slots)) {
			for i, n := range row {
				if n != (store.Counter{}) {
					counts := c.slots[i].Counts()
					sum := sums[counts]
					sums[counts] = store.Counter{Packets: sum.Packets + n.Packets,
						Bytes: sum.Bytes + n.Bytes}
				}
			}
		}
	}
	out := make([]generation.SlotCounter, len(d.in.Slots))
	for i, s := range d.in.Slots {
		n := sums[s.Counts()]
		out[i] = generation.SlotCounter{ID: s.ID, Reason: s.Reason, Action: s.Action, Rule: s.Where,
			Label: s.Label, Line: s.Line, Text: s.Text, Packets: n.Packets, Bytes: n.Bytes}
	}
	return out
}

// look finds the counters that there are now.
func (r *Reader) look(ctx context.Context) error {
	var found []*readDevice
	err := store.Transact(ctx, func(s *store.Store) error {
		return generation.Sweep(s, "", func(a *attach.Attachment) error {
			l, err := a.Here()
			if err != nil || l == nil {
				return err
			}
			d, err := readable(s, a)
			if err != nil {
				return err
			}
			d.dev = l.Attrs().Name
			found = append(found, d)
			return nil
		})
	})
	if err != nil {
		for _, d := range found {
			d.close()
		}
		return err
	}
	r.Close()
	r.devices = found
	return nil
}

// readable opens the counters of an attachment.
func readable(s *store.Store, a *attach.Attachment) (*readDevice, error) {
	d := &readDevice{index: a.Ifindex, in: a.Current(), program: a.Shown(),
		before: map[string]store.Counter{}}
	for id, cpus := range a.Carried.Totals {
		d.before[id] = generation.SumCPUs(cpus)
	}
	for _, g := range a.Sorted() {
		if slices.Contains(a.Carried.Folded, g.Generation) {
			continue
		}
		c, err := openCounters(s, a.Key, g)
		if err != nil {
			d.close()
			return nil, kernel.Refuse(err, "read counters of %s", g.Dev)
		}
		d.live = append(d.live, c)
	}
	return d, nil
}

func openCounters(s *store.Store, key string, g *store.Description) (c readCounters, err error) {
	name, _ := codegen.MapOf(g.Maps, codegen.Counters)
	m, err := s.OpenPinned(key, g.Generation, name)
	if err == nil && m == nil {
		err = errors.New("they are gone")
	}
	if err != nil {
		return c, err
	}
	defer m.Close()
	c = readCounters{size: int(m.ValueSize()), row: g.RowBytes, slots: g.Slots}
	if c.row < len(g.Slots)*codegen.SlotBytes || c.row > c.size {
		return c, fmt.Errorf("a row of %d bytes does not hold %d counters", c.row, len(g.Slots))
	}
	c.mem, err = store.MapMemory(m, c.size)
	return c, err
}
