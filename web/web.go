// Package web carries the sources of levee's pages, so that the binary works without the
// repository. It holds data only: scripts, styles and templates, and uPlot
// (https://github.com/leeoniya/uPlot, MIT licence in uplot/LICENSE) as its authors built it.
// Nothing in them asks a network for anything.
package web

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

//go:generate ./fetch

// UPlot draws charts; it defines the global uPlot.
//
//go:embed uplot/uPlot.iife.min.js
var UPlot string

// UPlotStyle goes with UPlot.
//
//go:embed uplot/uPlot.min.css
var UPlotStyle string

// UPlotLicense is the notice that goes with every copy of UPlot.
//
//go:embed uplot/LICENSE
var UPlotLicense string

// ReportPage is the html/template of a report.
//
//go:embed report/page.html
var ReportPage string

// ReportScript draws the charts of a report from the document in the page.
//
//go:embed report/report.js
var ReportScript string

// ReportStyle is the style of a report.
//
//go:embed report/report.css
var ReportStyle string

//go:embed dashboard uplot/uPlot.iife.min.js uplot/uPlot.min.css
var files embed.FS

// Dashboard returns the files of the agent's page, with uPlot in a folder beside them.
func Dashboard() fs.FS { return page{} }

type page struct{}

// Open opens a file of the page.
func (page) Open(name string) (fs.File, error) {
	if !strings.HasPrefix(name, "uplot/") {
		name = path.Join("dashboard", name)
	}
	return files.Open(name)
}
