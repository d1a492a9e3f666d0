package report

import (
	"html"
	"maps"
	"slices"
)

// Flame is a flame graph: a tree of calls, each as wide as the share of samples that have it on
// their stack.
type Flame struct {
	classes []FlameClass
	root    *frame
}

// FlameClass is a kind of function, and the colour of its frames (#rrggbb); the titles tell them
// apart without colour.
type FlameClass struct{ Name, Colour string }

// frame is one function as it was called by those above it.
type frame struct {
	name     string
	colour   string
	was      string // what its title says of the graph before
	count    int    // of samples that have it on their stack
	children map[string]*frame
}

// NewFlame returns an empty graph.
func NewFlame(classes ...FlameClass) *Flame {
	return &Flame{classes, &frame{name: "all", colour: "#eee", children: map[string]*frame{}}}
}

// colour returns the colour of a class.
func (f *Flame) colour(class string) string {
	i := slices.IndexFunc(f.classes, func(c FlameClass) bool { return c.Name == class })
	return f.classes[i].Colour
}

// Add counts samples with these functions, outermost first: the innermost is of one class, those
// that only call of another.
func (f *Flame) Add(stack []string, class, callers string, n int) {
	f.root.count += n
	at := f.root
	for i, name := range stack {
		next := at.children[name]
		if next == nil {
			next = &frame{name: name, colour: f.colour(callers), children: map[string]*frame{}}
			at.children[name] = next
		}
		if i == len(stack)-1 {
			next.colour = f.colour(class)
		}
		next.count += n
		at = next
	}
}

// Layout in pixels. Frames narrower than least are left out, as nobody could see or hit them.
const (
	flameWidth = 1200
	rowHeight  = 18
	flameEdge  = 10
	flameTop   = 62
	minFrame   = 0.2
)

// SVG writes the graph as a document of its own. Frames show their share on hover; a click shows
// one frame and what it calls in full width, a click on the lowest row all again. Without scripts
// it is the same picture.
func (f *Flame) SVG(title, subtitle string) []byte {
	height := flameTop + f.root.depth(1, f.scale())*rowHeight + 2*flameEdge
	m := newMarkup(flameWidth, height, title, `fill="#fff"`,
		` font-family="sans-serif" font-size="12"`)
	m.text(flameEdge, 20, ` font-size="15"`, title)
	m.text(flameEdge, 38, ` fill="#555"`, subtitle)
	x := flameEdge
	for _, c := range f.classes {
		m.addf(`<rect x="%d" y="46" width="10" height="10" fill="%s"/>`, x, c.Colour)
		m.text(float64(x+14), 55, ` fill="#333"`, c.Name)
		x += 30 + 7*len(c.Name)
	}
	m.addf("\n<g id=\"frames\">\n")
	if f.root.count > 0 {
		f.root.write(m, flameEdge, float64(height-flameEdge-rowHeight), f.scale(), f.root.count)
	}
	m.addf("</g>\n<script>//<![CDATA[\n%s//]]></script>\n", flameScript)
	return m.end()
}

// scale is pixels a sample.
func (f *Flame) scale() float64 {
	return float64(flameWidth-2*flameEdge) / float64(max(f.root.count, 1))
}

// depth returns how many rows are drawn.
func (n *frame) depth(rows int, scale float64) int {
	deepest := rows
	for _, c := range n.children {
		if float64(c.count)*scale >= minFrame {
			deepest = max(deepest, c.depth(rows+1, scale))
		}
	}
	return deepest
}

// write draws a frame and, on top of it, what it called, in the order of their names, so that two
// graphs can be compared.
func (n *frame) write(m *markup, x, y, scale float64, all int) {
	width := float64(n.count) * scale
	if width < minFrame {
		return
	}
	share := 100 * float64(n.count) / float64(all)
	m.addf(`<g class="f"><title>%s: %.2f %%, %d samples%s</title><rect x="%.2f" y="%.0f" width="%.2f" height="%d" fill="%s" stroke="#fff" stroke-width="0.5"/>`,
		html.EscapeString(n.name), share, n.count, n.was, x, y, width, rowHeight-1, n.colour)
	m.text(x+3, y+13, "", shortened(n.name, width))
	m.addf("</g>\n")
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		c := n.children[name]
		c.write(m, x, y-rowHeight, scale, all)
		x += float64(c.count) * scale
	}
}

// shortened returns what of a name fits; digits and letters are about seven pixels wide.
func shortened(name string, width float64) string {
	fits := int(width-6) / 7
	switch {
	case fits < 3:
		return ""
	case len(name) <= fits:
		return name
	}
	return name[:fits-2] + ".."
}

// flameScript shows one frame in full width. The names are read from the titles, which are text
// already.
const flameScript = `(function () {
	"use strict";
	var left = 10, full = 1180, frames = Array.prototype.map.call(document.querySelectorAll("#frames .f"), function (g) {
		var r = g.querySelector("rect"), title = g.querySelector("title").textContent;
		return { g: g, rect: r, text: g.querySelector("text"), name: title.slice(0, title.lastIndexOf(": ")),
			x: parseFloat(r.getAttribute("x")), y: parseFloat(r.getAttribute("y")), w: parseFloat(r.getAttribute("width")) };
	});
	function show(to) {
		var k = full / to.w, slack = 0.01;
		frames.forEach(function (f) {
			var above = f.y <= to.y && f.x >= to.x - slack && f.x + f.w <= to.x + to.w + slack;
			var below = f.y > to.y && f.x <= to.x + slack && f.x + f.w >= to.x + to.w - slack;
			var x = below ? left : left + (f.x - to.x) * k, w = below ? full : f.w * k, fits = Math.floor((w - 6) / 7);
			f.g.style.display = above || below ? "" : "none";
			f.g.style.opacity = below ? 0.6 : 1;
			f.rect.setAttribute("x", x);
			f.rect.setAttribute("width", w);
			f.text.setAttribute("x", x + 3);
			f.text.textContent = fits < 3 ? "" : f.name.length <= fits ? f.name : f.name.slice(0, fits - 2) + "..";
		});
	}
	frames.forEach(function (f) {
		f.g.style.cursor = "pointer";
		f.g.addEventListener("click", function () { show(f); });
	});
}());
`
