// Command importfigures counts how much of rule sets comes into a policy, for
// docs/explanation/import-figures.md:
//
//	go run ./scripts/importfigures DIR
//
// DIR has files of iptables-save (.save), of `nft -j list ruleset` (.json) and of pf (.conf), whose
// anchors are in NAME.conf.d. Each is imported for the first Ethernet or WLAN interface that it
// names.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/iptables"
	"levee/internal/lang/importer/nft"
	"levee/internal/lang/importer/pf"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: importfigures DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "importfigures:", err)
		os.Exit(1)
	}
}

// figures are sums over sets.
type figures struct {
	sets, refused, rules, carried, changed, widened int

	leaving, leave int // rules for what leaves, and those of them that carry
}

func (f *figures) add(o figures) {
	f.sets += o.sets
	f.refused += o.refused
	f.rules += o.rules
	f.carried += o.carried
	f.changed += o.changed
	f.widened += o.widened
	f.leaving += o.leaving
	f.leave += o.leave
}

func (f figures) row(name string) string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d | %d |\n", name, f.sets, f.rules,
		f.carried, f.changed, f.refused, f.widened, f.leaving, f.leave)
}

func run(dir string, w io.Writer) error {
	fmt.Fprint(w, "| | sets | rules | carry | changed | refused | widened | what leaves: rules "+
		"| carry |\n|---|---|---|---|---|---|---|---|---|\n")
	var all figures
	for _, ext := range [...]string{".save", ".json", ".conf"} {
		files, err := filepath.Glob(filepath.Join(dir, "*"+ext))
		if err != nil {
			return err
		}
		var sum figures
		for _, file := range files {
			one, err := count(file)
			if err != nil {
				return err
			}
			fmt.Fprint(w, one.row(filepath.Base(file)))
			sum.add(one)
		}
		fmt.Fprint(w, sum.row("all "+ext))
		all.add(sum)
	}
	_, err := fmt.Fprint(w, all.row("all"))
	return err
}

// count imports one set. What cannot be read is refused, and carries nothing.
func count(file string) (figures, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return figures{}, err
	}
	in, err := os.Open(file)
	if err != nil {
		return figures{}, err
	}
	defer in.Close()
	src := importer.Source{Name: filepath.Base(file), R: in}
	opts := importer.Rulesets{Device: device(string(text), filepath.Ext(file))}
	var rep importer.Imported
	switch filepath.Ext(file) {
	case ".json":
		rep, err = nft.Import(src, io.Discard, opts)
	case ".conf":
		anchors, end := anchorsOf(file)
		defer end()
		rep, err = pf.Import(src, io.Discard, opts, anchors...)
	default:
		rep, err = iptables.Import([]importer.Source{src}, io.Discard, opts)
	}
	if err != nil {
		return figures{sets: 1, refused: 1}, nil
	}
	f, out := rep.Fates, rep.Leaving
	rules, leaving := here(f), here(out)
	return figures{sets: 1, rules: rules, carried: rules - f.LeftOut, changed: f.Changed,
		widened: f.Widened, leaving: leaving, leave: leaving - out.LeftOut}, nil
}

// anchorsOf opens the files that a pf.conf loads into anchors.
func anchorsOf(conf string) (in []importer.Source, end func()) {
	files, _ := filepath.Glob(filepath.Join(conf+".d", "*"))
	var open []*os.File
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		open = append(open, f)
		in = append(in, importer.Source{Name: filepath.Base(file), R: f})
	}
	return in, func() {
		for _, f := range open {
			f.Close()
		}
	}
}

// here returns the rules that are about the interface.
func here(f importer.Fates) int { return f.Given - f.Elsewhere - f.Loopback }

var (
	interfaces = map[string]*regexp.Regexp{
		".save": regexp.MustCompile(`(?:-i|--in-interface) (\S+)`),
		".json": regexp.MustCompile(`iif(?:name)?"\}\}, "right": (?:\{"set": \[)?"([^"]+)"`),
		".conf": regexp.MustCompile(`(?m)(?:^\w+ ?= ?"?|\bon )([a-z]+[0-9]+)\b`),
	}
	usual = map[string]string{".save": "eth0", ".json": "eth0", ".conf": "em0"}
	other = regexp.MustCompile(`^(@|lo|docker|veth|virbr|vmi|br-|br[0-9]|lxd|tun|wg|tap|` +
		`tailscale|ve-|dum|vlan|bridge|ppp|xenapi|gif|enc)`)
)

// device returns the first interface that a set names, if it may be of Ethernet or WLAN.
func device(text, ext string) string {
	names := interfaces[ext].FindAllStringSubmatch(text, -1)
	i := slices.IndexFunc(names, func(m []string) bool { return !other.MatchString(m[1]) })
	if i < 0 {
		return usual[ext]
	}
	return strings.TrimRight(names[i][1], "+*")
}
