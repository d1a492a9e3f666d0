package service

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"levee/internal/bench/benchtest"
	"levee/internal/dataplane/judge"
	"levee/internal/lab/contender"
	"levee/internal/lab/labtest"
	"levee/internal/lab/talk"
	"levee/internal/lang/action"
	"levee/internal/lang/resolve"
	"levee/internal/packet/template"
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

// TestStraysLeaveRoomForJoins: packets as of sessions that there are not, from drawn addresses and
// ten times what strangers may send together, leave clients what these need. First packets of
// others pass, and so does a session that nothing has proven.
func TestStraysLeaveRoomForJoins(t *testing.T) {
	const second, strangers, flood, joins = 1_000_000, 400, 4000, 40 // the first in microseconds
	for _, s := range talk.All {
		if len(s.Stray) == 0 {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			p, ds := resolve.Parse("edge", fmt.Appendf(nil, "use %s strangers %d/s\ndefault drop\n",
				s.Name, strangers), nil)
			if p == nil {
				t.Fatal(ds)
			}
			j, err := judge.New(p, judge.Oracle)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			first := frames(t, s, "198.51.100.0/22 random", s.Forged)
			session := frames(t, s, "198.51.96.9", s.Stray[:1])
			stray := frames(t, s, "16.0.0.0/4 random", s.Stray)
			buf := make([]byte, 1<<11)
			var sent, passed, went, on uint64
			judged := func(of *template.Template, n uint64) uint64 {
				v, err := j.Frame(of.Frame(buf, n))
				if err != nil {
					t.Fatal(err)
				}
				if v.Action == action.Pass {
					return 1
				}
				return 0
			}
			for n := range uint64(4 * flood) {
				at := n * (second / flood)
				j.At(time.UnixMicro(int64(at)))
				judged(stray, n)
				if at < 2*second {
					continue // greylists act from the second on in which there is too much
				}
				if n%(flood/joins) == 0 {
					passed += judged(first, sent)
					sent++
				}
				if n%(flood/20) == 0 {
					ok := judged(session, 0)
					if at >= 3*second { // it has come again
						on += ok
						went++
					}
				}
			}
			if passed*100 < sent*98 || on*100 < went*98 {
				t.Errorf("%d of %d joins pass, and %d of %d packets of a session", passed, sent,
					on, went)
			}
		})
	}
}

// frames are packets to a service from some addresses.
func frames(t *testing.T, s *talk.Service, from string, lines []string) *template.Template {
	t.Helper()
	var text strings.Builder
	for _, line := range lines {
		port := "1024-65535 random"
		if !strings.Contains(from, "/") {
			port = "4000" // of one client
		}
		fmt.Fprintf(&text, "ipv4 udp from %s to 192.0.2.1 from port %s port %d %s\n", from, port,
			s.Port, line)
	}
	packets, ds := template.Parse("frames", []byte(text.String()))
	if ds.HasErrors() {
		t.Fatal(ds)
	}
	made, err := template.Compile(packets, template.Defaults{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return made
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
