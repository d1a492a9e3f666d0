package kind

import (
	"testing"
)

// TestEachKindIsOneRow: names are different, and no row lacks what the others are asked for.
func TestEachKindIsOneRow(t *testing.T) {
	seen := map[string]bool{}
	for k, r := range Rows {
		if r.Name == "" || seen[r.Name] || r.Phrase == "" || r.Words == "" {
			t.Errorf("row %d: %+v", k, r)
		}
		seen[r.Name] = true
		if r.All != r.Counter && (r.All < CountAllUDP || r.All > CountAllOther) {
			t.Errorf("%s: counter %d counts no packets of flows that go on", r.Name, r.All)
		}
		if (r.All != r.Counter) != (r.Same > 0) {
			t.Errorf("%s: its flows are told by %d", r.Name, r.Same)
		}
		if (r.Limit == "") != (r.Limit6 == "") {
			t.Errorf("%s: limited by %q, and for IPv6 by %q", r.Name, r.Limit, r.Limit6)
		}
		if got := Named(r.Name); got != Rows[k] {
			t.Errorf("the row of %q is %+v", r.Name, got)
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
