package stream

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/dnsname"
	"levee/internal/packet/dns"
)

// protocolTests has at least one test of each protocol.
func protocolTests(t testing.TB) []protocolTest {
	t.Helper()
	all := []protocolTest{
		{&ssh, sshHello("SSH-2.0-OpenSSH_9.2p1 Debian-2", "curve25519-sha256", "ssh-ed25519",
			"aes128-ctr", "aes256-ctr", "hmac-sha2-256", "hmac-sha1", "none", "zlib", "", ""),
			`"software_version":"OpenSSH_9.2p1"`},
		{&ssh, []byte("SSH-2.0-Go\r\n"), `"proto_version":"2.0"`},
		{&http, []byte("\r\nGET /x?y HTTP/1.1\r\nhost: Shop.example:8080\r\nUser-Agent: zgrab/0.x" +
			"\nhost: second\r\nX: y\r\n\r\nthe body"), `{"hostname":"shop.example",` +
			`"http_method":"GET","http_user_agent":"zgrab/0.x","protocol":"HTTP/1.1","url":"/x?y"}`},
		{&http, []byte("POST / HTTP/1.0\r\nX-A: b"), `"http_method":"POST"`},
		{&smtp, []byte("ehlo ylmf-pc\r\nMAIL FROM: <a@b.example> SIZE=1\r\n" +
			"RCPT TO:<c@d.example>\r\n"),
			`{"helo":"ylmf-pc","mail_from":"\u003ca@b.example\u003e","rcpt_to":"\u003cc@d.example\u003e"}`},
		{&smtp, []byte("EHLO x\r\nSTARTTLS\r\n\x16\x03\x01"), `{"helo":"x"}`},
		{&banner, []byte("\x03\x00mstshash=hello\r\nmore"), `"payload_printable":"..mstshash=hello."`},
		{&dnsRow, testQuery(2), `"dns":{"rrname":"www.shop.example","rrtype":"HTTPS","type":"query"}`},
		{&tls, testHello(1), `"sni":"shop.example"`},
		{&tls, testHello(700), `"ja4":"t13d0105h2_`},
	}
	seen := map[*Protocol]bool{}
	for _, test := range all {
		seen[test.protocol] = true
	}
	for _, k := range Protocols {
		if !seen[k] && slices.Contains(k.Protos, TCP) {
			t.Errorf("%s has no test", k.Name)
		}
	}
	return all
}

// What is read of datagrams counts by a `prove`: a warning says where one is written down.
func TestKindsOfDatagramsSayWhereAProofIs(t *testing.T) {
	for _, k := range Protocols {
		if of := slices.Contains(k.Protos, UDP); of != (k.Proof != "") {
			t.Errorf("%s is read of datagrams: %t, and its proof is %q", k.Name, of, k.Proof)
		}
	}
}

// testQuery is a query with so many bytes in front that say its length.
func testQuery(before int) []byte {
	m := dns.Query(dns.Message{Question: true, Type: 65,
		Name: dnsname.Lower([]byte("\x03wWw\x04shop\x07example"))})
	out := binary.BigEndian.AppendUint32(nil, uint32(len(m)))
	return append(out[4-before:], m...)
}

// testHello is a ClientHello in records of so many bytes, with GREASE, and a key as long as those
// of ML-KEM.
func testHello(each int) []byte {
	within := func(b []byte, bytes int) []byte {
		out := binary.BigEndian.AppendUint32(nil, uint32(len(b)))[4-bytes:]
		return append(out, b...)
	}
	extension := func(typ uint16, body []byte) []byte {
		return append(binary.BigEndian.AppendUint16(nil, typ), within(body, 2)...)
	}
	var extensions []byte
	for _, e := range [][]byte{extension(0x1a1a, nil),
		extension(extServerName, within(append([]byte{0},
			within([]byte("shop.example"), 2)...), 2)),
		extension(extALPN, within([]byte("\x02h2\x08http/1.1"), 2)),
		extension(extGroups, within([]byte{0x2a, 0x2a, 0x11, 0xec, 0, 29}, 2)),
		extension(51, make([]byte, 1216)),
		extension(extVersions, within([]byte{0x3a, 0x3a, 3, 4, 3, 3}, 1))} {
		extensions = append(extensions, e...)
	}
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0)
	body = append(body, within([]byte{0x4a, 0x4a, 0x13, 1}, 2)...)
	body = append(body, 1, 0)
	body = append(body, within(extensions, 2)...)
	message := append([]byte{clientHello}, within(body, 3)...)
	var out []byte
	for len(message) > 0 {
		n := min(each, len(message))
		out = append(out, recordHandshake, 3, 1)
		out = append(out, within(message[:n], 2)...)
		message = message[n:]
	}
	return out
}

func sshHello(version string, lists ...string) []byte {
	body := append([]byte{4, sshKexInit}, make([]byte, 16)...)
	for _, l := range lists {
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(l))), l...)
	}
	body = append(body, make([]byte, 5+4)...)
	out := append([]byte(version), "\r\n"...)
	return append(binary.BigEndian.AppendUint32(out, uint32(len(body))), body...)
}

