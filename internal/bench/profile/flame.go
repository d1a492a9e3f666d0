package profile

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strings"
)

// Flame is a flame graph: a tree of calls, each as wide as the share of samples that have it on their stack.
type Flame struct {
	root *frame
}

// frame is one function as it was called by those above it.
type frame struct {
	name     string
	class    Class
	count    int // of samples that have it on their stack
	children map[string]*frame
}

// NewFlame is an empty graph.
func NewFlame() *Flame { return &Flame{&frame{name: "all", children: map[string]*frame{}}} }

// Add counts samples with these functions, outermost first. class colours the innermost.
func (f *Flame) Add(stack []string, class Class, n int) {
	f.root.count += n
	at := f.root
	for i, name := range stack {
		next := at.children[name]
		if next == nil {
			next = &frame{name: name, class: Kernel, children: map[string]*frame{}}
			at.children[name] = next
		}
		if i == len(stack)-1 {
			next.class = class
		}
		next.count += n
		at = next
	}
}

// Layout in pixels. Frames narrower than least are left out, as nobody could see or hit them.
const (
	flameWidth = 1200
	rowHeight  = 18
	margin     = 10
	top        = 62
	least      = 0.2
)

// colours of the classes; they are told apart without colour by the titles.
var colours = map[Class]string{
	Driver: "#8fb8de", Program: "#7cc47f", Helper: "#c9e19f", Netfilter: "#f2a65e", Kernel: "#e9d38d", User: "#c9a5d6", Idle: "#d7d7d7", Others: "#b8a99a", Unknown: "#e28a8a",
}

// SVG writes the graph as a document of its own, which asks no network for anything. Frames show their share on hover;
// a click shows one frame and what it calls in full width, a click on the lowest row all again. Without scripts
// it is the same picture.
func (f *Flame) SVG(w io.Writer, title, subtitle string) error {
	depth := f.root.depth(1, f.scale())
	height := top + depth*rowHeight + 2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		flameWidth, height, flameWidth, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", html.EscapeString(title))
	fmt.Fprintf(&b, `<text x="%d" y="20" font-size="15">%s</text><text x="%d" y="38" fill="#555">%s</text>`+"\n", margin, html.EscapeString(title), margin, html.EscapeString(subtitle))
	x := margin
	for _, c := range Classes {
		fmt.Fprintf(&b, `<rect x="%d" y="46" width="10" height="10" fill="%s"/><text x="%d" y="55" fill="#333">%s</text>`+"\n", x, colours[c], x+14, html.EscapeString(string(c)))
		x += 30 + 7*len(c)
	}
	b.WriteString("<g id=\"frames\">\n")
	if f.root.count > 0 {
		f.root.write(&b, margin, float64(height-margin-rowHeight), f.scale(), f.root.count)
	}
	b.WriteString("</g>\n<script>//<![CDATA[\n" + flameScript + "//]]></script>\n</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// scale is pixels a sample.
func (f *Flame) scale() float64 {
	return float64(flameWidth-2*margin) / float64(max(f.root.count, 1))
}

// depth is how many rows are drawn.
func (n *frame) depth(rows int, scale float64) int {
	deepest := rows
	for _, c := range n.children {
		if float64(c.count)*scale >= least {
			deepest = max(deepest, c.depth(rows+1, scale))
		}
	}
	return deepest
}

// write draws a frame and, on top of it, what it called, in the order of their names, so that two graphs
// can be compared.
func (n *frame) write(b *strings.Builder, x, y, scale float64, all int) {
	width := float64(n.count) * scale
	if width < least {
		return
	}
	share := 100 * float64(n.count) / float64(all)
	colour := colours[n.class]
	if n.class == "" {
		colour = "#eee"
	}
	fmt.Fprintf(b, `<g class="f"><title>%s: %.2f %%, %d samples</title><rect x="%.2f" y="%.0f" width="%.2f" height="%d" fill="%s" stroke="#fff" stroke-width="0.5"/>`,
		html.EscapeString(n.name), share, n.count, x, y, width, rowHeight-1, colour)
	fmt.Fprintf(b, "<text x=\"%.2f\" y=\"%.0f\">%s</text></g>\n", x+3, y+13, html.EscapeString(shortened(n.name, width)))
	children := slices.SortedFunc(maps.Values(n.children), func(a, b *frame) int { return cmp.Compare(a.name, b.name) })
	for _, c := range children {
		c.write(b, x, y-rowHeight, scale, all)
		x += float64(c.count) * scale
	}
}

// shortened is what of a name fits; digits and letters are about seven pixels wide.
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

// flameScript shows one frame in full width. The names are read from the titles, which are text already.
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
