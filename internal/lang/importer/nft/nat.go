package nft

import (
	"encoding/json"
)

// natTo reads a statement dnat or redirect.
func (p *nftRule) natTo(key string, inner json.RawMessage) {
	var to struct{ Addr, Port json.RawMessage }
	_ = json.Unmarshal(inner, &to)
	addr, _ := scalar(to.Addr)
	port, _ := scalar(to.Port)
	if len(to.Addr) > 0 && addr == "" || len(to.Port) > 0 && port == "" {
		return // taken from a map, or one of several
	}
	p.SentTo(key, addr, port)
}
