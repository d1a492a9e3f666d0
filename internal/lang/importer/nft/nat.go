package nft

import (
	"encoding/json"
	"strings"

	"levee/internal/lang/importer/match"
)

// natTo reads a statement dnat or redirect.
func (p *nftRule) natTo(key string, inner json.RawMessage) {
	var to struct {
		Addr, Port json.RawMessage
		Family     string
	}
	_ = json.Unmarshal(inner, &to)
	addr, _ := scalar(to.Addr)
	port, _ := scalar(to.Port)
	if len(to.Addr) > 0 && addr == "" || len(to.Port) > 0 && port == "" {
		return // taken from a map, or one of several
	}
	switch { // in a table of both
	case to.Family == "ip", addr != "" && !strings.Contains(addr, ":"):
		p.Both(match.Match{}.With(match.Ether, match.Only4))
	case to.Family == "ip6", addr != "":
		p.Both(match.Match{}.With(match.Ether, match.Only6))
	}
	p.SentTo(key, addr, port)
}
