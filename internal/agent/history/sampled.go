package history

import (
	"net/netip"
	"sync"
)

// Sampled sums up sampled packets by protocol and source until they are taken. The zero value is
// ready. It may be used concurrently.
type Sampled struct {
	mu   sync.Mutex
	sums map[Key]*sampledSum
	devs map[string]bool
}

type sampledSum struct{ packets, bytes float64 }

// mostSampled bounds the sources that are told apart until they are taken.
const mostSampled = 4096

// Add adds a sampled packet, which stands for weight packets of that many bytes each. Sources of
// IPv6 are told apart by their /64, since a host has all of one.
func (s *Sampled) Add(dev, protocol string, source netip.Addr, weight float64, bytes int) {
	id := Others
	if a := source.Unmap(); a.Is4() {
		id = a.String()
	} else if a.Is6() {
		id = netip.PrefixFrom(a.WithZone(""), 64).Masked().String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observe(dev)
	s.add(Key{dev, Protocol, protocol}, weight, bytes)
	s.add(Key{dev, Source, id}, weight, bytes)
}

// Observe says that packets of an interface are sampled, also where none came.
func (s *Sampled) Observe(dev string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observe(dev)
}

func (s *Sampled) observe(dev string) {
	if s.sums == nil {
		s.sums, s.devs = map[Key]*sampledSum{}, map[string]bool{}
	}
	s.devs[dev] = true
}

func (s *Sampled) add(k Key, weight float64, bytes int) {
	sum := s.sums[k]
	if sum == nil && len(s.sums) >= mostSampled {
		k.ID = Others
		sum = s.sums[k]
	}
	if sum == nil {
		sum = &sampledSum{}
		s.sums[k] = sum
	}
	sum.packets += weight
	sum.bytes += weight * float64(bytes)
}

// Take returns what was added since it was taken last.
func (s *Sampled) Take() []Amount {
	s.mu.Lock()
	sums, devs := s.sums, s.devs
	s.sums, s.devs = nil, nil
	s.mu.Unlock()
	var out []Amount
	for dev := range devs {
		for _, kind := range []Kind{Protocol, Source} {
			if sums[Key{dev, kind, Others}] == nil {
				out = append(out, Amount{Series: Series{Key: Key{dev, kind, Others}}})
			}
		}
	}
	for k, sum := range sums {
		out = append(out, Amount{Series: Series{Key: k}, Packets: uint64(sum.packets + 0.5),
			Bytes: uint64(sum.bytes + 0.5)})
	}
	return out
}
