// Package peers knows who has done a handshake of TCP with this machine.
package peers

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"levee/internal/agent/part"
)

// Table has the addresses that have done a handshake of TCP with this machine in the last hour.
// Whoever forges a source does not see the answer, and has not: so a peer is there, whatever
// segments come in its name (docs/explanation/decisions/0082-known-clients.md).
type Table struct {
	list func() ([]netip.Addr, error)
	mu   sync.Mutex
	seen map[netip.Addr]time.Time
}

// Bounds of peers: how many there are, for how long, and how often the kernel is asked for them. A
// server with 100,000 sockets takes a tenth of a second, and is asked for a two-hundredth of the
// time.
const (
	most  = 1 << 16
	every = 10 * time.Second
	share = 200
	age   = time.Hour
)

// New returns an empty table, for a function that lists the peers of now.
func New(list func() ([]netip.Addr, error)) *Table {
	return &Table{list: list, seen: map[netip.Addr]time.Time{}}
}

// Run looks for peers until ctx ends.
func (p *Table) Run(ctx context.Context, known *part.Part) {
	for {
		begun := time.Now()
		err := p.Look()
		if err != nil {
			err = fmt.Errorf("list the connections of this machine: %w; a cookie then asks all "+
				"clients", err)
		}
		_ = known.Did(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(every, share*time.Since(begun))):
		}
	}
}

// Look asks for those of now. Where there is no room, the first to come stay.
func (p *Table) Look() error {
	all, err := p.list()
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for a, at := range p.seen {
		if now.Sub(at) > age {
			delete(p.seen, a)
		}
	}
	for _, a := range all {
		if _, there := p.seen[a]; there || len(p.seen) < most {
			p.seen[a] = now
		}
	}
	return err
}

// Again has them looked for now, by somebody else.
func (p *Table) Again() {
	go func() { _ = p.Look() }() // Run says what is wrong
}

// Has says whether an address is one of those of the last hour, as of the last look.
func (p *Table) Has(a netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, there := p.seen[a]
	return there
}

// All returns those of the last hour, with those of now.
func (p *Table) All() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	if p == nil {
		return out
	}
	_ = p.Look() // Run says what is wrong
	p.mu.Lock()
	defer p.mu.Unlock()
	for a := range p.seen {
		out[a] = true
	}
	return out
}
