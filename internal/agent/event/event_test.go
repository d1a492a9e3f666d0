package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// source is the source of a policy with these conditions.
func source(t testing.TB, where string) *policy.Source {
	t.Helper()
	p, ds := resolve.Parse("e.levee", []byte("set s = dynamic(max 10)\ndrop from s\ndefault pass\n"+
		`source "ids" eve file "/e" `+where+" add src_ip to s\n"), nil)
	if p == nil {
		t.Fatal(ds)
	}
	return p.Sources[0]
}

func TestConditions(t *testing.T) {
	const alert = `{"event_type":"alert","src_ip":"192.0.2.1","dest_port":22,"vlan":[7,8],` +
		`"x":{"src_ip":"192.0.2.9"},"alert":{"severity":2,"signature_id":2001219,` +
		`"signature":"a \"b\" \u00e9\ud83d\ude00","metadata":{"cve":["C1","C2"]},"rev":1.0}}`
	for where, want := range map[string]Result{
		"":                           Matched,
		`where event_type = "alert"`: Matched,
		`where event_type = "dns"`:   Other,
		`where alert.severity <= 2 and alert.severity >= 2`: Matched,
		`where alert.severity < 2`:                          Other,
		`where alert.severity > 1`:                          Matched,
		`where not alert.severity > 1`:                      Other,
		`where alert.signature_id { 1, 2001219 }`:           Matched,
		`where not alert.signature_id { 1, 2001219 }`:       Other,
		`where alert.metadata.cve = "C2"`:                   Matched,
		`where alert.metadata.cve != "C2"`:                  Matched,
		`where vlan = 8`:                                    Matched,
		`where vlan = 9`:                                    Other,
		`where alert.rev = 1`:                               Matched,
		`where alert.gid != 1`:                              Other, // there is none
		`where alert.signature = "a b"`:                     Other,
	} {
		a, got, err := New(source(t, where), nil, nil).Match([]byte(alert), time.Now())
		if got != want || err != nil {
			t.Errorf("%q: %d, want %d (%v)", where, got, want, err)
		}
		if want == Matched && a.Text() != "192.0.2.1/32" {
			t.Errorf("%q: %s", where, a)
		}
	}
	m := newObjects(source(t, `where alert.signature = "q"`), newFeeds())
	for text, want := range map[string]string{`a \"b\" \u00e9`: `a "b" é`, `\ud83d\ude00`: "😀",
		`\ud83dx`: "�x", `\n\/`: "\n/"} {
		if got := string(m.unescape(value{raw: []byte(text), escape: true})); got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
}

func TestRecordsThatAreNone(t *testing.T) {
	m := New(source(t, ""), nil, nil)
	for _, text := range []string{"", "x", "[]", `{"src_ip"}`, `{"src_ip":"192.0.2.1"`,
		`{"src_ip":"192.0.2.1"}}`, `{"a":01}`, `{"a":"` + "\x01" + `"}`, `{"a":"\u12"}`,
		`{"a":1,}`, strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000)} {
		if _, got, err := m.Match([]byte(text), time.Now()); err == nil || got != Other {
			t.Errorf("%q is taken for a record", text)
		}
	}
	for text, want := range map[string]string{
		`{"src_ip":"::ffff:192.0.2.1"}`:                          "192.0.2.1/32",
		`{"src_ip":"192.0.2.1","src_ip":"2001:db8::1"}`:          "2001:db8::/64",
		` {"src_ip" : "192.0.2.1" , "b":[{"src_ip":"x"},null] }`: "192.0.2.1/32",
	} {
		a, got, err := m.Match([]byte(text), time.Now())
		if got != Matched || a.Text() != want || err != nil {
			t.Errorf("%s: %s %d %v", text, a, got, err)
		}
	}
	for _, text := range []string{"{}", `{"src_ip":7}`, `{"src_ip":"fe80::1%eth0"}`,
		`{"src_ip":"192.0.2.1","src_ip":null}`, `{"src_ip":"x"}`} {
		if _, got, err := m.Match([]byte(text), time.Now()); got != NoAddress || err != nil {
			t.Errorf("%s: %d %v", text, got, err)
		}
	}
}

// parse is the source of a policy.
func parse(t testing.TB, text string) *policy.Source {
	t.Helper()
	p, ds := resolve.Parse("e.levee", []byte("set s = dynamic(max 10)\ndrop from s\ndefault pass\n"+
		text+"\n"), nil)
	if p == nil {
		t.Fatal(ds)
	}
	return p.Sources[0]
}

