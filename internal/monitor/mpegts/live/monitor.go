package live

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/kernel"
	"levee/internal/monitor/mpegts"
)

// maps are those of a program that follows streams.
type maps struct {
	*ebpf.Collection
	program *ebpf.Program
	heads   map[followMpegtsKey]uint32 // places of the streams that were read last
	freed   []uint32                   // places of streams that are forgotten, to be given away
	empty   struct {
		flow followMpegtsFlow
		pids followMpegtsPids
	}
}

// load loads the program.
func load(o *Options, xdp, ether bool) (*maps, error) {
	s, prog, err := spec(o, xdp, ether)
	if err != nil {
		return nil, err
	}
	name := prog.Name
	c, err := ebpf.NewCollection(s)
	if err != nil {
		return nil, kernel.Refuse(err, "load the program that follows streams")
	}
	m := &maps{Collection: c, program: c.Programs[name]}
	if err := fill(c, o); err != nil {
		c.Close()
		return nil, kernel.Refuse(err, "set up the program that follows streams")
	}
	return m, nil
}

// Read reads all streams, each with the PIDs that it has.
func (m *maps) Read() ([]mpegts.Stream, mpegts.Totals, error) {
	all, err := m.streams()
	if err != nil {
		return nil, mpegts.Totals{}, err
	}
	var sum mpegts.Totals
	var cpus []followMpegtsTotals
	if err := m.Maps[followMapTotals].Lookup(uint32(0), &cpus); err != nil {
		return nil, sum, fmt.Errorf("read what is of no stream: %w", err)
	}
	for _, c := range cpus {
		sum.FEC += c.Fec
		sum.Fragments += c.Fragments
		sum.Unplaced += c.Unplaced
	}
	return all, sum, nil
}

func (m *maps) streams() (all []mpegts.Stream, err error) {
	heads := map[followMpegtsKey]uint32{}
	var k followMpegtsKey
	var at uint32
	var pids followMpegtsPids
	it := m.Maps[followMapStreams].Iterate()
	for it.Next(&k, &at) {
		heads[k] = at
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	m.heads = heads
	for k, at := range heads {
		var f followMpegtsFlow
		if err := m.Maps[followMapFlows].LookupWithFlags(at, &f, ebpf.LookupLock); err != nil {
			return nil, fmt.Errorf("read a stream: %w", err)
		}
		if f.First == 0 {
			continue // its first datagram is on the way
		}
		s := streamOf(&k, &f)
		if f.Pids > 0 {
			if err := m.Maps[followMapPids].Lookup(at, &pids); err != nil {
				return nil, fmt.Errorf("read the PIDs of a stream: %w", err)
			}
			s.PIDs = pidsOf(&f, &pids)
			slices.SortFunc(s.PIDs, func(a, b mpegts.PID) int { return int(a.PID) - int(b.PID) })
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b mpegts.Stream) int { return a.Compare(&b.Flow) })
	return all, nil
}

// Forget takes the places of streams back. They are given away by the next call: a datagram that
// is on its way still may count in one.
func (m *maps) Forget(gone []mpegts.Flow) error {
	for _, at := range m.freed {
		err := errors.Join(m.Maps[followMapFlows].Put(at, &m.empty.flow),
			m.Maps[followMapPids].Put(at, &m.empty.pids), m.Maps[followMapPlaces].Put(nil, at))
		if err != nil {
			return fmt.Errorf("give the place of a stream away: %w", err)
		}
	}
	m.freed = nil
	if len(gone) == 0 {
		return nil
	}
	is := map[mpegts.Flow]bool{}
	for _, f := range gone {
		is[f] = true
	}
	for k, at := range m.heads {
		if !is[flowOf(&k)] {
			continue
		}
		err := m.Maps[followMapStreams].Delete(k)
		if errors.Is(err, ebpf.ErrKeyNotExist) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("forget a stream: %w", err)
		}
		m.freed = append(m.freed, at)
	}
	return nil
}
