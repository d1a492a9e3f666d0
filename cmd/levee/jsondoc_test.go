package main

import (
	"encoding"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	lab "levee/cmd/levee-lab/commands"
	"levee/internal/agent"
	"levee/internal/agent/command"
	"levee/internal/agent/signature"
	"levee/internal/agent/trap"
	"levee/internal/bench/linerate"
	"levee/internal/cli"
	"levee/internal/cli/clitest"
	"levee/internal/dataplane/cost"
	"levee/internal/dataplane/judge"
	"levee/internal/dataplane/past"
	"levee/internal/dataplane/status"
	"levee/internal/filter/region"
	"levee/internal/lang/importer"
	"levee/internal/monitor/mpegts"
	probed "levee/internal/probe"
	"levee/internal/probe/witness"
	"levee/internal/profile"
)

// jsonDocuments lists the documents that commands print with --json, by the headings of
// docs/reference/json.md. Reports of measurements stand in docs/reference/report.md.
var jsonDocuments = map[string]any{
	"levee check": struct {
		Files []checked `json:"files"`
	}{},

	"levee gen mpegts":     lab.MPEGTSReport{},
	"levee monitor mpegts": mpegts.Report{},

	"levee test":                     testReport{},
	"levee eval":                     judge.Judged{},
	"levee eval --summary":           evalSummary{},
	"levee explain":                  judge.Story{},
	"levee diff":                     region.Told{},
	"levee query":                    region.ToldAnswer{},
	"levee profile list":             profile.Listing{},
	"levee cost":                     cost.Told{},
	"levee import iptables, nft, pf": importer.Remark{},
	"levee up":                       upReport{},
	"levee propose":                  signature.Report{},
	"levee watch":                    watched{},
	"levee trap ssh":                 trap.Record{},
	"levee status --diff":            status.DiffReport{},
	"levee up --shadow": struct {
		Shadows []shadowReport `json:"shadows"`
	}{},
	"levee rollback --list":   past.Report{},
	"levee status":            status.Report{},
	"levee set list, find":    setReport{},
	"levee lab up":            lab.LabReport{},
	"levee agent status":      agent.Status{},
	"levee agent list":        command.LeaseReport{},
	"levee agent notify list": command.NotifyReport{},
	"levee agent token list":  command.TokenReport{},
	"levee lab list": struct {
		Labs []lab.LabReport `json:"labs"`
	}{},
	"levee gen":     lab.GenReport{},
	"levee doctor":  doctorReport{},
	"levee probe":   probed.Report{},
	"levee witness": witness.Told{},
	"levee calc":    linerate.Quantities{},
	"levee version": cli.VersionInfo{},
}

// TestJSONIsDocumented compares docs/reference/json.md with what is printed: each field with its
// type, whether it may be missing, and no other. The paths of rows are given once for several
// documents where these share a heading.
func TestJSONIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/json.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]map[string]string{}
	row := regexp.MustCompile("^\\| `([^`]+)` \\| ([^|]+) \\| [^|]+ \\|$")
	for section := range strings.SplitSeq(string(text), "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		fields := map[string]string{}
		for line := range strings.SplitSeq(body, "\n") {
			if m := row.FindStringSubmatch(line); m != nil {
				fields[m[1]] = m[2]
			}
		}
		said[title] = fields
	}
	for _, title := range slices.Sorted(maps.Keys(jsonDocuments)) {
		fields := map[string]string{}
		jsonFields(fields, "", reflect.TypeOf(jsonDocuments[title]), false)
		for _, path := range slices.Sorted(maps.Keys(fields)) {
			if got := said[title][path]; got != fields[path] {
				t.Errorf("## %s: the row of `%s` has the type %q, it is %q", title, path, got,
					fields[path])
			}
			delete(said[title], path)
		}
		for path := range said[title] {
			t.Errorf("## %s: there is no `%s`", title, path)
		}
	}
}

// jsonFields adds the fields of a type below a path; what may be missing has a question mark.
func jsonFields(out map[string]string, path string, typ reflect.Type, optional bool) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	mark := ""
	if optional {
		mark = "?"
	}
	text := reflect.TypeFor[encoding.TextMarshaler]()
	switch {
	case typ.Implements(text) || reflect.PointerTo(typ).Implements(text) ||
		typ.Kind() == reflect.String:
		out[path] = "string" + mark
	case typ.Kind() == reflect.Bool:
		out[path] = "boolean" + mark
	case typ.Kind() == reflect.Map:
		out[path] = "object of strings" + mark
	case typ == reflect.TypeFor[[]byte]():
		out[path] = "string" + mark // in Base64
	case typ.Kind() == reflect.Slice:
		elem := typ.Elem()
		if elem.Kind() == reflect.Struct {
			out[path] = "list" + mark
			jsonFields(out, path+"[]", elem, false)
			return
		}
		one := map[string]string{}
		jsonFields(one, "", elem, false)
		out[path] = fmt.Sprintf("list of %ss%s", one[""], mark)
	case typ.Kind() == reflect.Struct:
		if path != "" && !strings.HasSuffix(path, "[]") {
			out[path] = "object" + mark
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-", name == "" && !f.Anonymous:
			case f.Anonymous && name == "":
				jsonFields(out, path, f.Type, optional)
			default:
				jsonFields(out, strings.TrimPrefix(path+"."+name, "."), f.Type,
					strings.Contains(opts, "omit"))
			}
		}
	default:
		out[path] = "number" + mark
	}
}

// TestWrongUsagePrintsNoJSON: whoever reads the output finds none with status 2.
func TestWrongUsagePrintsNoJSON(t *testing.T) {
	e, _, _, _ := testEnv(false)
	lines := [][]string{{"up"}, {"eval", "edge.levee"}, {"set", "add"}, {"explain"},
		{"cost"}}
	for _, cmd := range clitest.Leaves(newRoot(e)) {
		if cmd.Flags().Lookup("json") != nil {
			lines = append(lines, append(strings.Fields(cmd.CommandPath())[1:], "--no-such-option"))
		}
	}
	if len(lines) < 25 {
		t.Errorf("only %d lines: do commands still print JSON?", len(lines))
	}
	for _, line := range lines {
		e, out, errs, _ := testEnv(false, append(line, "--json")...)
		if status := run(e); status != cli.ExitUsage || out.Len() > 0 || errs.Len() == 0 {
			t.Errorf("%s: status %d, %q, %q", line, status, out, errs)
		}
	}
}
