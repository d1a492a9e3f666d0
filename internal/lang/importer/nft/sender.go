package nft

import (
	"encoding/json"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// cgroup is `socket cgroupv2 level N "PATH"` of what leaves, where N names the last part of the
// path; false for anything else.
func (p *nftRule) cgroup(l json.RawMessage, op string, right json.RawMessage) bool {
	key, inner := object(l)
	var s struct {
		Key   string
		Level int
	}
	path, ok := scalar(right)
	if key != "socket" || json.Unmarshal(inner, &s) != nil || s.Key != "cgroupv2" || !ok ||
		!p.n.leaves || op != "==" && op != "!=" {
		return false
	}
	m, ok := importer.OfService(path, op == "!=")
	if !ok || s.Level != 0 && s.Level != strings.Count(strings.Trim(path, "/"), "/")+1 {
		p.Unknown(importer.ServiceText+": "+match.Quote(path), "name each unit of it")
		return true
	}
	p.Both(m)
	return true
}