func TestJSONOfAnyProgram(t *testing.T) {
	const record = `{"ts":1700000000.5,"request":{"remote_ip":"192.0.2.1","remote_port":4711,` +
		`"headers":{"User-Agent":["x"]}},"status":401,"ok":false,"peer":"[2001:db8::1]:443",` +
		`"list":["y","192.0.2.7"]}`
	for text, want := range map[string]string{
		`where status { 401, 403 } add request.remote_ip`:              "192.0.2.1/32",
		`where status >= 400 and ok = false add peer`:                  "2001:db8::/64",
		`where ok != true add list`:                                    "192.0.2.7/32",
		`where request.headers.User-Agent = "x" add request.remote_ip`: "192.0.2.1/32",
		`where status = "401" add request.remote_ip`:                   "",
		`where ok = true add request.remote_ip`:                        "",
		`where not ok { true, false } add request.remote_ip`:           "",
		`where nothing != 1 add request.remote_ip`:                     "",
		`where request = "x" add request.remote_ip`:                    "",
		`add request.remote_port`:                                      "",
		`after 2 within 1s add request.remote_ip`:                      "",
	} {
		m := New(parse(t, `source "a" json file "/a" `+text+" to s"), nil, nil)
		a, r, err := m.Match([]byte(record), time.Now())
		if err != nil || (r == Matched) != (want != "") || want != "" && a.Text() != want {
			t.Errorf("%s: %s %d %v", text, a, r, err)
		}
	}
	m := New(parse(t, `source "a" json file "/a" after 2 within 1s add request.remote_ip to s`), nil, nil)
	for i, want := range []Result{Counted, Matched, Counted} {
		later := strings.Replace(record, "1700000000.5", []string{"1700000000.5",
			`"2023-11-14T22:13:21.4Z"`, "1700000009000"}[i], 1)
		if _, r, err := m.Match([]byte(later), time.Now()); r != want || err != nil {
			t.Errorf("event %d: %d %v", i, r, err)
		}
	}
}

func TestLinesOfPrograms(t *testing.T) {
	const line = "Nov 25 01:31:58 h sshd[1]: Failed password for root from 192.0.2.1 port 22 ssh2"
	for text, want := range map[string]Result{
		`match sshd-failed`:                   Matched,
		`match sshd-invalid`:                  Unmatched,
		`match { sshd-invalid, sshd-failed }`: Matched,
		`match postfix-sasl`:                  Other,
		`where program = "sshd" match "Failed <text> from <addr> port <text>"`: Matched,
		`where program != "su" match "Failed <text> from <addr> port <text>"`:  Matched,
		`where program = "su" match "Failed <text> from <addr> port <text>"`:   Other,
		`match sshd-failed after 2 within 1m`:                                  Counted,
	} {
		m := New(parse(t, `source "a" lines file "/a" `+text+" add addr to s"), nil, nil)
		if a, r, err := m.Match([]byte(line), time.Now()); r != want || err != nil ||
			r == Matched && a.Text() != "192.0.2.1/32" {
			t.Errorf("%s: %s %d %v", text, a, r, err)
		}
	}
	m := New(parse(t, `source "a" lines file "/a" match "a <text> of <addr> b <text>" `+
		`add addr to s`), nil, nil)
	if _, r, _ := m.Match([]byte("a x of 192.0.2.1 b of 192.0.2.2 b "),
		time.Now()); r != Ambiguous {
		t.Errorf("a line that can mean two: %d", r)
	}
	if _, r, _ := New(parse(t, `source "a" lines file "/a" match sshd-failed add addr to s`), nil, nil).
		Match([]byte("Failed password for root from 192.0.2.1 port 22 ssh2"),
			time.Now()); r != Other {
		t.Error("a line of no program is taken for one of sshd's")
	}
}

