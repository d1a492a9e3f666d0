// Package file reads the lines that others write to a file, each once. In goes a path, out come
// lines and a position. It must never write, or wait.
package file

import (
	"levee/internal/agent/follow"
	"levee/internal/agent/source/inlet"
	"levee/internal/host/access"
)

// Row is the row.
var Row = inlet.Row{
	Name: "file", Others: []string{"regular", "path"},
	At:    inlet.Value{What: "a path", Form: `file "/var/log/suricata/eve.json"`, Path: true},
	Alone: true,
	Advise: func(p *inlet.Place, err error) string {
		return access.Read(p.At, err)
	},
	Open: func(p *inlet.Place, o inlet.Opening) (inlet.Inlet, error) {
		f, err := follow.New(p.At, o.Position, o.FromStart)
		if err != nil {
			return nil, err
		}
		return &file{f}, nil
	},
}

// file is one that is followed.
type file struct{ *follow.Follower }

func (f *file) Kept() {}

func (f *file) State() inlet.State {
	s := inlet.State{TooLong: f.TooLong, Rotations: f.Rotations, LagBytes: f.Lag(), Notes: f.Notes,
		Waits: f.Missing}
	f.Notes = nil
	return s
}
