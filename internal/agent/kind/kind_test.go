package kind

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestEachKindIsOneRow: names are different, and no row lacks what the others are asked for.
func TestEachKindIsOneRow(t *testing.T) {
	seen := map[string]bool{}
	letters := regexp.MustCompile(`^[a-z]+$`)
	for k, r := range Rows {
		if !letters.MatchString(r.Name) || seen[r.Name] { // swatch of incidents.js reads no others
			t.Errorf("kind %d has the name %q: want one of its own, of the letters a to z", k,
				r.Name)
		}
		seen[r.Name] = true
		if r.Phrase == "" || r.Words == "" {
			t.Errorf("%s: Phrase %q, Words %q: want both", r.Name, r.Phrase, r.Words)
		}
		if r.All != r.Counter && (r.All < CountAllUDP || r.All > CountAllOther) {
			t.Errorf("%s: All is counter %d: want Counter, or one of CountAllUDP to CountAllOther",
				r.Name, r.All)
		}
		if (r.All != r.Counter) != (r.Same > 0) {
			t.Errorf("%s: Same is counter %d: want one if All is not Counter, else none", r.Name,
				r.Same)
		}
		if (r.Limit == "") != (r.Limit6 == "") {
			t.Errorf("%s: Limit %q, Limit6 %q: want both or neither", r.Name, r.Limit, r.Limit6)
		}
		if got := Named(r.Name); got.Name != r.Name || got.Counter != r.Counter {
			t.Errorf("the row of %q is that of %q", r.Name, got.Name)
		}
	}
}

// TestAKindOfALaterVersionHasARow: the file of incidents may be one of a later version.
func TestAKindOfALaterVersionHasARow(t *testing.T) {
	for _, r := range []Row{Named("quic-initials"), Named(""), *Kind(200).Row()} {
		if r.Phrase == "" || r.Unit == "" || r.Floor != 0 || r.Cookie || r.Limit != "" {
			t.Errorf("%+v", r)
		}
	}
}

// TestThePageHasEachKind holds the table of docs/explanation/floods.md to the rows.
func TestThePageHasEachKind(t *testing.T) {
	page, err := os.ReadFile("../../../docs/explanation/floods.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	row := regexp.MustCompile(`(?m)^\| (\w+) \| [^|]+ \| ([\d,]+ \| (?:yes|no)) \|$`)
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		said[strings.ToLower(m[1])] = strings.ReplaceAll(m[2], ",", "")
	}
	for _, r := range Rows {
		if r.Floor == 0 { // a kind of `above` alone
			continue
		}
		want := strconv.Itoa(int(r.Floor)) + " | no"
		if r.Answered {
			want = strings.Replace(want, "no", "yes", 1)
		}
		if said[r.Name] != want {
			t.Errorf("the table of docs/explanation/floods.md says %q of %s: want a row that ends "+
				"with | %s |", said[r.Name], r.Name, want)
		}
		delete(said, r.Name)
	}
	if len(said) > 0 {
		t.Errorf("docs/explanation/floods.md has kinds that there are not: %v", said)
	}
}

// TestTheReferenceNamesEachKind: what JSON may say of a flood was a list that nobody held to the
// rows, so that a new kind was missing there.
func TestTheReferenceNamesEachKind(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/json.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `incidents\\[\\]\\.seen\\.kind` \\| string \\| (.+) \\|$")
	found := row.FindStringSubmatch(string(page))
	if found == nil {
		t.Fatal("docs/reference/json.md has no row of incidents[].seen.kind")
	}
	names := make([]string, Num)
	for k := range Num {
		names[k] = "`" + k.String() + "`"
	}
	last := len(names) - 1
	want := strings.Join(names[:last], ", ") + " or " + names[last]
	if found[1] != want {
		t.Errorf("docs/reference/json.md, incidents[].seen.kind: %s; want %s", found[1], want)
	}
}
