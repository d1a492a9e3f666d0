package probe

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"levee/internal/packet"
	"levee/internal/probe/witness"
)

// receive takes answers until the socket is closed.
func (r *run) receive() {
	buf := make([]byte, 1<<16)
	// Where this machine itself translates, answers come for what it has translated to.
	ours := func(a netip.Addr) bool { return a == r.from[six(a)] || a == r.seenAs[six(a)] }
	for {
		n, err := r.in.read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			continue // ENETDOWN: an interface that went down
		}
		if a, ok := read(buf[:n], ours, r.leaves); ok {
			r.answered(&a)
		}
	}
}

// leaves says whether probes leave from a port.
func (r *run) leaves(port uint16) bool {
	if port >= firstPort {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.ports, port)
}

// answered notes an answer.
func (r *run) answered(a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.results == nil {
		return
	}
	s, ok := r.number(&a.known)
	if !ok || s.number >= len(r.results) {
		return
	}
	res := &r.results[s.number]
	if res.sent&(1<<s.try) == 0 {
		return // nothing was asked that could be answered so
	}
	if a.kind == icmpSays {
		r.told(a, s.number)
	}
	if res.kind != silent && (res.kind != icmpSays || a.kind == icmpSays) {
		return // the first counts, but an answer more than an error
	}
	res.kind, res.try, res.ttl = a.kind, uint8(s.try), a.ttl
	res.icmpType, res.icmpCode, res.own = a.icmpType, a.icmpCode, a.from == a.known.to
	if a.kind == accepts {
		r.ttls[a.known.to] = a.ttl
	}
	if a.kind == icmpSays && !res.own {
		r.by[s.number] = a.from
	}
	r.tell()
}

// told stops where an error says that an administrator does not want this.
func (r *run) told(a *answer, number int) {
	if r.Despite || !prohibited(a.icmpType, a.icmpCode, a.known.to.Is6()) {
		return
	}
	why := fmt.Sprintf("%s said that it is administratively prohibited", a.from)
	to := a.known.to
	if a.from == to {
		r.stopped[to] = why
	} else if at, ok := r.placeOf(to); ok {
		r.ended[r.addrs[at].Of] = why
	}
}

// tell says that there is something new.
func (r *run) tell() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// mostRules bounds the rules that witnesses name: more than a policy has, and a machine that is
// somebody else's by now may make them up.
const mostRules = 1 << 20

// witnessed notes what a witness saw.
func (r *run) witnessed(e *eye, w *witness.Packet) {
	var p packet.Packet
	ip := ipOf(w, &p)
	if ip == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.marks[r.key.mark(ip, &p)]
	if !ok || s.number >= len(r.results) {
		return
	}
	rule := Judged{w.Slot, e.decider(w), w.Verdict}
	at, known := r.ruleAt[rule]
	if !known {
		if at = len(r.rules); at == mostRules {
			return
		}
		r.rules, r.ruleAt[rule] = append(r.rules, rule), at
	}
	res := &r.results[s.number]
	res.seen |= 1 << s.try
	res.rule = int32(at + 1)
	t := r.target(s.number)
	if p.Dst != t.to || t.kind != aChallenge && p.HasPorts() && p.DstPort != t.Port {
		r.arrived[s.number] = endpoint(&p)
	}
	r.tell()
}

func endpoint(p *packet.Packet) string {
	if p.HasPorts() {
		return netip.AddrPortFrom(p.Dst, p.DstPort).String()
	}
	return p.Dst.String()
}
