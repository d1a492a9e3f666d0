package commands

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"levee/internal/bench"
	"levee/internal/bench/published"
	"levee/internal/cli"
	"levee/internal/host/atomicfile"
	document "levee/internal/report"
)

// benchOutput names the places of a report, the same for all measurements.
type benchOutput struct {
	json                bool
	csv, html, svg, png string // files and directories, empty for none
	against, title      string
}

func (o *benchOutput) register(cmd *cobra.Command) {
	cli.JsonFlag(cmd, &o.json)
	cmd.Flags().StringVar(&o.title, "title", "",
		"what this run is called where levee bench compare lays it beside others")
	o.registerFiles(cmd)
}

// registerFiles is for what writes a report without having measured.
func (o *benchOutput) registerFiles(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.csv, "csv", "", "write the figures to this file, one a line")
	cmd.Flags().StringVar(&o.html, "html", "",
		"write a page with interactive charts to this file; it needs no network")
	cmd.Flags().StringVar(&o.svg, "svg", "", "write each chart as SVG into this directory")
	cmd.Flags().StringVar(&o.png, "png", "", "write each chart as PNG into this directory")
}

// files tells whether the report goes into a file.
func (o *benchOutput) files() bool {
	return o.csv != "" || o.html != "" || o.svg != "" || o.png != ""
}

// registerAgainst is for measurements of which there are published figures.
func (o *benchOutput) registerAgainst(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.against, "against", "",
		"\"published\": lay the published ratios of the field beside the measured ones")
}

// check refuses what could not be written, before anything is measured.
func (o *benchOutput) check(cmd *cobra.Command) error {
	if o.against != "" && o.against != "published" {
		return cli.Usagef(cmd,
			"--against %s: it is published; to compare two reports of your own: "+
				"levee bench compare A.json B.json", o.against)
	}
	for _, f := range []struct{ flag, path string }{{"csv", o.csv}, {"html", o.html}} {
		if f.path == "" {
			continue
		}
		if err := isFile(f.flag, f.path); err != nil {
			return err
		}
	}
	for _, d := range []struct{ flag, path string }{{"svg", o.svg}, {"png", o.png}} {
		if d.path == "" {
			continue
		}
		if err := isDirectory(d.flag, d.path); err != nil {
			return err
		}
	}
	return nil
}

// isFile refuses what cannot become a file that a flag names.
func isFile(flag, path string) error {
	// renaming would put a file in the place of a device
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("--%s %s: that is there and is no file: name one in a directory", flag,
			path)
	}
	return isDirectory(flag, filepath.Dir(path))
}

func isDirectory(flag, path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("--%s: there is no directory %s: make it first", flag, path)
	case err != nil:
		return fmt.Errorf("--%s: %w", flag, err)
	case !info.IsDir():
		return fmt.Errorf("--%s: %s is not a directory", flag, path)
	}
	return nil
}

// printBench prints a report and writes its files, also of what an interrupted measurement has
// until then; that error comes back.
func (e *env) printBench(m bench.Report, err error, o *benchOutput) error {
	d := m.Document()
	d.Version, d.Run = cli.VersionLine(), o.title
	var laid *published.Comparison
	if o.against != "" {
		laid = published.Against(d)
		laid.Draw(d)
	}
	return errors.Join(e.showBench(m, d, laid, o), o.write(d), err)
}

// showBench prints the report to standard output.
func (e *env) showBench(m bench.Report, d *document.Document, laid *published.Comparison,
	o *benchOutput) error {
	var showErr error
	if o.json {
		var raw any
		if own, ok := m.(interface{ Raw() any }); ok {
			raw = own.Raw()
		}
		showErr = d.JSON(e.Stdout, raw)
	} else {
		showErr = m.Text(e.Stdout)
		if laid != nil && showErr == nil {
			_, showErr = io.WriteString(e.Stdout, "\n"+laid.Text())
		}
	}
	if e.Stdout.Err != nil {
		return nil // said once, by run
	}
	return showErr
}

// write writes the files that the options name. One that fails does not keep the others back.
func (o *benchOutput) write(d *document.Document) error {
	var errs []error
	file := func(path string, make func(io.Writer) error) {
		var b bytes.Buffer
		if err := make(&b); err != nil {
			errs = append(errs, err)
			return
		}
		errs = append(errs, atomicfile.Write(path, b.Bytes(), 0o644))
	}
	if o.csv != "" {
		file(o.csv, d.CSV)
	}
	if o.html != "" {
		file(o.html, d.HTML)
	}
	for _, p := range []struct {
		dir, ext string
		draw     func(*document.Chart) ([]byte, error)
	}{{o.svg, ".svg", d.SVG}, {o.png, ".png", d.PNG}} {
		if p.dir == "" {
			continue
		}
		for _, c := range d.Charts {
			if !c.Drawable() {
				continue
			}
			file(filepath.Join(p.dir, c.ID+p.ext), func(w io.Writer) error {
				b, err := p.draw(c)
				if err == nil {
					_, err = w.Write(b)
				}
				return err
			})
		}
	}
	return errors.Join(errs...)
}
