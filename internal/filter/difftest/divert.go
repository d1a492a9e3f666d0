package difftest

import (
	"fmt"
	"math"
	"net/netip"

	"levee/internal/filter/divert"
	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/packet"
)

// connection is the client's end and the server's.
type connection struct{ from, to netip.AddrPort }

// unsure is for connections of which it does not matter whether they are diverted.
const unsure = math.MaxUint64

// askRefuser has an engine that has judged a frame say whether its connection is diverted, which is
// refused where no trap is. The oracle says that of the packet: others of its connection share its
// fate for a while.
func (r *comparison) askRefuser(d Refuser, f []byte, want oracle.Result) error {
	if !r.divert {
		return nil
	}
	var p packet.Packet
	r.c.Link.Decode(f, &p)
	if p.Malformed != packet.WellFormed || p.Transport != packet.TCPTransport {
		return nil
	}
	k := connection{netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort)}
	if r.noted == nil {
		r.noted = map[connection]uint64{}
	}
	if p.Fragment && want.Malformed == packet.FragmentOverlap {
		r.noted[k] = unsure // a rule may have diverted it, before it was found to overlap
	}
	if r.noted[k] == unsure {
		return nil
	}
	if r.c.Policy.Slots()[want.Slot].Action == action.Divert {
		r.noted[k] = r.clock.jiffies + uint64(divert.Lease/max(r.clock.tick, 1))
	}
	until, diverted := r.noted[k]
	diverted = diverted && (!r.clock.runs() || r.clock.jiffies < until)
	got, err := d.Refuses(f)
	if err != nil {
		return fmt.Errorf("seed %d, frame %d (%x): %T: %w", r.c.Seed, r.stats.Frames, f, d, err)
	}
	if got != diverted {
		return &Difference{Case: r.c, N: r.stats.Frames, Frame: f, Engine: fmt.Sprintf("%T", d),
			Want: fmt.Sprintf("diverted %v", diverted), Got: fmt.Sprintf("diverted %v", got),
			Story: r.oracle.Explain(f)}
	}
	return nil
}
