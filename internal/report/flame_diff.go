package report

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// errNoFlame says that a file is another one than SVG writes.
var errNoFlame = errors.New("this is no flame graph of levee's")

// ReadFlame reads a graph that SVG has written, without its classes. Frames that were too narrow to
// draw are not in it.
func ReadFlame(svg []byte) (*Flame, error) {
	type drawn struct {
		Class string `xml:"class,attr"`
		Title string `xml:"title"`
		Rect  struct {
			Y float64 `xml:"y,attr"`
		} `xml:"rect"`
	}
	var path []*frame // from the lowest row to the frame that was read last
	lowest := 0.0
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errNoFlame
		}
		at, is := token.(xml.StartElement)
		if !is || at.Name.Local != "g" || !slices.ContainsFunc(at.Attr,
			func(a xml.Attr) bool { return a.Name.Local == "class" && a.Value == "f" }) {
			continue
		}
		var g drawn
		if d.DecodeElement(&g, &at) != nil {
			return nil, errNoFlame
		}
		n, err := titled(g.Title)
		if err != nil {
			return nil, err
		}
		if path == nil {
			path, lowest = []*frame{n}, g.Rect.Y
			continue
		}
		row := int((lowest - g.Rect.Y) / rowHeight)
		if row < 1 || row > len(path) {
			return nil, errNoFlame
		}
		path[row-1].children[n.name] = n
		path = append(path[:row], n)
	}
	if path == nil {
		return nil, errNoFlame
	}
	return &Flame{root: path[0]}, nil
}

// titled reads the title of a frame.
func titled(title string) (*frame, error) {
	at := strings.LastIndex(title, ": ")
	if at < 0 {
		return nil, errNoFlame
	}
	var share float64
	n := &frame{name: title[:at], children: map[string]*frame{}}
	if _, err := fmt.Sscanf(title[at+2:], "%f %%, %d samples", &share, &n.count); err != nil ||
		n.count < 0 {
		return nil, errNoFlame
	}
	return n, nil
}

// Colours of frames by how their share has changed, in full from mostChange percent of all on.
const (
	moreColour, sameColour, lessColour = "#d9482b", "#e8e8e8", "#2b6fd9"
	mostChange                         = 5.0
)

// Since colours the frames by how their share has changed since another graph, and returns those of
// the other one that are gone, as words, those with the largest share first. A frame is the same
// one if it was called by the same ones.
func (f *Flame) Since(before *Flame) (gone []string) {
	f.classes = []FlameClass{{"more than before", moreColour}, {"as before", sameColour},
		{"less than before", lessColour}}
	type lost struct {
		name  string
		share float64
	}
	var all []lost
	var walk func(n, was *frame)
	walk = func(n, was *frame) {
		share, old := f.share(n), 0.0
		if was != nil {
			old = before.share(was)
		}
		n.was = fmt.Sprintf(", %.2f %% before", old)
		n.colour = changed(share - old)
		for name, c := range n.children {
			var same *frame
			if was != nil {
				same = was.children[name]
			}
			walk(c, same)
		}
		if was == nil {
			return
		}
		for name, c := range was.children {
			if n.children[name] == nil {
				all = append(all, lost{name, before.share(c)})
			}
		}
	}
	walk(f.root, before.root)
	slices.SortFunc(all, func(a, b lost) int {
		return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.name, b.name))
	})
	for _, l := range all {
		gone = append(gone, fmt.Sprintf("%s %.2f %%", l.name, l.share))
	}
	return gone
}

// share is percent of all samples.
func (f *Flame) share(n *frame) float64 {
	return 100 * float64(n.count) / float64(max(f.root.count, 1))
}

// changed returns the colour of a frame whose share has changed by so many percent of all.
func changed(by float64) string {
	to := moreColour
	if by < 0 {
		to, by = lessColour, -by
	}
	var from, full [3]int
	_, _ = fmt.Sscanf(sameColour, "#%02x%02x%02x", &from[0], &from[1], &from[2]) // constants
	_, _ = fmt.Sscanf(to, "#%02x%02x%02x", &full[0], &full[1], &full[2])
	part := min(by/mostChange, 1)
	for i := range from {
		from[i] += int(part * float64(full[i]-from[i]))
	}
	return fmt.Sprintf("#%02x%02x%02x", from[0], from[1], from[2])
}
