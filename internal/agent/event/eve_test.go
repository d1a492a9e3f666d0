package event

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"levee/internal/lang/eve"
)

// record is one with a value at a path: "a.b[].c" is {"a":{"b":[{},{"c":value}]}}.
func record(path, value string) string {
	parts := strings.Split(path, ".")
	for i := len(parts) - 1; i >= 0; i-- {
		name, list := strings.CutSuffix(parts[i], "[]")
		if list {
			value = "[{}," + value + `,{"x":null}]`
		}
		value = fmt.Sprintf(`{%q:%s}`, name, value)
	}
	return value
}

// TestEveryFieldOfEventsIsReached: each path that a version of Suricata has is found, alone and in
// a list, and nothing else is.
func TestEveryFieldOfEventsIsReached(t *testing.T) {
	for _, f := range eve.Fields() {
		where, is, other := f.Name+` = "ok"`, `"ok"`, `"o"`
		switch {
		case len(f.Values) > 0:
			where, is = fmt.Sprintf("%s = %q", f.Name, f.Values[0]), fmt.Sprintf("%q", f.Values[0])
		case f.Type == eve.Number:
			where, is, other = f.Name+" = 9007199254740993", "9007199254740993", "9007199254740992"
		case f.Type == eve.Address:
			continue // below
		}
		for _, path := range append([]string{f.Name}, f.Also...) {
			for value, want := range map[string]bool{is: true, "[" + other + "," + is + "]": true,
				other: false, "null": false, "{}": false, "[]": false, "[{}," + other + "]": false,
				"true": false, "{\"x\":" + is + "}": false} {
				m := New(source(t, "where "+where), nil, nil)
				line := strings.TrimSuffix(record(path, value), "}") + `,"src_ip":"192.0.2.1"}`
				_, r, err := m.Match([]byte(line), time.Now())
				if err != nil || (r == Matched) != want {
					t.Errorf("%s of %s: %d, %v, want %v", where, line, r, err, want)
				}
			}
		}
	}
	for _, f := range eve.Fields() {
		if f.Type != eve.Address {
			continue
		}
		m := New(parse(t, `source "ids" eve file "/e" where event_type = "alert" add `+f.Name+
			" to s"), nil, nil)
		line := strings.TrimSuffix(record(f.Name, `"192.0.2.7"`), "}") + `,"event_type":"alert"}`
		if e, r, err := m.Match([]byte(line), time.Now()); err != nil || r != Matched ||
			e.Text() != "192.0.2.7/32" {
			t.Errorf("%s: %s, %d, %v", line, e.Text(), r, err)
		}
	}
}

