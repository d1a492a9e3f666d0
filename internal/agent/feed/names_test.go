package feed

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/policy"
)

func TestNamesOfLists(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
		bad        int
	}{
		{"one a line", "# names\nevil.example\nEVIL.example.\n*.Random.example\n\nxn--p1ai\n",
			[]string{"*.random.example", "evil.example", "xn--p1ai"}, 0},
		{"a hosts file", "127.0.0.1 localhost\n::1 ip6-localhost ip6-loopback\n" +
			"0.0.0.0 ads.example tracker.example # both\n0.0.0.0\tx.example\r\n",
			[]string{"ads.example", "tracker.example", "x.example"}, 0},
		{"a filter of browsers", "[Adblock Plus 2.0]\n! Title: some\n||ads.example^\n" +
			"||b.example^\n||c.example^\n||d.example^\n||e.example^\n||f.example^\n" +
			"||g.example^\n||h.example^\n||i.example^\n||j.example^$third-party\n",
			[]string{"ads.example", "b.example", "c.example", "d.example", "e.example",
				"f.example", "g.example", "h.example", "i.example"}, 1},
		{"what could be more than is meant", strings.Repeat("a.example\n", 30) +
			"@@||ok.example^\nhttp://x.example/\n192.0.2.1\n", []string{"a.example"}, 3},
		{"what a browser hides on pages of good names", strings.Repeat("a.example\n", 30) +
			"ok.example##.banner span.of.it\nfine.example#@#.ad\n##.all\nb.example #c\n",
			[]string{"a.example", "b.example"}, 2},
		{"a zone of rules for responses", "$TTL 60\n@ IN SOA localhost. root. 1 2 3 4 5\n" +
			" IN NS localhost.\nevil.example CNAME .\n*.evil.example 60 IN CNAME *.\n" +
			"held.example A 192.0.2.1\n" + strings.Repeat("x.example CNAME rpz-drop.\n", 30) +
			"ok.example CNAME rpz-passthru.\n32.1.2.0.192.rpz-ip CNAME .\n",
			[]string{"*.evil.example", "evil.example", "held.example", "x.example"}, 2},
		{"with commas and dots", ".evil.example,x.example\n", []string{"evil.example",
			"x.example"}, 0},
	} {
		l, err := Read(strings.NewReader(c.text), &policy.Feed{Names: true}, 100)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !slices.Equal(l.Names, c.want) || l.Bad != c.bad || l.Len() != len(c.want) {
			t.Errorf("%s: %q, %d bad (%q), want %q, %d", c.name, l.Names, l.Bad, l.Skipped, c.want,
				c.bad)
		}
		for e := range l.Entries() {
			if !l.Has(e) {
				t.Errorf("%s: it does not have %v", c.name, e)
			}
		}
	}
	if _, err := Read(strings.NewReader("192.0.2.1\n192.0.2.2\nx.example\n"),
		&policy.Feed{Names: true}, 100); err == nil ||
		!strings.Contains(err.Error(), "are no name") {
		t.Errorf("a list of addresses: %v", err)
	}
	if _, err := Read(strings.NewReader("a.example\nb.example\n"), &policy.Feed{Names: true},
		1); !errors.Is(err, ErrTooMany) {
		t.Errorf("more than the set takes: %v", err)
	}
}
