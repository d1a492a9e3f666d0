package importer

import (
	"fmt"
	"strconv"

	"levee/internal/quantity"
)

// dynSet is a dynamic set of services or endpoints, which a match may ask for besides addresses.
type dynSet struct {
	name     string
	services bool // not endpoints
}

// entry is what a set held when it was saved.
type entry struct {
	text  string
	lease int64 // seconds; below 0 for the set's own, 0 for ever
}

// maxEntries bounds the entries that stand in comments above a dynamic set.
const maxEntries = 1000

// entriesComment are the commands that put back what was in a set: dynamic sets begin empty.
func entriesComment(set string, in []entry) (lines []string) {
	if len(in) == 0 {
		return nil
	}
	lines = append(lines, fmt.Sprintf("Begins empty. It held %s when it was saved; to "+
		"put them back:", quantity.Plural(len(in), "entry")))
	const perLine = 400 // bytes
	line, lease := "", int64(-1)
	end := func() {
		if line == "" {
			return
		}
		switch {
		case lease == 0:
			line += " --lease forever"
		case lease > 0:
			line += " --lease " + strconv.FormatInt(lease, 10) + "s"
		}
		lines = append(lines, line)
		line = ""
	}
	for i, e := range in {
		if i == maxEntries {
			end()
			return append(lines, fmt.Sprintf("  and %d more, which stand in the source",
				len(in)-maxEntries))
		}
		if line == "" || e.lease != lease || len(line) > perLine {
			end()
			line, lease = "  levee set add "+set, e.lease
		}
		line += " " + e.text
	}
	end()
	return lines
}

// dynamicOf is dynamicText for a set of services or endpoints.
func dynamicOf(what string, most uint64, lease int64) string {
	const limit = 8_388_608 // docs/reference/language.md "Dynamic sets"
	return "dynamic(of " + what + ", " + dynamicText(min(most, limit), lease)[len("dynamic("):]
}

// filled is a set that changes while the source runs.
type filled struct {
	text    string
	instead string
	begins  bool // the policy's begins empty; else it stays as it is
	empty   bool // it is empty in the source too
	same    bool // it has what it has in the source
	set     string
}

const fillHint = "the commands above the set put its entries back; whoever fills it has to call " +
	"`levee set add`"

// carryFilled says what becomes of the sets of a rule that change while the source runs.
func (r *chainRule) carryFilled(fills map[string]bool) {
	for _, f := range r.filled {
		if f.empty && fills[f.set] {
			f.empty, f.text = false, f.text+", and rules of the source fill it"
		}
		switch drops := r.verb != doAccept && !r.verb.watches(); {
		case f.empty:
			r.remarks = append(r.remarks, r.remark(Noticed, f.text, "fill it with `levee set add`"))
		case drops == f.begins && !f.same && !r.verb.watches():
			r.widen(f.text, f.instead, r.alts)
		default:
			r.remarks = append(r.remarks, r.remark(Changed, f.text, f.instead))
		}
	}
}

// withDyn asks for a set of services or endpoints on one side.
func (m match) withDyn(dir string, s *dynSet) match {
	if dir == "dst" {
		m.toDyn = s
	} else {
		m.fromDyn = s
	}
	return m.settle()
}
