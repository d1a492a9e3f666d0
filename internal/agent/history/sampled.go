package history

import (
	"net/netip"
	"sync"
)

// Sampled sums up sampled packets by protocol and source until they are taken. The zero value is
// ready. It may be used concurrently.
type Sampled struct {
	mu      sync.Mutex
	devs    map[string]*sampledDev
	sources int // of all interfaces
}

// sampledDev holds the sums of an interface, by protocol and by source. The source that is not
// valid has those that are not told apart. Keys of series are made once they are taken, as most
// packets are of a few sources.
type sampledDev struct {
	protocols map[string]*sampledSum
	sources   map[netip.Addr]*sampledSum
}

type sampledSum struct{ packets, bytes float64 }

// mostSampled bounds the sources that are told apart until they are taken.
const mostSampled = 4096

// Add adds a sampled packet, which stands for weight packets of that many bytes each. Sources of
// IPv6 are told apart by their /64, since a host has all of one.
func (s *Sampled) Add(dev, protocol string, source netip.Addr, weight float64, bytes int) {
	if source = source.Unmap(); source.Is6() {
		b := source.As16()
		clear(b[8:])
		source = netip.AddrFrom16(b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.observe(dev)
	sum := d.protocols[protocol]
	if sum == nil {
		sum = &sampledSum{}
		d.protocols[protocol] = sum
	}
	sum.add(weight, bytes)
	if sum = d.sources[source]; sum == nil && s.sources >= mostSampled {
		source = netip.Addr{}
		sum = d.sources[source]
	}
	if sum == nil {
		sum = &sampledSum{}
		d.sources[source] = sum
		s.sources++
	}
	sum.add(weight, bytes)
}

// Observe says that packets of an interface are sampled, also where none came.
func (s *Sampled) Observe(dev string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observe(dev)
}

func (s *Sampled) observe(dev string) *sampledDev {
	d := s.devs[dev]
	if d == nil {
		d = &sampledDev{map[string]*sampledSum{}, map[netip.Addr]*sampledSum{}}
		if s.devs == nil {
			s.devs = map[string]*sampledDev{}
		}
		s.devs[dev] = d
	}
	return d
}

func (s *sampledSum) add(weight float64, bytes int) {
	s.packets += weight
	s.bytes += weight * float64(bytes)
}

// sourceText is a source in the key of its series.
func sourceText(a netip.Addr) string {
	switch {
	case a.Is4():
		return a.String()
	case a.Is6():
		return netip.PrefixFrom(a, 64).String()
	}
	return Others
}

// Take returns what was added since it was taken last.
func (s *Sampled) Take() []Amount {
	s.mu.Lock()
	devs := s.devs
	s.devs, s.sources = nil, 0
	s.mu.Unlock()
	var out []Amount
	for dev, d := range devs {
		add := func(by Kind, name string, sum *sampledSum) {
			out = append(out, Amount{Series: Series{Key: Key{dev, by, name}},
				Packets: uint64(sum.packets + 0.5), Bytes: uint64(sum.bytes + 0.5)})
		}
		add(Protocol, Others, &sampledSum{})
		if d.sources[netip.Addr{}] == nil {
			add(Source, Others, &sampledSum{})
		}
		for protocol, sum := range d.protocols {
			add(Protocol, protocol, sum)
		}
		for source, sum := range d.sources {
			add(Source, sourceText(source), sum)
		}
	}
	return out
}
