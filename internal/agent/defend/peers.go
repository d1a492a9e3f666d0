package defend

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"levee/internal/agent/part"
)

// Peers are the addresses that have done a handshake of TCP with this machine in the last hour.
// Whoever forges a source does not see the answer, and has not: so a peer is there, whatever
// segments come in its name (docs/explanation/decisions/0082-known-clients.md).
type Peers struct {
	list func() ([]netip.Addr, error)
	mu   sync.Mutex
	seen map[netip.Addr]time.Time
}

// Bounds of peers: how many there are, and how often the kernel is asked for them. A server with
// 100,000 sockets takes a tenth of a second, and is asked for a two-hundredth of the time.
const (
	mostPeers  = 1 << 16
	peersEvery = 10 * time.Second
	peersShare = 200
)

// NewPeers are none, of a function that lists those of now.
func NewPeers(list func() ([]netip.Addr, error)) *Peers {
	return &Peers{list: list, seen: map[netip.Addr]time.Time{}}
}

// run looks for peers until ctx ends.
func (p *Peers) run(ctx context.Context, known *part.Part) {
	for {
		begun := time.Now()
		err := p.look()
		if err != nil {
			err = fmt.Errorf("list the connections of this machine: %w; a cookie then asks all "+
				"clients", err)
		}
		_ = known.Did(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(peersEvery, peersShare*time.Since(begun))):
		}
	}
}

// look asks for those of now. Where there is no room, the first to come stay.
func (p *Peers) look() error {
	all, err := p.list()
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for a, at := range p.seen {
		if now.Sub(at) > goodAge {
			delete(p.seen, a)
		}
	}
	for _, a := range all {
		if _, there := p.seen[a]; there || len(p.seen) < mostPeers {
			p.seen[a] = now
		}
	}
	return err
}

// again has them looked for now, by somebody else.
func (p *Peers) again() {
	go func() { _ = p.look() }() // run says what is wrong
}

// has says whether an address is one of those of the last hour, as of the last look.
func (p *Peers) has(a netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, there := p.seen[a]
	return there
}

// known returns those of the last hour, with those of now.
func (p *Peers) known() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	if p == nil {
		return out
	}
	_ = p.look() // run says what is wrong
	p.mu.Lock()
	defer p.mu.Unlock()
	for a := range p.seen {
		out[a] = true
	}
	return out
}