// TestEventsOfThreeVersions has records as Suricata 6, 7 and 8 write them, cut short.
func TestEventsOfThreeVersions(t *testing.T) {
	const head = `{"timestamp":"2026-11-25T01:31:58.123456+0000","flow_id":1398609176796675,` +
		`"in_iface":"eth0","src_ip":"192.0.2.1","src_port":40000,"dest_ip":"198.51.100.1",` +
		`"dest_port":53,"proto":"UDP",`
	const query8 = head + `"ip_v":4,"event_type":"dns","dns":{"version":3,"type":"request",` +
		`"tx_id":0,"id":4711,"flags":"100","rd":true,"opcode":0,"rcode":"NOERROR",` +
		`"queries":[{"rrname":"www.example.net",` +
		`"rrtype":"A"},{"rrname":"x.example","rrtype":"ANY"}]}}`
	for _, c := range []struct{ record, where string }{
		{head + `"event_type":"dns","dns":{"type":"query","id":4711,"rrname":"x.example",` +
			`"rrtype":"ANY","tx_id":0,"opcode":0}}`,
			`dns.rrname = "x.example" and dns.rrtype = "ANY"`},
		{head + `"event_type":"dns","dns":{"version":2,"type":"answer","rrname":"x.example",` +
			`"rrtype":"ANY","rcode":"NXDOMAIN","answers":[{"rrname":"y.example"}]}}`,
			`dns.rrname ends "x.example" and dns.rcode = "NXDOMAIN"`},
		{head + `"event_type":"alert","alert":{"action":"allowed","gid":1,"signature_id":7,` +
			`"rev":1,"signature":"x","category":"","severity":3},"dns":{"query":[{"type":"query",` +
			`"id":1,"rrname":"x.example","rrtype":"ANY"}]}}`,
			`alert.severity <= 3 and dns.rrname = "x.example"`},
		{query8, `dns.type = "request" and dns.rrname = "x.example" and dns.rrtype = "ANY"`},
		{head + `"event_type":"tls","tls":{"sni":"a.example","version":"TLS 1.3",` +
			`"ja3":{"hash":"0123","string":"771,1-2,3"},"ja4":"t13d1516h2_x_y",` +
			`"client_alpns":["h2","http/1.1"]}}`,
			`tls.ja4 begins "t13d" and tls.client_alpns = "http/1.1" and tls.ja3.hash = "0123"`},
		{head + `"event_type":"anomaly","anomaly":{"app_proto":"http","type":"applayer",` +
			`"event":"UNABLE_TO_MATCH_RESPONSE_TO_REQUEST","layer":"proto_parser"}}`,
			`anomaly.type = "applayer" and anomaly.layer = "proto_parser"`},
		{head + `"event_type":"quic","quic":{"version":"1","sni":"a.example","ja4":"q13d_x_y",` +
			`"cyu":[{"hash":"x","string":"y"}],"extensions":[{"name":"alpn","values":["h3"]}]}}`,
			`quic.sni ends ".example" and quic.version = "1"`},
		{head + `"event_type":"smb","smb":{"id":3,"dialect":"3.11","command":` +
			`"SMB2_COMMAND_SESSION_SETUP","status":"STATUS_LOGON_FAILURE","ntlmssp":{"domain":"",` +
			`"user":"admin","host":"KALI"}}}`,
			`smb.status = "STATUS_LOGON_FAILURE" and smb.ntlmssp.host = "kali" any case`},
		{head + `"vlan":[10,20],"event_type":"flow","flow":{"pkts_toserver":3,"pkts_toclient":0,` +
			`"bytes_toserver":180,"bytes_toclient":0,"age":31,"state":"new","reason":"timeout",` +
			`"alerted":false}}`,
			`flow.pkts_toclient = 0 and flow.age > 30 and vlan = 20`},
		{head + `"event_type":"rfb","rfb":{"authentication":{"security_type":2,` +
			`"security-result":"FAIL"},"server_security_failure_reason":"no"}}`, // not "_result"
			`rfb.authentication.security_result = "FAIL"`},
		{head + `"event_type":"ssh","ssh":{"client":{"proto_version":"2.0","software_version":` +
			`"libssh_0.9","hassh":{"hash":"ab","string":"c"}},"server":{}}}`,
			`ssh.client.software_version contains "libssh"`},
		{head + `"event_type":"http",` +
			`"http":{"hostname":"a.example","url":"\/x\u0000y?\ud83d\ude00",` +
			`"http_user_agent":"zgrab","status":404,"xff":"203.0.113.9","length":0}}`,
			`http.url contains "y?😀" and http.status = 404`},
	} {
		m := New(source(t, "where "+c.where), nil, nil)
		if _, r, err := m.Match([]byte(c.record), time.Now()); err != nil || r != Matched {
			t.Errorf("%s: %d, %v: %s", c.where, r, err, c.record)
		}
		// a last line that was not written whole
		for _, cut := range []int{1, 2, len(c.record) / 2} {
			if _, r, err := m.Match([]byte(c.record[:len(c.record)-cut]), time.Now()); err == nil {
				t.Errorf("%d of a record that lacks %d bytes", r, cut)
			}
		}
	}
	// None of the names may be what is asked for.
	m := New(source(t, `where not dns.rrname ends "example.net"`), nil, nil)
	if _, r, _ := m.Match([]byte(query8), time.Now()); r != Matched {
		t.Error("the second query of a record is not seen")
	}
	// Bytes that are no UTF-8 are bytes.
	m = New(source(t, `where http.url contains "evil"`), nil, nil)
	if _, r, err := m.Match([]byte(`{"http":{"url":"`+"\xff\xfe"+`evil"},"src_ip":"192.0.2.1"}`),
		time.Now()); err != nil || r != Matched {
		t.Errorf("%d, %v", r, err)
	}
}

