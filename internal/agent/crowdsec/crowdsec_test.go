package crowdsec

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lang/ast"
	"levee/internal/lang/policy"
)

// all is until when each is banned.
func (b *Bans) all() map[netip.Prefix]time.Time {
	out := make(map[netip.Prefix]time.Time, len(b.by))
	for p, of := range b.by {
		out[p] = latest(of)
	}
	return out
}

// recorded is an answer of CrowdSec 1.4.6.
func recorded(t *testing.T, name string) *Stream {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// left returns the bans that hold, with their remaining time in whole minutes.
func left(b *Bans, now time.Time) map[string]int {
	out := map[string]int{}
	for p, until := range b.all() {
		out[p.String()] = int(until.Sub(now).Round(time.Minute) / time.Minute)
	}
	return out
}

func TestABanEndsWithItsLastDecision(t *testing.T) {
	now := time.Now()
	b := NewBans(&policy.CrowdSec{})
	for _, step := range []struct {
		answer  string
		holds   map[string]int
		changed int
	}{
		{"1-all.json", map[string]int{"192.0.2.5/32": 120}, 1},
		{"2-delta.json", map[string]int{"192.0.2.5/32": 60, "2001:db8::5/128": 240}, 2},
		{"3-delta.json", map[string]int{"2001:db8::5/128": 240}, 1},
		{"4-quiet.json", map[string]int{"2001:db8::5/128": 240}, 0},
	} {
		changed := b.Apply(recorded(t, step.answer), now)
		if diff := cmp.Diff(step.holds, left(b, now)); diff != "" || len(changed) != step.changed {
			t.Errorf("%s: %d changed; %s", step.answer, len(changed), diff)
		}
	}
	if b.Decisions() != 1 || b.Addresses() != 1 || b.Unmeant != 1 {
		t.Errorf("%d decisions on %d addresses, %d not meant", b.Decisions(), b.Addresses(),
			b.Unmeant)
	}
}

func TestWhichDecisionsBan(t *testing.T) {
	where := func(field string, not bool, texts ...string) policy.Condition {
		return policy.Condition{Field: field, Not: not, Op: ast.Equal, Texts: texts}
	}
	ban := Decision{ID: 1, Origin: "CAPI", Type: "ban", Scope: "Ip", Value: "192.0.2.1",
		Duration: "1h", Scenario: "crowdsecurity/ssh-bf"}
	with := func(change func(*Decision)) Decision { d := ban; change(&d); return d }
	ranged := func(p string) Decision {
		return with(func(d *Decision) { d.Scope, d.Value = "Range", p })
	}
	for _, test := range []struct {
		name  string
		d     Decision
		where []policy.Condition
		want  string
	}{
		{"a ban", ban, nil, "192.0.2.1/32"},
		{"a range", with(func(d *Decision) { d.Scope, d.Value = "range", "2001:DB8::1/32" }), nil,
			"2001:db8::/32"},
		{"mapped", with(func(d *Decision) { d.Value = "::ffff:192.0.2.9" }), nil, "192.0.2.9/32"},
		{"a mapped range", ranged("::ffff:192.0.2.0/120"), nil, "192.0.2.0/24"},
		{"all addresses", ranged("0.0.0.0/0"), nil, ""},
		{"half of IPv6", ranged("8000::/1"), nil, ""},
		{"a country", with(func(d *Decision) { d.Scope, d.Value = "Country", "DE" }), nil, ""},
		{"a zone", with(func(d *Decision) { d.Value = "fe80::1%eth0" }), nil, ""},
		{"garbage", with(func(d *Decision) { d.Value = "192.0.2" }), nil, ""},
		{"no duration", with(func(d *Decision) { d.Duration = "soon" }), nil, ""},
		{"over", with(func(d *Decision) { d.Duration = "-1s" }), nil, ""},
		{"a captcha", with(func(d *Decision) { d.Type = "captcha" }), nil, ""},
		{"a captcha that is asked for", with(func(d *Decision) { d.Type = "captcha" }),
			[]policy.Condition{where("type", false, "ban", "captcha")}, "192.0.2.1/32"},
		{"of an origin", ban, []policy.Condition{where("origin", false, "CAPI", "lists")},
			"192.0.2.1/32"},
		{"of another origin", ban, []policy.Condition{where("origin", true, "CAPI")}, ""},
		{"of a scenario", ban, []policy.Condition{where("origin", false, "CAPI"),
			where("scenario", false, "crowdsecurity/http-probing")}, ""},
	} {
		b := NewBans(&policy.CrowdSec{Where: test.where})
		b.Apply(&Stream{New: []Decision{test.d}}, time.Now())
		got := ""
		for p := range b.all() {
			got = p.String()
		}
		if got != test.want {
			t.Errorf("%s: %q, wanted %q", test.name, got, test.want)
		}
	}
}

func TestADecisionThatComesAndGoesInOneAnswerIsGone(t *testing.T) {
	b := NewBans(&policy.CrowdSec{})
	d := Decision{ID: 7, Type: "ban", Scope: "Ip", Value: "192.0.2.1", Duration: "1h"}
	changed := b.Apply(&Stream{New: []Decision{d}, Deleted: []Decision{d}}, time.Now())
	p := netip.MustParsePrefix("192.0.2.1/32")
	if until, told := changed[p]; !told || !until.IsZero() || b.Addresses() != 0 {
		t.Errorf("%v, %d addresses", changed, b.Addresses())
	}
}

// TestManyDecisionsOnOneAddress: each was compared with all others, so that an answer of many
// held a core for hours.
func TestManyDecisionsOnOneAddress(t *testing.T) {
	b := NewBans(&policy.CrowdSec{})
	now := time.Now()
	var s Stream
	for i := range 3 * maxOnOne {
		s.New = append(s.New, Decision{ID: int64(i), Type: "ban", Scope: "Ip", Value: "192.0.2.1",
			Duration: fmt.Sprint(1+(i*7)%(3*maxOnOne), "m")})
	}
	changed := b.Apply(&s, now)
	p := netip.MustParsePrefix("192.0.2.1/32")
	if b.Decisions() != maxOnOne || b.Other != 2*maxOnOne ||
		!changed[p].Equal(now.Add(3*maxOnOne*time.Minute)) {
		t.Errorf("%d decisions, %d left out, until %v", b.Decisions(), b.Other, changed[p].Sub(now))
	}
}

// TestAValueIsBounded: one text could take a gigabyte of memory.
func TestAValueIsBounded(t *testing.T) {
	long := strings.Repeat("x", 4*maxValue)
	for name, text := range map[string]string{
		"a decision": `{"new":[{"id":1,"scenario":"` + long + `"}]}`,
		"another":    `{"other":"` + long + `"}`,
		"a name":     `{"` + long + `":null}`,
	} {
		if _, err := Read(strings.NewReader(text)); err == nil ||
			!strings.Contains(err.Error(), "a value in it has more than") {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := strings.Repeat(`{"id":1,"scenario":"`+strings.Repeat("x", 1000)+`"},`, 5000)
	s, err := Read(strings.NewReader(`{"new":[` + strings.TrimSuffix(many, ",") + `]}`))
	if err != nil || len(s.New) != 5000 {
		t.Errorf("%v", err)
	}
}

func TestAnAnswerThatIsNotWholeIsRefused(t *testing.T) {
	whole := `{"new":[{"id":1,"type":"ban","scope":"Ip","value":"192.0.2.1","duration":"1h"}],` +
		`"deleted":null,"links":{"a":[1]}}`
	if s, err := Read(strings.NewReader(whole)); err != nil || len(s.New) != 1 {
		t.Fatal(s, err)
	}
	for n := range len(whole) {
		if _, err := Read(strings.NewReader(whole[:n])); err == nil {
			t.Errorf("%q was taken", whole[:n])
		}
	}
	for _, text := range []string{whole + "x", whole + whole, "null", "[]", `{"new":5}`,
		`{"new":[5]}`, `{"new":[{"id":"x"}]}`, "<html>"} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestAFileWithoutAKey(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	c := New(&policy.CrowdSec{URL: "http://127.0.0.1:1", Key: key}, http.DefaultClient, "levee/1")
	for _, test := range []struct {
		text string
		mode os.FileMode
		want string
	}{{"a b", 0o600, "holds no key"}, {"abc", 0o644, "chmod 600"}} {
		if err := os.WriteFile(key, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(key, test.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Stream(t.Context(), true); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v", test.text, err)
		}
	}
}

func TestWhatIsAskedFor(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	status := http.StatusOK
	var asked *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r
		w.WriteHeader(status)
		fmt.Fprint(w, `{"new":null,"deleted":null}`)
	}))
	defer s.Close()
	c := New(&policy.CrowdSec{URL: s.URL, Key: key}, s.Client(), "levee/1")
	if _, err := c.Stream(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if asked.Header.Get("X-Api-Key") != "secret" || asked.UserAgent() != "levee/1" ||
		asked.URL.String() != "/v1/decisions/stream?startup=true&scopes=ip,range&dedup=false" {
		t.Errorf("%v %v", asked.URL, asked.Header)
	}
	for code, want := range map[int]string{http.StatusForbidden: "refuses the key",
		http.StatusBadGateway: "502"} {
		status = code
		if _, err := c.Stream(t.Context(), false); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// The key of a local API goes to no other server, such as one for logging in to which a proxy in
// front of it redirects.
func TestTheKeyFollowsNoRedirect(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var told []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told = r.Header["X-Api-Key"]
		fmt.Fprint(w, `{"new":null,"deleted":null}`)
	}))
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer s.Close()
	c := New(&policy.CrowdSec{URL: s.URL, Key: key}, s.Client(), "levee/1")
	if _, err := c.Stream(t.Context(), true); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("%v", err)
	}
	if told != nil {
		t.Errorf("another server was told %q", told)
	}
}

func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Read(strings.NewReader(string(text)))
		if err != nil {
			return
		}
		b := NewBans(&policy.CrowdSec{})
		b.Apply(s, time.Now())
		n := 0
		for p := range b.all() {
			if p != p.Masked() || p.Addr().Is4In6() {
				t.Errorf("%v", p)
			}
			n += len(b.by[p])
		}
		if n != b.Decisions() {
			t.Errorf("%d decisions, counted %d", n, b.Decisions())
		}
	})
}