// A pattern that fits no line of its program found nobody, without a word.
func TestPatternsThatFitNoLineOfTheirProgramAreTold(t *testing.T) {
	read := func(m *Matcher, n int, line string) {
		for range n {
			if _, _, err := m.Match([]byte(line), time.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}
	const (
		other    = "Nov 25 01:31:58 h cron[1]: (root) CMD (true)"
		unlike   = "Nov 25 01:31:58 h sshd[1]: Failed passphrase of root, 192.0.2.1"
		matching = "Nov 25 01:31:58 h sshd[1]: Failed password for root from 192.0.2.1 port 22 ssh2"
	)
	source := parse(t, `source "a" lines file "/a" match sshd-failed add addr to s`)
	m := New(source, nil, nil)
	read(m, 2000, other)
	read(m, misfits-1, unlike)
	if n, is := m.Misfit(); is {
		t.Errorf("told after %d lines", n)
	}
	m = New(source, m, nil) // a reload
	read(m, 1, unlike)
	if n, is := m.Misfit(); !is || n != misfits {
		t.Errorf("after %d lines of the program: %v", n, is)
	}
	read(m, 5, unlike)
	if _, again := m.Misfit(); again {
		t.Error("told twice")
	}
	m = New(source, nil, nil)
	read(m, 1, matching)
	read(m, 2000, unlike)
	if _, is := m.Misfit(); is {
		t.Error("told of a source that has matched a line")
	}
}

// TestRealRecords judges published records, where they are, beside encoding/json.
func TestRealRecords(t *testing.T) {
	dir := os.Getenv("LEVEE_DATA")
	if dir == "" {
		dir = "../../../../shared/data"
	}
	text, err := os.ReadFile(filepath.Join(dir, "eve", "alerts.ndjson"))
	if err != nil {
		t.Skip("published records are not at hand, in LEVEE_DATA: ", err)
	}
	records := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	var list []json.RawMessage
	if text, err = os.ReadFile(filepath.Join(dir, "eve", "honeypot-2018.json")); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		records = append(records, r)
	}
	m := New(source(t, `where event_type = "alert" and alert.severity <= 2`), nil, nil)
	matched := 0
	for _, r := range records {
		if compareRecord(t, m, r) == Matched {
			matched++
		}
	}
	if matched < 10 {
		t.Errorf("%d of %d matched", matched, len(records))
	}
}

// compareRecord holds the verdict of `event_type = "alert" and alert.severity <= 2` against
// encoding/json.
func compareRecord(t *testing.T, m *Matcher, r []byte) Result {
	t.Helper()
	a, got, err := m.Match(r, time.Now())
	var oracle any
	if json.Unmarshal(r, &oracle) != nil {
		return got
	}
	o, ok := oracle.(map[string]any)
	if !ok {
		if err == nil {
			t.Fatalf("%q is no object", r)
		}
		return got
	}
	if err != nil { // nested deeper than the bound
		if bytes.Count(r, []byte("{"))+bytes.Count(r, []byte("[")) <= maxDepth {
			t.Fatalf("%q: %v", r, err)
		}
		return got
	}
	kind, _ := o["event_type"].(string)
	alert, _ := o["alert"].(map[string]any)
	severity, isNumber := alert["severity"].(float64)
	text, _ := o["src_ip"].(string)
	switch _, list := o["event_type"].([]any); {
	case list:
		return got
	case alert != nil && alert["severity"] != nil && !isNumber: // a list, or another type
		return got
	}
	want := kind == "alert" && isNumber && severity <= 2
	if _, list := o["src_ip"].([]any); !list && got == Matched &&
		fmt.Sprint(a) == "" || want != (got != Other) {
		t.Fatalf("%q: %d, want %v (%s, %s)", r, got, want, a, text)
	}
	return got
}

func FuzzMatch(f *testing.F) {
	f.Add([]byte(`{"event_type":"alert","alert":{"severity":1},"src_ip":"192.0.2.1"}`))
	f.Add([]byte(`{"a\u0062":[1,{"b":-1.5e3}],"alert":{"severity":2},"alert":null}`))
	f.Add([]byte(`{"event_type":"\ud800"`))
	f.Fuzz(func(t *testing.T, r []byte) {
		m := New(source(t, `where event_type = "alert" and alert.severity <= 2`), nil, nil)
		_, _, err := m.Match(r, time.Now())
		if err == nil && !json.Valid(r) && bytes.IndexFunc(r, func(c rune) bool {
			return c == '�'
		}) < 0 {
			t.Fatalf("%q is no JSON", r)
		}
		compareRecord(t, m, r)
	})
}

func BenchmarkMatch(b *testing.B) {
	ids := make([]string, 20000)
	for i := range ids {
		ids[i] = fmt.Sprint(2000000 + i)
	}
	m := New(source(b, `where event_type = "alert" and alert.signature_id { `+
		strings.Join(ids, ", ")+" }"), nil, nil)
	record := []byte(`{"timestamp":"2022-07-12T06:22:33.415742+0000","flow_id":1398609176796675,` +
		`"event_type":"alert","src_ip":"192.0.2.4","src_port":33270,"dest_ip":"192.0.2.5",` +
		`"alert":{"action":"allowed","gid":1,"signature_id":2010125,"rev":4,"severity":1},` +
		`"payload":"` +
		strings.Repeat("UE9TVCAv", 100) + `"}`)
	b.SetBytes(int64(len(record)))
	for b.Loop() {
		if _, got, _ := m.Match(record, time.Now()); got != Matched {
			b.Fatal(got)
		}
	}
}

// TestTriesFromManyAddressesOfANetworkAreOnes: 16 tries from eight addresses of a /64 went
// unnoticed where five from one address are an attack.
func TestTriesFromManyAddressesOfANetworkAreOnes(t *testing.T) {
	const tail = ` match "no <addr>" after 5 within 10m add addr`
	const five = "2001:db8::1 2001:db8::2 2001:db8::3 2001:db8::4 2001:db8::5"
	const five4 = "192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4 192.0.2.5"
	for _, c := range []struct {
		bits, addrs, want string
		lone              string // a prefix that holds whom no entry may hold
	}{
		{"", five, "2001:db8::/64", ""},
		{"", strings.ReplaceAll(five, "::4", ":0:0:ffff::4"), "2001:db8::/64", ""},
		{"", strings.ReplaceAll(five, "::4", ":0:1::4"), "", ""},
		{"", five4, "", ""},
		{"", "::ffff:192.0.2.1 192.0.2.1 192.0.2.1 192.0.2.1 192.0.2.1", "192.0.2.1/32", ""},
		{"/32,64", five, "2001:db8::/64", ""},
		{"/32,56", strings.ReplaceAll(five, "::4", ":0:1::4"), "2001:db8::/56", ""},
		{"/24", five4, "192.0.2.0/24", ""},
		{"/32,128", five, "", ""},
		// NAT64 and Teredo put strangers side by side.
		{"", strings.ReplaceAll(five, "2001:db8", "64:ff9b"), "", ""},
		{"", "64:ff9b::1 64:ff9b::1 64:ff9b::1 64:ff9b::1 64:ff9b::1", "64:ff9b::1/128", ""},
		{"", strings.ReplaceAll(five, "2001:db8", "2001:0:1:2"), "", ""},
		// Neighbours of one's own are counted and leased alone.
		{"", five, "", "2001:db8::9/128"},
		{"", strings.ReplaceAll(five, "::4", "::1"), "", "2001:db8::9/128"},
		{"", "2001:db8::1 2001:db8::1 2001:db8::1 2001:db8::1 2001:db8::1", "2001:db8::1/128",
			"2001:db8::9/128"},
	} {
		keeps := func(p netip.Prefix) bool {
			return c.lone != "" && p.Overlaps(netip.MustParsePrefix(c.lone))
		}
		m := New(parse(t, `source "a" lines file "/a"`+tail+c.bits+" to s"), nil,
			keeps)
		got := ""
		for a := range strings.FieldsSeq(c.addrs) {
			p, r, err := m.Match([]byte("no "+a), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if r == Matched {
				got += p.Text()
			}
		}
		if got != c.want {
			t.Errorf("add addr%s: %s: leased %q, want %q", c.bits, c.addrs, got, c.want)
		}
	}
}

// Names go into sets of names, or their last labels: never what has the names of many below it,
// which a stranger could name by a query.
func TestNamesOfEvents(t *testing.T) {
	parse := func(add string) *policy.Source {
		p, ds := resolve.Parse("e.levee", []byte("set s = dynamic(of names, max 10)\n"+
			"drop udp dns name in s\ndefault pass\n"+
			`source "ids" eve file "/e" where dns.rrtype = "ANY" add `+add+" to s\n"), nil)
		if p == nil {
			t.Fatal(ds)
		}
		return p.Sources[0]
	}
	for _, c := range []struct{ add, name, want string }{
		{"dns.rrname", "WWW.Evil.example", "www.evil.example"},
		{"dns.rrname/2", "a.b.c.Evil.example.", "evil.example"},
		{"dns.rrname/3", "evil.example", "evil.example"},
		{"dns.rrname/2", `a\\032b.example`, `a\032b.example`},
		{"dns.rrname/2", "a.b.shop.co.uk", "shop.co.uk"},
		{"dns.rrname/2", "a.user.github.io", "user.github.io"},
		{"dns.rrname/6", "b.user.s3.dualstack.cn-north-1.amazonaws.com.cn",
			"user.s3.dualstack.cn-north-1.amazonaws.com.cn"},
		{"dns.rrname/2", "co.uk", ""},
		{"dns.rrname", "github.io", ""},
		{"dns.rrname", "com", ""},
		{"dns.rrname", "example", ""},
		{"dns.rrname", ".", ""},
		{"dns.rrname", "", ""},
		{"dns.rrname", "192.0.2.1", ""},
		{"dns.rrname", "*.example.net", ""},
		{"dns.rrname", strings.Repeat("x", 64) + ".example", ""},
	} {
		e, got, err := New(parse(c.add), nil, nil).Match([]byte(
			`{"dns":{"rrtype":"ANY","rrname":"`+c.name+`"}}`), time.Now())
		if err != nil || (got == Matched) != (c.want != "") || e.Name != c.want {
			t.Errorf("%s of %q: %q, %d, %v; want %q", c.add, c.name, e.Name, got, err, c.want)
		}
	}
}
