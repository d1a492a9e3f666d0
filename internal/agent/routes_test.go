package agent

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/ledger"
)

// TestAPageEndsAtTheLongestName: a place in a list was taken up to a length that those of addresses
// have, so that what stood behind a page that ended at a name of 27 bytes could not be asked for.
func TestAPageEndsAtTheLongestName(t *testing.T) {
	a := start(t, t.TempDir(), newFake(), "")
	label := strings.Repeat(`\200`, 63) // as sets list it
	long := "*." + strings.Repeat(label+".", 3) + strings.Repeat(`\200`, 61)
	var leases []ledger.Lease
	for _, name := range []string{long, "z.example"} {
		leases = append(leases, ledger.Lease{Set: "s", Entry: ledger.Entry{Name: name},
			Origin: "me", Since: time.Now()})
	}
	if err := a.ledger.Record(leases, nil); err != nil {
		t.Fatal(err)
	}
	loop(t, a)
	p, err := a.page(t.Context(), &LeaseQuery{Limit: 1})
	if err != nil || len(p.Leases) != 1 || p.Next == "" {
		t.Fatalf("the first page: %+v, %v", p, err)
	}
	next, err := a.page(t.Context(), &LeaseQuery{Limit: 1, After: p.Next})
	if err != nil || len(next.Leases) != 1 || next.Leases[0].Entry != "z.example" {
		t.Errorf("the second page: %+v, %v", next, err)
	}

	text, err := Document(nil)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for path, place := range map[string]string{"/api/v1/leases": p.Next,
		"/api/v1/sets/{set}/entries": long} {
		var get struct {
			Parameters []struct {
				Name   string
				Schema struct{ MaxLength int }
			}
		}
		if err := json.Unmarshal(doc.Paths[path]["get"], &get); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		most := 0
		for _, q := range get.Parameters {
			if q.Name == "after" {
				most = q.Schema.MaxLength
			}
		}
		if most < len(place) {
			t.Errorf("%s takes a place of %d bytes, and gives one of %d", path, most, len(place))
		}
	}
}
