package stream

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// dtlsHello is the body of a ClientHello with a name and a cookie.
func dtlsHello(name, cookie string, random byte) []byte {
	body := append([]byte{0xfe, 0xfd}, bytes.Repeat([]byte{random}, 32)...)
	body = append(body, 0, byte(len(cookie)))
	body = append(body, cookie...)
	body = append(body, 0, 4, 0xc0, 0x2b, 0x1a, 0x1a, 1, 0)
	sni := append([]byte{0, byte(len(name) + 3), 0, 0, byte(len(name))}, name...)
	extensions := append([]byte{0, extServerName, 0, byte(len(sni))}, sni...)
	extensions = append(extensions, 0, extVersions, 0, 5, 4, 0xfe, 0xfd, 0xfe, 0xfc)
	body = binary.BigEndian.AppendUint16(body, uint16(len(extensions)))
	return append(body, extensions...)
}

// dtlsFragment is a record with a part of a message of a type and a number.
func dtlsFragment(typ, number byte, body []byte, from, to int) []byte {
	three := func(n int) []byte { return []byte{byte(n >> 16), byte(n >> 8), byte(n)} }
	message := slices.Concat([]byte{typ}, three(len(body)), []byte{0, number}, three(from),
		three(to-from), body[from:to])
	record := []byte{recordHandshake, 0xfe, 0xff, 0, 0, 0, 0, 0, 0, 0, 0}
	return append(binary.BigEndian.AppendUint16(record, uint16(len(message))), message...)
}

// TestAHelloOfDTLSInAnyOrder of its fragments: in records, in datagrams, some twice, and once more
// with the cookie of the server.
func TestAHelloOfDTLSInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		var datagrams [][]byte
		for number, cookie := range []string{"", "the cookie"} {
			body := dtlsHello("shop.example", cookie, 7)
			var parts [][]byte
			for at := 0; at < len(body); {
				n := min(len(body)-at, 1+r.IntN(len(body)))
				parts = append(parts, dtlsFragment(clientHello, byte(number), body, at, at+n))
				if r.IntN(4) == 0 {
					parts = append(parts, parts[r.IntN(len(parts))])
				}
				at += n
			}
			r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
			for i, part := range parts {
				if i > 0 && (r.IntN(2) == 0 || len(datagrams) == MostDatagrams-1) {
					part = append(datagrams[len(datagrams)-1], part...)
					datagrams = datagrams[:len(datagrams)-1]
				}
				datagrams = append(datagrams, part)
			}
		}
		lines, reader, _ := says(&dtls, datagrams, Proven)
		if len(lines) != 1 || !strings.Contains(lines[0], `"sni":"shop.example"`) ||
			!strings.Contains(lines[0], `"ja4":"dd3d010200_`) ||
			!strings.Contains(lines[0], `"event_type":"dtls"`) {
			t.Fatalf("%d datagrams: %q, %d unknown", len(datagrams), lines, reader.Unknown)
		}
	}
}

// TestNothingIsKnownOfDTLSThatTwoMaySay: as of QUIC. A server that keeps nothing of the first hello
// takes what the second says, so both have to say the same.
func TestNothingIsKnownOfDTLSThatTwoMaySay(t *testing.T) {
	whole := func(number byte, body []byte) []byte {
		return dtlsFragment(clientHello, number, body, 0, len(body))
	}
	first := whole(0, dtlsHello("shop.example", "", 7))
	second := whole(1, dtlsHello("shop.example", "cookie", 7))
	evil := dtlsHello("evil.example", "", 8)
	named, other := dtlsHello("evil.example", "", 7), dtlsHello("shop.example", "", 8)
	half := dtlsHello("shop.example", "", 7)
	key := dtlsFragment(16, 2, make([]byte, 40), 0, 40)
	encrypted := append([]byte{recordHandshake, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4},
		"abcd"...)
	unified := append([]byte{0x2e, 1, 2, 0, 16}, make([]byte, 16)...) // RFC 9147, section 4
	alert := []byte{21, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 100}
	long := []byte{recordHandshake, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 13,
		clientHello, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 1, 'x'}
	for name, c := range map[string]struct {
		datagrams [][]byte
		records   int
		unknown   uint64
	}{
		"a client":                {[][]byte{first, second, key, encrypted}, 1, 0},
		"without a cookie":        {[][]byte{first, key, encrypted, unified}, 1, 0},
		"twice":                   {[][]byte{first, first, second, second}, 1, 0},
		"two in a datagram":       {[][]byte{append(bytes.Clone(first), key...), second}, 1, 0},
		"another's first":         {[][]byte{whole(0, evil), first}, 0, 1},
		"another's second":        {[][]byte{first, whole(1, evil)}, 0, 1},
		"another name behind it":  {[][]byte{first, whole(1, named)}, 0, 1},
		"another random":          {[][]byte{first, whole(1, other)}, 0, 1},
		"an alert in front":       {[][]byte{append(bytes.Clone(alert), first...), second}, 1, 0},
		"another behind an alert": {[][]byte{first, append(alert, whole(1, named)...)}, 0, 1},
		"another behind what is encrypted": {[][]byte{first,
			append(bytes.Clone(encrypted), whole(1, named)...)}, 0, 1},
		"one lost":                  {[][]byte{first, nil, second}, 0, 1},
		"half":                      {[][]byte{dtlsFragment(clientHello, 0, half, 0, 40)}, 0, 1},
		"a fragment past the end":   {[][]byte{long}, 0, 1},
		"of another length":         {[][]byte{first, whole(0, half[:50])}, 0, 1},
		"what no hello begins":      {[][]byte{key, first}, 0, 1},
		"what is encrypted":         {[][]byte{encrypted}, 0, 1},
		"a hello that is not whole": {[][]byte{whole(0, half[:50])}, 0, 1},
		"a late number":             {[][]byte{whole(3, half)}, 0, 1},
		"QUIC":                      {[][]byte{append([]byte{0xc0}, make([]byte, 1200)...)}, 0, 1},
	} {
		lines, r, _ := says(&dtls, c.datagrams, Proven)
		if len(lines) != c.records || r.Unknown != c.unknown {
			t.Errorf("%s: %d records, %d unknown: %q", name, len(lines), r.Unknown, lines)
		}
	}
}

