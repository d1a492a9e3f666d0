package generation

import (
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// Turn says which generation of an interface judges what leaves: programs at egress are attached
// before it is their turn, and looked at by all that leaves. A nil Turn is of an interface on which
// no policy has said anything of what leaves.
type Turn struct{ memory []byte }

// TurnIn returns the turn that a map holds; nil of no map.
func TurnIn(m *ebpf.Map) (*Turn, error) {
	if m == nil {
		return nil, nil
	}
	memory, err := store.MapMemory(m, state.TurnBytes)
	if err != nil {
		return nil, kernel.Refuse(err, "open what says which policy judges what leaves")
	}
	return &Turn{memory}, nil
}

// OpenTurn returns the turn of the interface of a generation: its own, or that of its shadow.
func OpenTurn(s *store.Store, a *attach.Attachment, g *store.Description) (*Turn, error) {
	name, ok := codegen.MapOf(g.Maps, state.HoldsTurn)
	if sh := a.ShadowOf(g.Generation); !ok && sh != nil {
		g = sh
		name, ok = codegen.MapOf(g.Maps, state.HoldsTurn)
	}
	if !ok {
		return nil, nil
	}
	m, err := s.OpenPinned(a.Key, g.Generation, name)
	if err != nil || m == nil {
		return nil, err
	}
	defer m.Close()
	return TurnIn(m)
}

// Give has a generation judge what leaves: until a time in jiffies, after which another does, or
// none; 0 is for good. Between any two of these stores whole policies judge: the one before, or
// this one.
func (t *Turn) Give(now int, until uint64, then int) {
	if t == nil {
		return
	}
	if until != 0 {
		t.put(state.TurnThen, uint64(then))
		t.put(state.TurnUntil, until)
	}
	t.put(state.TurnNow, uint64(now)) // traffic changes here
	if until == 0 {
		t.put(state.TurnUntil, 0)
	}
}

func (t *Turn) put(at int, v uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&t.memory[at])), v)
}

// Close lets go of the memory.
func (t *Turn) Close() error {
	if t == nil {
		return nil
	}
	return unix.Munmap(t.memory)
}

// giveTurn has what leaves be judged by the generation that judges what arrives.
func giveTurn(s *store.Store, a *attach.Attachment) error {
	g := a.Current()
	if g == nil {
		return nil
	}
	t, err := OpenTurn(s, a, g)
	if err != nil {
		return err
	}
	if a.Trial() != nil {
		t.Give(g.Generation, g.Deadline, g.Fallback)
	} else {
		t.Give(g.Generation, 0, 0)
	}
	return t.Close()
}