// TestEventsBehindAHeaderOfSyslog: Suricata and pfSense send records to syslog, and each line of
// such a file was malformed. A line of another program is none of Suricata's, whatever it says.
func TestEventsBehindAHeaderOfSyslog(t *testing.T) {
	const record = `{"timestamp":"2026-11-30T20:10:30.123456+0900","event_type":"alert",` +
		`"src_ip":"198.51.100.7","alert":{"severity":1}}`
	for head, want := range map[string]Result{
		"":       Matched,
		" ":      Matched,
		"\ufeff": Matched,
		"@cee: ": Matched,
		"<134>Nov 30 12:00:00 pfsense suricata: ":                                Matched,
		"<134>Nov 30 12:00:00 pfsense suricata[4711]: ":                          Matched,
		"Nov 30 12:00:00 ids suricata[4711]: @cee: ":                             Matched,
		"2026-11-30T12:00:00.123456+00:00 ids suricata[4711]: ":                  Matched,
		"<134>1 2026-11-30T12:00:00Z ids suricata 4711 - - ":                     Matched,
		`<134>1 2026-11-30T12:00:00Z ids suricata 4711 - [meta sequenceId="9"] `: Matched,
		"Nov 30 12:00:00 ids suricata[4711]: [100] Notice: ":                     Other,
		"Nov 30 12:00:00 ids httpd[4711]: ":                                      Other,
		"Nov 30 12:00:00 ids httpd: suricata: ":                                  Other,
		"<134>1 2026-11-30T12:00:00Z ids httpd 4711 - - suricata: ":              Other,
		"<134>1 2026-11-30T12:00:00Z ids - - - - ":                               Other,
		"Nov 30 12:00:00 ids httpd: Nov 30 12:00:00 ids suricata: ":              Other,
	} {
		m := New(source(t, "where alert.severity = 1"), nil, nil)
		e, r, err := m.Match([]byte(head+record), time.Now())
		if err != nil || r != want || r == Matched && e.Text() != "198.51.100.7/32" {
			t.Errorf("%q: %d %s %v", head, r, e.Text(), err)
		}
	}
	for _, line := range []string{"x " + record, "[" + record + "]", record + record,
		record[:90], "suricata: " + record, "Nov 30 12:00:00 ids : " + record,
		"[Mon Nov 30 12:00:00 2026] [error] " + record} {
		m := New(source(t, "where alert.severity = 1"), nil, nil)
		if _, r, err := m.Match([]byte(line), time.Now()); r != Other || err == nil {
			t.Errorf("%s: %d %v", line, r, err)
		}
	}
}

// TestNumbersInQuotesAreNumbers: a converter, or nginx' $status, writes "401", and `= 401`, `< 2`
// and `!= 200` never held.
func TestNumbersInQuotesAreNumbers(t *testing.T) {
	for value, want := range map[string]map[string]bool{
		`"2"`: {"= 2": true, "<= 2": true, "< 2": false, "!= 2": false, "!= 3": true,
			"{ 1, 2 }": true},
		`"2.0"`:    {"= 2": true, "> 1": true},
		`"-1"`:     {"< 0": true},
		`"1e1"`:    {"= 10": true},
		`"02"`:     {"= 2": false, "!= 2": false},
		`"0x2"`:    {"= 2": false},
		`"2 "`:     {"= 2": false},
		`"1_0"`:    {"= 10": false},
		`"+2"`:     {"= 2": false},
		`"inf"`:    {"> 1": false},
		`""`:       {"!= 2": false},
		`"1-2"`:    {"!= 2": false, "> 0": false},
		`["2"]`:    {"= 2": true},
		`"\u0032"`: {"= 2": false},
	} {
		for where, want := range want {
			m := New(source(t, "where alert.severity "+where), nil, nil)
			line := `{"src_ip":"198.51.100.7","alert":{"severity":` + value + `}}`
			_, r, err := m.Match([]byte(line), time.Now())
			if err != nil || (r == Matched) != want {
				t.Errorf("%s %s: %d %v", value, where, r, err)
			}
		}
	}
}

