package service

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"levee/internal/bench/benchtest"
	"levee/internal/lab/contender"
	"levee/internal/lab/labtest"
	"levee/internal/lab/talk"
	"levee/internal/lang/resolve"
)

// TestProfilesWithoutProofArePolicies: what proves clients is left out, and all else is there.
func TestProfilesWithoutProofArePolicies(t *testing.T) {
	for _, s := range talk.All {
		for _, name := range ProfileDefenceNames() {
			d, err := defence(name, s)
			if err != nil {
				t.Fatal(err)
			}
			if d.Hook() != contender.XDP || name == foreknownAlone {
				continue
			}
			p, ds := resolve.Parse("edge", []byte(d.Rules()), nil)
			if p == nil {
				t.Fatalf("%s, %s: %v", s.Name, name, ds)
			}
			if name == leveeByProfile {
				if len(p.Proves) == 0 && !s.AddressIsProof {
					t.Errorf("%s asks for no proof", s.Name)
				}
				continue
			}
			for _, word := range []string{"prove ", " proven", "cookie dns", "cookie a2s", "$"} {
				if strings.Contains(d.Rules(), "\n"+word) || strings.Contains(d.Rules(), word+" ") {
					t.Errorf("%s, %s: %q in\n%s", s.Name, name, word, d.Rules())
				}
			}
			if len(p.Rules) < 5 {
				t.Errorf("%s, %s has %d rules only", s.Name, name, len(p.Rules))
			}
		}
		if n, err := defence(nftDefence, s); err != nil || !strings.Contains(n.Rules(), "/second") {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}

func TestOptionsOfProfilesAreChecked(t *testing.T) {
	profiles := []string{"quic"}
	for want, o := range map[string]Options{
		`there is no profile of a service of the lab "chess"`: {Profiles: []string{"chess"}},
		`there is no flood "udp"`:                             {Profiles: profiles, Floods: []string{"udp"}},
		`there is no defence "iptables INPUT"`: {Profiles: profiles,
			Defences: []string{"iptables INPUT"}},
		"6000 requests a second": {Profiles: profiles, Requests: 6000},
	} {
		if _, err := Run(context.Background(), o); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestServicesBehindProfiles: services of the lab serve their clients behind levee, and the report
// has all its forms. The flood is too small to harm.
func TestServicesBehindProfiles(t *testing.T) {
	labtest.NeedRoot(t)
	labtest.NeedTwoCores(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Self: []string{self, "role"}, Profiles: []string{"raknet", "dns-authoritative"},
		Floods: []string{"idle"}, Defences: []string{leveeByProfile},
		Rate: 1000, Requests: 20, Before: 500 * time.Millisecond,
		During: 500 * time.Millisecond, After: 500 * time.Millisecond}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range r.Runs {
		before := run.within(0, run.From)
		n := 0
		for _, q := range before {
			if q.Took > 0 {
				n++
			}
		}
		if n == 0 {
			t.Errorf("%s behind %s: none of %d is answered", run.Flood, run.Defence, len(before))
		}
	}
	if want := 3 + 2; len(r.Runs) != want { // names have no sessions
		t.Errorf("%d runs, want %d", len(r.Runs), want)
	}
	benchtest.Output(t, r, "services behind profiles, 20 joins a second")
}
