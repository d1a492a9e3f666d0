// Package file reads the lines that others write to a file, each once. In goes a path, out come
// lines and a position. It must never write, or wait.
package file

import (
	"path"
	"slices"

	"levee/internal/agent/follow"
	"levee/internal/agent/source/inlet"
	"levee/internal/host/access"
)

// Row is the row.
var Row = inlet.Row{
	Name: "file", Others: []string{"regular", "path"},
	At:    inlet.Value{What: "a path", Form: `file "/var/log/suricata/eve.json"`, Path: true},
	Alone: true,
	Check: func(p *inlet.Place, wrong func(of, hint, text string)) {
		if slices.Contains(packed, path.Ext(p.At)) {
			wrong("", "write the file that grows; where it is renamed and packed, it is read to "+
				"its end first.", "%q is a packed file, in which no line can be read")
		}
	},
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

// packed are the ends of names of files that rotation packs.
var packed = []string{".gz", ".xz", ".zst", ".bz2", ".lz4"}

// file is one that is followed.
type file struct{ *follow.Follower }

func (f *file) Kept() {}

func (f *file) State() inlet.State {
	s := inlet.State{TooLong: f.TooLong, Rotations: f.Rotations, LagBytes: f.Lag(), Notes: f.Notes,
		Waits: f.Missing}
	f.Notes = nil
	return s
}
