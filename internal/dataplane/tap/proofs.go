package tap

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/echo"
	"levee/internal/filter/flow"
	"levee/internal/filter/state"
	"levee/internal/packet"
)

// proofs are the flows of UDP that a policy has proven. It reads what programs write, and changes
// nothing.
type proofs struct {
	mapped []byte // whole pages
	memory []byte
}

// openProofs returns those of a generation; nil: its policy proves none.
func openProofs(s *store.Store, a *attach.Attachment, g *store.Description) (*proofs, error) {
	name, ok := codegen.MapOf(g.Maps, state.HoldsEchoes)
	if !ok {
		return nil, nil
	}
	m, err := s.OpenPinned(a.Key, g.Generation, name)
	if err != nil || m == nil {
		return nil, err
	}
	defer m.Close()
	mapped, err := store.MapMemory(m, int(m.ValueSize()))
	if err != nil {
		return nil, err
	}
	return &proofs{mapped, mapped[:m.ValueSize()]}, nil
}

// has says whether the flow of a client is proven, at a time in jiffies.
func (p *proofs) has(client, service netip.AddrPort, jiffies uint64) bool {
	return echo.Has(p.memory, flow.HashOf(p.memory, packet.ProtoUDP, service, client), jiffies)
}

func (p *proofs) close() {
	if p != nil {
		_ = unix.Munmap(p.mapped)
	}
}
