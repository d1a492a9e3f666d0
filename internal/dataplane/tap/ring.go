package tap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/packet"
	"levee/ring"
)

// Ring hands what the policy on an interface redirects to a ring to AF_XDP sockets. It is used by
// one goroutine.
type Ring struct {
	Dev, Name string
	Link      packet.Link // what frames begin with, once it is joined

	stamp   string     // of the runtime directory, when it was last looked at
	sockets ebpf.MapID // of the map that has the sockets; 0: none has
	tally   []byte
}

// Queues returns the receive queues of the interface, in this network namespace.
func (r *Ring) Queues() (dev *net.Interface, queues int, err error) {
	if _, err := attach.FindDevice(r.Dev); err != nil {
		return nil, 0, err
	}
	l, err := netlink.LinkByName(r.Dev)
	if err != nil {
		return nil, 0, kernel.Refuse(err, "look up interface %s", r.Dev)
	}
	a := l.Attrs()
	return &net.Interface{Index: a.Index, MTU: a.MTU, Name: a.Name}, max(1, a.NumRxQueues), nil
}

// Join puts the sockets of queues where the policy in force looks for them, if they are not there,
// and has the queues count in the memory of the ring. It says whether they are there: not while the
// interface has no policy with the ring. Where nothing has changed since the last call, it asks the
// kernel for nothing.
func (r *Ring) Join(ctx context.Context, queues []*ring.Queue) (joined bool, err error) {
	return r.look(ctx, func(sockets, readers *ebpf.Map) error {
		if err := r.count(readers, queues); err != nil {
			return err
		}
		return r.put(sockets, queues)
	})
}

// put puts the sockets of queues where a policy looks for them.
func (r *Ring) put(sockets *ebpf.Map, queues []*ring.Queue) error {
	for _, q := range queues {
		if err := sockets.Put(uint32(q.Number), uint32(q.FD())); err != nil {
			return kernel.Refuse(err, "hand ring %q of %s to a reader", r.Name, r.Dev)
		}
	}
	return nil
}

// Serve does the same for a reader that is another process, to which give hands the queues; nothing
// of levee's waits for that. What the reader has got Received adds.
func (r *Ring) Serve(ctx context.Context, queues []*ring.Queue, give func() error) (joined bool,
	err error) {
	var to *ebpf.Map
	if joined, err = r.look(ctx, func(sockets, readers *ebpf.Map) (err error) {
		if err = r.count(readers, nil); err == nil {
			to, err = sockets.Clone()
		}
		return err
	}); to == nil {
		return joined, err
	}
	defer to.Close()
	if err == nil {
		err = give()
	}
	if err == nil {
		err = r.put(to, queues)
	}
	if err != nil {
		r.sockets = 0
	}
	return err == nil, err
}

// Received counts packets that the reader of a ring that is served has got.
func (r *Ring) Received(n uint64) {
	if r.tally != nil {
		atomic.AddUint64(&(*ring.Tally)(unsafe.Pointer(&r.tally[0])).Received, n)
	}
}

// Still says whether the ring that was joined last is still that of the policy in force.
func (r *Ring) Still(ctx context.Context) (bool, error) {
	before := r.sockets
	still := false
	_, err := r.look(ctx, func(*ebpf.Map, *ebpf.Map) error { return errors.New("another ring") })
	if r.sockets == before && before != 0 {
		still, err = true, nil
	}
	return still, err
}

// look finds the maps of the ring, and calls a function with them if they have changed.
func (r *Ring) look(ctx context.Context, fresh func(sockets, readers *ebpf.Map) error) (there bool,
	err error) {
	stamp, err := generation.RunStamp()
	if err != nil || stamp == r.stamp && r.sockets != 0 {
		return r.sockets != 0, err
	}
	err = generation.TransactOn(ctx, r.Dev, func(s *store.Store, a *attach.Attachment) error {
		sockets, err := r.open(s, a, state.HoldsRingSockets)
		if err != nil {
			return err
		}
		defer sockets.Close()
		readers, err := r.open(s, a, state.HoldsRingReaders)
		if err != nil {
			return err
		}
		defer readers.Close()
		id, err := store.MapID(sockets)
		if err != nil || id == r.sockets {
			return err
		}
		r.sockets, r.Link = 0, a.Current().Link
		if err := fresh(sockets, readers); err != nil {
			return err
		}
		r.sockets = id
		return nil
	})
	if errors.As(err, new(*generation.NotAttachedError)) || errors.As(err, new(*NoRingError)) {
		r.sockets = 0
	}
	if err != nil {
		return false, err
	}
	r.stamp = stamp
	return true, nil
}

// open opens a map of the ring.
func (r *Ring) open(s *store.Store, a *attach.Attachment, what state.Contents) (*ebpf.Map, error) {
	m, err := openLike(s, a, state.Identity{What: what, Name: r.Name})
	if err == nil && m == nil {
		e := &NoRingError{dev: r.Dev, name: r.Name}
		for _, use := range a.Current().Maps {
			if use.Holds.What == what && use.Lifetime == codegen.Attached {
				e.others = append(e.others, use.Holds.Name)
			}
		}
		err = e
	}
	return m, err
}

// count has queues count in the memory of the ring.
func (r *Ring) count(readers *ebpf.Map, queues []*ring.Queue) error {
	memory, err := store.MapMemory(readers, ring.TallyBytes)
	if err != nil {
		return err
	}
	for _, q := range queues {
		q.Count((*ring.Tally)(unsafe.Pointer(&memory[0])))
	}
	r.tally, memory = memory, r.tally
	if memory == nil {
		return nil
	}
	return unix.Munmap(memory)
}

// Close releases the memory in which the queues count. The queues have to be closed before.
func (r *Ring) Close() error {
	if r.tally == nil {
		return nil
	}
	defer func() { r.tally = nil }()
	return unix.Munmap(r.tally)
}

// NoRingError says that the policy in force has no ring of a name.
type NoRingError struct {
	dev, name string
	others    []string
}

func (e *NoRingError) Error() string {
	text := fmt.Sprintf("the policy on %s has no ring %q", e.dev, e.name)
	if len(e.others) == 0 {
		return text + ": write a rule, as in: redirect udp port 53 to ring \"" + e.name +
			"\" else pass"
	}
	return text + "; it has " + strings.Join(e.others, ", ")
}
