package iptables

import (
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// bridged holds the options of -m physdev.
type bridged struct {
	used bool
	port string // of --physdev-in
	odd  bool   // it asks for what no one port tells
}

// option reads one of its options; false for any other.
func (b *bridged) option(p *ipRule, o string) bool {
	switch o {
	case "--physdev-in":
		b.port = p.value()
		b.odd = b.odd || p.not
	case "--physdev-is-in", "--physdev-is-bridged":
		b.odd = b.odd || p.not
	case "--physdev-out":
		p.value()
		b.odd = true
	case "--physdev-is-out":
		b.odd = true
	default:
		return false
	}
	return true
}

// finishBridge says what is asked of the port of a bridge. By one port nothing comes to another; to
// the bridge itself, which is known by its name (br0, virbr0, vmbr0), comes what comes to its
// ports.
func (p *ipRule) finishBridge() {
	b, dev := &p.bridge, p.t.opts.Device
	const hint = "put levee onto that port"
	switch {
	case !b.used:
	case b.port != "" && !b.odd && dev != "" && !p.t.leaves && !strings.Contains(dev, "br") &&
		len(importer.Came([]string{b.port}, "+", dev, false, false)) == 0:
		p.Rule.Alts, p.Rule.Absent = nil, true
		p.Remark(importer.LeftOut, "is about port "+match.Quote(b.port)+" of a bridge, by which "+
			"nothing comes to "+dev+", if that is no bridge", "import it with --dev "+b.port+
			" for that port")
	default:
		p.Unknown("-m physdev asks for a port of a bridge", hint)
	}
}
