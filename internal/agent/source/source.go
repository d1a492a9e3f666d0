// Package source is the table of the places where events of sources arise. The language asks it for
// their words, the agent for who reads there. In goes a place, out comes its row.
//
// It knows no policy and no agent, so that both can ask it.
package source

import (
	"maps"
	"slices"

	"levee/internal/agent/source/file"
	"levee/internal/agent/source/flows"
	"levee/internal/agent/source/inlet"
	"levee/internal/agent/source/journal"
	"levee/internal/agent/source/knock"
	"levee/internal/agent/source/redis"
	"levee/internal/agent/source/socket"
)

// Inputs are the kinds of places from which events come: a folder and a line each.
var Inputs = []*inlet.Row{
	&file.Row,
	&socket.Stream,
	&socket.Datagram,
	&redis.Row,
	&journal.Row,
	&flows.Row,
	&knock.Row,
}

// Input returns the row of a word; nil: there is none.
func Input(word string) *inlet.Row {
	at := slices.IndexFunc(Inputs, func(r *inlet.Row) bool { return r.Name == word })
	if at < 0 {
		return nil
	}
	return Inputs[at]
}

// Open begins to read at a place.
func Open(p *inlet.Place, o inlet.Opening) (inlet.Inlet, error) { return Input(p.Input).Open(p, o) }

// Same tells whether the same is read at two places in the same way.
func Same(a, b *inlet.Place) bool {
	return a.Input == b.Input && a.At == b.At && a.Match == b.Match &&
		maps.Equal(a.Options, b.Options) && (a.Format == b.Format || !Input(a.Input).ByFormat)
}
