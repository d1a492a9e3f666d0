// Package flows is the row of sources that the agent reads itself: what clients say first, without
// another program. In goes a place, out comes who was asked to open it. It must know no interface
// and no program of the kernel: whoever runs the agent hands on who reads.
package flows

import (
	"errors"

	"levee/internal/agent/source/inlet"
	"levee/internal/agent/stream"
)

// Row is the row.
var Row = inlet.Row{
	Name:   "stream",
	Others: []string{"flows", "app-layer", "sniff"},
	At: inlet.Value{What: "the kind of stream", Form: "stream tls",
		Words: stream.Names()},
	Format: inlet.EVE,
	Flows: func(protocol string) (protos []uint8, ports []uint16) {
		k := stream.Named(protocol)
		return k.Protos, k.Ports
	},
	Proof:  func(protocol string) string { return stream.Named(protocol).Proof },
	Fields: func(protocol string) []string { return stream.Named(protocol).All() },
	Advise: func(*inlet.Place, error) string {
		return "look at `levee status`: the program that hands on flows stands behind that of a " +
			"policy, and one agent at a time has it"
	},
	Open: func(p *inlet.Place, o inlet.Opening) (inlet.Inlet, error) {
		if o.Streams == nil {
			return nil, errors.New("nobody reads flows here")
		}
		return o.Streams(p)
	},
}
