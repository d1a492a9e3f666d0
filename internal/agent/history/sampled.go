package history

import (
	"net/netip"
	"sync"
)

// Sampled sums up sampled packets by protocol and source until they are taken. The zero value is
// ready. It may be used concurrently.
type Sampled struct {
	mu   sync.Mutex
	sums map[sampledKey]*sampledSum
	devs map[string]bool
}

// sampledKey is a protocol of an interface, or else a source; that of the others is not valid. Keys
// of series are made once they are taken, as most packets are of a few sources.
type sampledKey struct {
	dev, protocol string
	source        netip.Addr
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
	s.observe(dev)
	s.add(sampledKey{dev: dev, protocol: protocol}, weight, bytes)
	s.add(sampledKey{dev: dev, source: source}, weight, bytes)
}

// Observe says that packets of an interface are sampled, also where none came.
func (s *Sampled) Observe(dev string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observe(dev)
}

func (s *Sampled) observe(dev string) {
	if s.sums == nil {
		s.sums, s.devs = map[sampledKey]*sampledSum{}, map[string]bool{}
	}
	s.devs[dev] = true
}

func (s *Sampled) add(k sampledKey, weight float64, bytes int) {
	sum := s.sums[k]
	if sum == nil && k.protocol == "" && len(s.sums) >= mostSampled {
		k = sampledKey{dev: k.dev}
		sum = s.sums[k]
	}
	if sum == nil {
		sum = &sampledSum{}
		s.sums[k] = sum
	}
	sum.packets += weight
	sum.bytes += weight * float64(bytes)
}

// key is that of the series.
func (k sampledKey) key() Key {
	switch {
	case k.protocol != "":
		return Key{k.dev, Protocol, k.protocol}
	case k.source.Is4():
		return Key{k.dev, Source, k.source.String()}
	case k.source.Is6():
		return Key{k.dev, Source, netip.PrefixFrom(k.source, 64).String()}
	}
	return Key{k.dev, Source, Others}
}

// Take returns what was added since it was taken last.
func (s *Sampled) Take() []Amount {
	s.mu.Lock()
	sums, devs := s.sums, s.devs
	s.sums, s.devs = nil, nil
	s.mu.Unlock()
	var out []Amount
	for dev := range devs {
		out = append(out, Amount{Series: Series{Key: Key{dev, Protocol, Others}}})
		if sums[sampledKey{dev: dev}] == nil {
			out = append(out, Amount{Series: Series{Key: Key{dev, Source, Others}}})
		}
	}
	for k, sum := range sums {
		out = append(out, Amount{Series: Series{Key: k.key()}, Packets: uint64(sum.packets + 0.5),
			Bytes: uint64(sum.bytes + 0.5)})
	}
	return out
}