// TestAFragmentOfDTLSIsNotTheWholeAgain: each fragment joined all that had come, so that a datagram
// of a hundred copied a megabyte.
func TestAFragmentOfDTLSIsNotTheWholeAgain(t *testing.T) {
	body := make([]byte, 12_000)
	p := &dtlsParser{}
	for at := 0; at < len(body)-1000; at += 1000 {
		if a := p.Feed(dtlsFragment(clientHello, 0, body, at, at+1000)); a != More {
			t.Fatalf("answer %d", a)
		}
	}
	var many []byte
	for range 50 {
		many = append(many, dtlsFragment(clientHello, 0, body, 0, 1)...)
	}
	if n := testing.AllocsPerRun(10, func() { p.Feed(many) }); n > 10 {
		t.Errorf("%.0f allocations for 50 fragments", n)
	}
}

// TestDTLSOfCaptures: JA4 is as nDPI has it for its capture, but for the version of a client that
// offers DTLS 1.3 alone: FoxIO takes it from the extension.
func TestDTLSOfCaptures(t *testing.T) {
	var got []string
	here := dtls
	here.Ports = []uint16{11111, 56515}
	for _, r := range capture(t, filepath.Join(data(t), "protocols/dtls.pcap"), &here) {
		got = append(got, r["dtls"].(map[string]any)["ja4"].(string))
	}
	slices.Sort(got)
	want := []string{"dd2i120700_7c0e62f61317_d9dd6182da81", "dd3i270600_991e33d7eb74_10f9deb96590"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestAHelloOfSSL2 was unknown, and OpenSSL 3.0 serves who sends one, at security level 0: a client
// so evaded conditions.
func TestAHelloOfSSL2(t *testing.T) {
	hello := func(version uint16, ciphers string) []byte {
		body := binary.BigEndian.AppendUint16([]byte{clientHello}, version)
		body = append(body, 0, byte(len(ciphers)), 0, 0, 0, 16)
		body = append(append(body, ciphers...), make([]byte, 16)...)
		return append([]byte{0x80, byte(len(body))}, body...)
	}
	const two = "\x01\x00\x80\x00\x00\x2f\x00\x00\x35"
	for version, want := range map[uint16]string{0x0303: "t12i020000_", 2: "t" + "s2i020000_"} {
		table, _, lines := reads(&tls)
		s := segment(&tls, 0, hello(version, two))
		s.Ends = true
		if table.Segment(s); len(*lines) != 1 || !strings.Contains((*lines)[0], want) ||
			strings.Contains((*lines)[0], `"sni"`) {
			t.Errorf("version %x: %q", version, *lines)
		}
	}
	for what, says := range map[string][]byte{"an unknown version": hello(0x0505, two),
		"no ciphers": hello(0x0303, ""), "half a cipher": hello(0x0303, two[:8]),
		"another message": {0x80, 9, 2, 3, 3, 0, 0, 0, 0, 0, 0}, "too short": {0x80, 2, 1, 3},
		"behind a record without a byte": append([]byte{recordHandshake, 3, 1, 0, 0},
			hello(0x0303, two)...)} {
		p, a := &tlsParser{}, More
		for i := 0; i < len(says) && a == More; i++ {
			a = p.Feed(says[i : i+1])
		}
		if whole := (&tlsParser{}).Feed(says); a != Unknown || whole != a {
			t.Errorf("%s: answers %d and, of the whole, %d", what, a, whole)
		}
	}
}
