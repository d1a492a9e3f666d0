package agent

import (
	"errors"
	"maps"
	"net/netip"
	"testing"
	"time"

	"levee/internal/agent/ledger"
	"levee/internal/agent/lookup"
)

func answer(ttl time.Duration, addrs ...string) *lookup.Answer {
	out := &lookup.Answer{TTL: ttl}
	for _, a := range addrs {
		out.Addresses = append(out.Addresses, netip.MustParseAddr(a))
	}
	return out
}

// TestAddressesOfNames follows a name: each step is an answer, and what the set holds then.
func TestAddressesOfNames(t *testing.T) {
	k := newFake()
	a := start(t, t.TempDir(), k,
		`set partners = names("a.example", "b.example", stale 1d)`+"\n")
	if len(a.lists) != 2 || a.lists[1].DNS != "b.example" || a.lists[1].Name != "dns:b.example" {
		t.Fatalf("%+v", a.lists)
	}
	loop(t, a)
	const day = 24 * time.Hour
	away := errors.New("server misbehaving")
	for _, step := range []struct {
		name string
		of   int
		got  answers
		err  error
		want map[string]time.Duration
	}{
		{"the first answer", 0, answers{answer(time.Minute, "198.51.100.1", "198.51.100.2"),
			answer(time.Minute, "2001:db8::1")}, nil,
			map[string]time.Duration{"198.51.100.1": day, "198.51.100.2": day, "2001:db8::1": day}},
		{"another address", 0, answers{answer(5*time.Minute, "198.51.100.2", "198.51.100.3"),
			answer(time.Minute, "2001:db8::1")}, nil, map[string]time.Duration{
			"198.51.100.1": 5 * time.Minute, "198.51.100.2": day, "198.51.100.3": day,
			"2001:db8::1": day}},
		{"nobody knows", 0, answers{}, away, map[string]time.Duration{
			"198.51.100.1": 5 * time.Minute, "198.51.100.2": day, "198.51.100.3": day,
			"2001:db8::1": day}},
		{"one family is gone", 0, answers{answer(time.Minute, "198.51.100.3"),
			answer(time.Minute)}, nil, map[string]time.Duration{"198.51.100.1": time.Minute,
			"198.51.100.2": time.Minute, "198.51.100.3": day, "2001:db8::1": day}},
		{"a name beside it", 1, answers{answer(time.Hour, "198.51.100.2"), nil}, away,
			map[string]time.Duration{"198.51.100.1": time.Minute, "198.51.100.2": day,
				"198.51.100.3": day, "2001:db8::1": day}},
		{"what no host has", 1, answers{answer(time.Hour, "127.0.0.1", "0.0.0.0"), nil}, nil,
			map[string]time.Duration{"198.51.100.1": time.Minute, "198.51.100.2": time.Hour,
				"198.51.100.3": day, "2001:db8::1": day}},
	} {
		l := a.lists[step.of]
		a.resolved(t.Context(), l, step.got, step.err)
		got := map[string]time.Duration{}
		for p, d := range k.sets["partners"] {
			got[ledger.Of(p).String()] = d.Round(time.Minute)
		}
		if !maps.Equal(got, step.want) {
			t.Errorf("%s: %v, wanted %v", step.name, got, step.want)
		}
		if (l.status.Error != "") != (step.err != nil) {
			t.Errorf("%s: %q", step.name, l.status.Error)
		}
	}

	// a protect rule asks the set: its addresses are no strangers to it, but to all others
	a.protects = nil
	for p := range k.sets["partners"] {
		a.protected(t.Context()).Add(p, "protected, as an entry of set partners")
	}
	a.compare(t.Context())
	if s := a.current(); s.Compare.Entries != 4 || s.Enforced != 100 {
		t.Errorf("%+v", s.Compare)
	}
	for origin, refused := range map[string]bool{"dns:a.example": false, "ids": true} {
		of := ledger.Lease{Set: "partners", Origin: origin,
			Entry: ledger.Of(netip.MustParsePrefix("198.51.100.3/32"))}
		if why := a.refuses(a.protects, &of); (why != "") != refused {
			t.Errorf("of %s: %q", origin, why)
		}
	}
}

// TestFailedLookUpsAreOneLine: what both families say alike is told once.
func TestFailedLookUpsAreOneLine(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	for want, errs := range map[string][2]error{"b": {nil, b}, "a; b": {a, b}, "a": {a, a}} {
		if got := both(errs[0], errs[1]).Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
