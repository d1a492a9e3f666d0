package importer

import (
	"fmt"
	"strconv"
	"strings"

	"levee/internal/lang/importer/match"
	"levee/internal/quantity"
)

// Entry is an element that a set held when it was saved.
type Entry struct {
	Text  string
	Lease int64 // seconds; below 0 for the set's own, 0 for ever
}

// maxEntries bounds the entries that stand in comments above a dynamic set.
const maxEntries = 1000

// EntriesComment are the commands that put back what was in a set: dynamic sets begin empty.
func EntriesComment(set string, in []Entry) (lines []string) {
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
		if line == "" || e.Lease != lease || len(line) > perLine {
			end()
			line, lease = "  levee set add "+set, e.Lease
		}
		line += " " + e.Text
	}
	end()
	return lines
}

// DynamicOf is match.DynamicText for a set of services or endpoints.
func DynamicOf(what string, most uint64, lease int64) string {
	const limit = 8_388_608 // docs/reference/sets.md "Dynamic sets"
	return "dynamic(of " + what + ", " + match.DynamicText(min(most, limit),
		lease)[len("dynamic("):]
}

// Beside says that a set becomes a dynamic one, which begins with the addresses of a file: the
// input lacks what the set holds. Rules may fill one that has a name in the source.
func Beside(what, name, set, also string) Filled {
	return Filled{Text: what + " is not in the input: it becomes the dynamic set " + set +
		", which begins with the addresses in " + set + ".txt", Instead: "make that file by the " +
		"command above the set" + also, Same: true, set: match.Quote(name)}
}

// BesideComment says how the file of such a set is made: by a command, where a shell takes the
// name as it is.
func BesideComment(set, name, command string) []string {
	out := []string{"Not in the input: its addresses are in " + set + ".txt, one a line."}
	if strings.Trim(name, plain) == "" {
		out = append(out, "  "+command+" > "+set+".txt")
	}
	return out
}

// plain are the characters that a shell takes as they are.
const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

// ElsewhereComment says how the file of a set is made that has what the machine takes for its own
// and is no address of the interface.
func ElsewhereComment(set, dev string) []string {
	out := []string{"What this machine delivers and is no address of " + Printable(dev, 40) +
		", such as those of its other", "interfaces. They are in " + set + ".txt, one a line."}
	if strings.Trim(dev, plain) == "" {
		out = append(out, "  { echo any 255.255.255.255; ip route show table local; "+
			"ip -6 route show table local; } |",
			`    awk '$1 == "local" && $4 == "`+dev+`" { own[$2] } $1 != "multicast" { all[$2] }`,
			"      END { for (a in all) if (!(a in own)) print a }' > "+set+".txt")
	}
	return out
}

// Filled is a set that changes while the source runs.
type Filled struct {
	Text    string
	Instead string
	Begins  bool // the policy's begins empty; else it stays as it is
	empty   bool // it is empty in the source too
	Same    bool // it has what it has in the source
	set     string
}

const fillHint = "the commands above the set put its entries back; whoever fills it has to call " +
	"`levee set add`"

// carryFilled says what becomes of the sets of a rule that change while the source runs.
func (r *ChainRule) carryFilled(fills map[string]bool) {
	if r.Verb == DoNothing || r.Absent {
		return
	}
	for _, f := range r.Filled {
		if (f.empty || f.Same) && fills[f.set] {
			f.Begins = f.Begins || f.Same // with what it held when its file was made
			f.empty, f.Same = false, false
			f.Text += ", and rules of the source fill it"
		}
		switch drops := r.Verb != DoAccept && !r.Verb.watches(); {
		case f.empty:
			r.Remarks = append(r.Remarks, r.Remark(Noticed, f.Text, "fill it with `levee set add`"))
		case drops == f.Begins && !f.Same && !r.Verb.watches():
			r.Widen(f.Text, f.Instead, r.Alts)
		default:
			r.Remarks = append(r.Remarks, r.Remark(Changed, f.Text, f.Instead))
		}
	}
}