// TestKeysThatArePaths: Zeek's records have "id.orig_h" as one key. A condition on it passed `levee
// check` and never held.
func TestKeysThatArePaths(t *testing.T) {
	const zeek = `source "z" json file "/e" where id.resp_p = 22 add id.orig_h to s`
	for record, want := range map[string]string{
		`{"ts":1718553600.0,"id.orig_h":"192.0.2.7","id.orig_p":54321,"id.resp_p":22}`: "192.0.2.7/32",
		`{"id":{"orig_h":"192.0.2.7","resp_p":22}}`:                                    "192.0.2.7/32",
		`{"id":{"orig_h":"192.0.2.7"},"id.resp_p":22}`:                                 "192.0.2.7/32",
		`{"id.orig_h":"192.0.2.7","id":{"resp_p":22}}`:                                 "192.0.2.7/32",
		`{"id.orig_h":"192.0.2.7","id.resp_p":22,"id":{"x":1}}`:                        "192.0.2.7/32",
		`{"id.orig_h":"192.0.2.7","id.resp_p":22,"id":"C4J4Th3PJpwUYZZ6gc"}`:           "192.0.2.7/32",
		`{"id":{"orig_h":"192.0.2.7","resp_p":22},"id":{"x":1}}`:                       "",
		`{"id.orig_h":"192.0.2.9","id.orig_h":"192.0.2.7","id.resp_p":22}`:             "192.0.2.7/32",
		`{"id.orig_h.x":"192.0.2.7","id.resp_p":22}`:                                   "",
		`{"x.id.orig_h":"192.0.2.7","id.resp_p":22}`:                                   "",
		`{"id.orig_h":"192.0.2.7","id.":1,".resp_p":22,"id..resp_p":22,".":0,"":22}`:   "",
		`{"id.orig_h":"192.0.2.7","x":{"id.resp_p":22}}`:                               "",
	} {
		m := New(parse(t, zeek), nil, nil)
		e, r, err := m.Match([]byte(record), time.Now())
		if err != nil || (r == Matched) != (want != "") || r == Matched && e.Text() != want {
			t.Errorf("%s: %d %s %v", record, r, e.Text(), err)
		}
	}
	m := New(source(t, "where alert.severity = 1"), nil, nil) // of Suricata's an object has them
	if _, r, err := m.Match([]byte(`{"src_ip":"192.0.2.7","alert.severity":1}`),
		time.Now()); r != Other || err != nil {
		t.Error(r, err)
	}
}

// TestMetadataOfRules: a rule's author chooses the names of its metadata, and conditions on most of
// those of Emerging Threats were refused.
func TestMetadataOfRules(t *testing.T) {
	m := New(source(t, `where alert.metadata.former_category = "SCAN"`), nil, nil)
	if _, r, err := m.Match([]byte(`{"src_ip":"192.0.2.7","alert":{"metadata":{"former_category":`+
		`["SCAN"]}}}`), time.Now()); r != Matched || err != nil {
		t.Error(r, err)
	}
	for _, name := range []string{"alert.metadata", "alert.metadata.", "alert.metadata.a.b"} {
		if f, ok := eve.Named(name); ok {
			t.Error(f)
		}
	}
}
