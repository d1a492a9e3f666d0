package tap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/capture"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/packet"
)

// FlowPacket is one of the first packets of a flow. It is overwritten after the callback returns.
type FlowPacket struct {
	At     time.Time
	Link   packet.Link
	First  uint32 // the number of the first byte of the flow; of UDP what tells it from others
	Number uint32 // of a datagram: how many of the flow came before
	Proven bool   // the kernel has the connection
	Bytes  int    // of the whole frame
	Packet []byte
}

// FlowReader hands on the first packets of flows to some ports, of those that an interface's policy
// passes. It goes on when the policy is replaced. When its process is killed, the program behind
// the policy's turns itself off. It is for one goroutine.
type FlowReader struct {
	follower
	ports  *capture.Ports
	stop   func()
	before capture.FlowCounts // of programs that are gone
	proofs *proofs            // of the policy in force
}

// NewFlowReader begins to read flows of dev; most is how much of each.
func NewFlowReader(ctx context.Context, dev string, ports *capture.Ports,
	most capture.FlowBounds) (*FlowReader, error) {
	r := &FlowReader{ports: ports, follower: newFollower(dev)}
	r.role = state.Flows
	r.program = func(g *store.Description, j capture.Judge, hz uint64) (*ebpf.CollectionSpec,
		*ebpf.ProgramSpec, error) {
		return capture.FlowSpec(j, codesOf(g.Mode, "pass"), g.Link != packet.L3, most, hz)
	}
	r.beside = func(s *store.Store, a *attach.Attachment, g *store.Description) (err error) {
		r.proofs.close()
		r.proofs, err = openProofs(s, a, g)
		return err
	}
	r.fill = func(c *ebpf.Collection) error {
		if err := c.Maps[capture.PortsMap].Put(uint32(0), r.ports[:]); err != nil {
			return kernel.Refuse(err, "name the ports whose flows are read")
		}
		return nil
	}
	r.leave = func() { r.before, _ = r.Counted() }
	if err := r.Follow(ctx); err != nil {
		r.follower.Close()
		r.proofs.close()
		return nil, err
	}
	r.stop = r.renew()
	return r, nil
}

// SetPorts names other ports.
func (r *FlowReader) SetPorts(ports *capture.Ports) error {
	if r.ports = ports; r.Hook == nil {
		return nil
	}
	return r.fill(r.Hook.Coll)
}

// MostAtOnce limits the packets of flows that are read at once. They may come as fast as they are
// read: what else there is to do would wait for the end of a flood.
const MostAtOnce = 4096

// Read gives the packets that there are, at most MostAtOnce.
func (r *FlowReader) Read(tell func(*FlowPacket)) error {
	if err := r.renewed(); err != nil {
		return err
	}
	if r.Hook == nil {
		return generation.NotAttached(r.dev)
	}
	p := FlowPacket{Link: r.Hook.G.Link}
	r.Hook.reader.SetDeadline(time.Now())
	for range MostAtOnce {
		err := r.Hook.reader.ReadInto(&r.Hook.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read flows: %w", err)
		}
		e, frame, err := capture.ParseFlow(r.Hook.record.RawSample)
		if err != nil {
			return err
		}
		p.At, p.First, p.Proven = r.Hook.epoch.Add(e.Time), e.First, e.Proven
		p.Number = e.Number
		p.Bytes, p.Packet = e.Bytes, frame
		tell(&p)
	}
	return nil
}

// Forget says that no more of a flow is wanted.
func (r *FlowReader) Forget(src, dst netip.AddrPort, proto uint8) {
	if r.Hook != nil {
		in := capture.FlowsMap
		if proto == packet.ProtoUDP {
			in = capture.UDPMap
		}
		// A flow that is not known any more is forgotten already.
		_ = r.Hook.Coll.Maps[in].Update(capture.FlowKey(src, dst, proto),
			capture.DoneFlow(), ebpf.UpdateExist)
	}
}

// Proves says whether the policy in force proves flows of UDP at all.
func (r *FlowReader) Proves() bool { return r.Hook != nil && r.proofs != nil }

// Proven says whether a flow of UDP is proven by the policy, and has had exactly so many datagrams
// since it began at first: what another has sent in its name would be one of them.
func (r *FlowReader) Proven(src, dst netip.AddrPort, first, datagrams uint32) bool {
	if !r.Proves() || !r.proofs.has(src, dst, r.Hook.clock.Now()) {
		return false
	}
	var state capture.FlowState
	key := capture.FlowKey(src, dst, packet.ProtoUDP)
	if err := r.Hook.Coll.Maps[capture.UDPMap].Lookup(key, &state); err != nil {
		return false
	}
	n, is := state.Datagrams(first)
	return is && n == datagrams
}

// Counted returns the flows and packets so far.
func (r *FlowReader) Counted() (capture.FlowCounts, error) {
	sum := r.before
	if r.Hook == nil {
		return sum, nil
	}
	var cpus []capture.FlowCounts
	if err := r.Hook.Coll.Maps[capture.CountsMap].Lookup(uint32(0), &cpus); err != nil {
		return sum, fmt.Errorf("count flows: %w", err)
	}
	for i := range cpus {
		sum.Add(cpus[i])
	}
	return sum, nil
}

// Close takes the program away.
func (r *FlowReader) Close() {
	if r.stop != nil {
		r.stop()
	}
	r.follower.Close()
	r.proofs.close()
}