// FuzzStreams: a parser says the same of whole streams and of bytes, keeps no more than it is
// given, and never fails.
func FuzzStreams(f *testing.F) {
	for _, test := range protocolTests(f) {
		f.Add(test.says)
	}
	f.Add([]byte(" "))
	f.Add([]byte("\x16\x03\x01\x00\x00\x80"))
	f.Fuzz(func(t *testing.T, says []byte) {
		says = says[:min(len(says), Limit)]
		for _, k := range Protocols {
			if !slices.Contains(k.Protos, TCP) {
				continue
			}
			whole, bytes := k.New(TCP), k.New(TCP)
			a, b := More, More
			if len(says) > 0 {
				a = whole.Feed(says)
			}
			for i := 0; i < len(says) && b == More; i++ {
				if b = bytes.Feed(says[i : i+1]); bytes.Held() > i+1 {
					t.Fatalf("%s holds %d bytes of %d", k.Name, bytes.Held(), i+1)
				}
			}
			if a != b || whole.End() != bytes.End() {
				t.Fatalf("%s: %d of the whole, %d of bytes", k.Name, a, b)
			}
			if (a == Done || a == More && whole.End()) && len(whole.Record()) == 0 {
				t.Fatalf("%s: an empty record", k.Name)
			}
		}
	})
}

// TestWhatServersTakeIsRead, though it is not as clients write it: who evades a condition so is
// served. EVE has the host of a request as it is here: the target's before the field's, without its
// port and dots behind it, and an address of IPv6 in brackets.
func TestWhatServersTakeIsRead(t *testing.T) {
	hello := testHello(700)
	empty := []byte{recordHandshake, 3, 1, 0, 0}
	for _, test := range []struct {
		protocol   *Protocol
		says, want string
	}{
		{&http, "GET  /x   HTTP/1.1 \r\n\r\n",
			`{"http_method":"GET","protocol":"HTTP/1.1","url":"/x"}`},
		{&http, "GET /a b HTTP/1.1\r\n\r\n", `"url":"/a b"`},
		{&http, "GET http://u:p@Shop.example:80/x?y HTTP/1.1\r\nHost: other\r\n\r\n",
			`{"hostname":"shop.example","http_method":"GET","protocol":"HTTP/1.1",` +
				`"url":"http://u:p@Shop.example:80/x?y"}`},
		{&http, "GET /http://evil.example/ HTTP/1.1\r\nHost: shop.example\r\n\r\n",
			`"hostname":"shop.example"`},
		{&http, "GET /x?u=a://b HTTP/1.1\r\nHost: shop.example\r\n\r\n",
			`"hostname":"shop.example"`},
		{&http, "CONNECT shop.example:443 HTTP/1.1\r\n\r\n", `"hostname":"shop.example"`},
		{&http, "GET / HTTP/1.1\r\nHost: Shop.example.:80\r\n\r\n", `"hostname":"shop.example"`},
		{&http, "GET / HTTP/1.1\r\nHost: [2001:DB8::1]:80\r\n\r\n", `"hostname":"[2001:db8::1]"`},
		{&http, "GET / HTTP/1.1\r\nHost: [2001:DB8::1]\r\n\r\n", `"hostname":"[2001:db8::1]"`},
		{&http, "GET / HTTP/1.1\r\nUser-Agent:\r\n sqlmap\r\n\t1.8\r\nX: y\r\n z\r\n\r\n",
			`"http_user_agent":"sqlmap 1.8"`},
		{&smtp, "NOOP\r\nrset \r\nEHLO ylmf-pc\r\nQUIT\r\n", `{"helo":"ylmf-pc"}`},
		{&ssh, "SSH-2.0-libssh_0.9 a comment\r\n", `"software_version":"libssh_0.9"`},
		{&ssh, "SSH-2.0-x\rmore\r\n", `"software_version":"x"`},
		{&tls, string(empty) + string(hello), `"sni":"shop.example"`},
		{&tls, string(hello[:705]) + string(empty) + string(empty) + string(hello[705:]),
			`"sni":"shop.example"`},
	} {
		table, _, lines := reads(test.protocol)
		s := segment(test.protocol, 0, []byte(test.says))
		s.Ends = true
		if table.Segment(s); len(*lines) != 1 || !strings.Contains((*lines)[0], test.want) {
			t.Errorf("%q: %q\nhas no %s", test.says, *lines, test.want)
		}
	}
	for protocol, says := range map[*Protocol]string{
		&http: "GET / \r\n\r\n", &smtp: "NOOP\r\nGET / HTTP/1.1\r\n", &tls: "\x16\x03\x01\xff\xff",
	} {
		if a := protocol.New(TCP).Feed([]byte(says)); a != Unknown {
			t.Errorf("%q: answer %d", says, a)
		}
	}
}
