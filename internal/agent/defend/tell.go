package defend

import (
	"fmt"
	"net/netip"

	"levee/internal/dataplane/tap"
	"levee/internal/lang/field"
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

// tell tells of a sample, whatever became of its packet, which is decoded.
func (w *Watcher) tell(s *tap.Sampled) {
	if w.Sampled == nil {
		return
	}
	protocol, source := "not IP", netip.Addr{}
	if w.packet.IsIP() {
		protocol, source = protocolNames[w.packet.Proto], w.packet.Src
	}
	w.Sampled.Add(w.Dev, protocol, source, float64(s.Weight), s.Bytes)
}
