package defend

import (
	"fmt"
	"net/netip"

	"levee/internal/dataplane/tap"
	"levee/internal/lang/field"
	"levee/internal/packet"
)

// protocolNames are the words of the language for protocols, by number.
var protocolNames = func() (out [256]string) {
	for i := range out {
		out[i] = fmt.Sprintf("protocol %d", i)
	}
	for _, n := range field.Proto.Info().Names {
		if n.Lo < uint64(len(out)) {
			out[n.Lo] = n.Word
		}
	}
	return out
}()

// tell tells of a sample, whatever became of its packet.
func (w *Watcher) tell(s *tap.Sampled) {
	if w.Sampled == nil {
		return
	}
	rec := packet.Record{Data: s.Packet, Length: s.Bytes}
	whole, missing := rec.Whole(w.whole)
	if missing > 0 {
		w.whole = whole
	}
	var p packet.Packet
	w.link.Decode(whole, &p)
	protocol, source := "not IP", netip.Addr{}
	if p.IsIP() {
		protocol, source = protocolNames[p.Proto], p.Src
	}
	w.Sampled.Add(w.Dev, protocol, source, float64(s.Weight), s.Bytes)
}
