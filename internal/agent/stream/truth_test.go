package stream

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"levee/internal/packet"
)

// data returns the directory of captures of others, if they are at hand: see
// docs/explanation/benchmarks.md.
func data(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("LEVEE_DATA")
	if dir == "" {
		dir = "../../../../shared/data"
	}
	if _, err := os.Stat(filepath.Join(dir, "streams")); err != nil {
		t.Skip("no captures of streams at hand")
	}
	return dir
}

// capture gives all clients of a file to a table, of which each first segment begins a flow.
func capture(t *testing.T, file string, protocols ...*Protocol) (records []map[string]any) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := packet.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	table := &Table{Proves: func(*Key, uint32, uint32) Proof { return Proven }}
	for _, k := range protocols {
		table.Readers = append(table.Readers, &Reader{Protocol: k,
			Wants: func(_ uint8, _, dst netip.AddrPort) bool {
				const push = 5228 // of Google, over TLS
				const tests = 4443
				return slices.Contains(append(k.Ports, push, tests), dst.Port())
			},
			Line: func(line []byte) {
				var record map[string]any
				if err := json.Unmarshal(line, &record); err != nil {
					t.Fatal(err)
				}
				records = append(records, record)
			}})
	}
	first := map[Key]uint32{}
	var p packet.Packet
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		s, ok := SegmentOf(packet.Ethernet, rec.Data, &p)
		if !ok {
			continue
		}
		k := Key{Src: s.Src, Dst: s.Dst, Proto: s.Proto}
		if s.Proto == UDP {
			if s.Seq = first[k]; len(s.Data) > 0 && (s.Data[0]&0x80 != 0 ||
				s.Data[0] == recordHandshake || s.Dst.Port() == 53) {
				first[k]++
				s.At = rec.Time
				table.Segment(&s)
			}
			table.Prove()
			continue
		}
		if p.Flags&packet.SYN != 0 {
			first[k] = s.Seq + 1
			continue
		}
		if s.First, ok = first[k]; !ok {
			first[k], s.First = s.Seq, s.Seq
		}
		s.At, s.Proven = rec.Time, true
		if len(s.Data) > 0 || s.Ends {
			table.Segment(&s)
		}
		table.Expire(rec.Time)
	}
	table.Expire(begun.AddDate(100, 0, 0))
	return records
}

// TestPublishedFingerprints: each JA4 that its authors publish for the captures at hand, also of
// the second ClientHello of a stream.
func TestPublishedFingerprints(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(data(t), "streams", "*.json"))
	if err != nil || len(files) == 0 {
		t.Skip("no captures with fingerprints at hand")
	}
	published := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var want []map[string]any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		second := tls
		second.New = func(uint8) Parser { return &again{} }
		for name, protocol := range map[string]*Protocol{"JA4.1": &tls, "JA4.2": &second} {
			got := map[string]map[string]any{}
			for _, r := range capture(t, file[:len(file)-len(".json")], protocol) {
				got[r["src_ip"].(string)+" "+strconv.Itoa(int(r["src_port"].(float64)))] =
					r["tls"].(map[string]any)
			}
			for _, w := range want {
				ja4, is := w[name].(string)
				if !is {
					continue
				}
				published++
				of := got[w["src"].(string)+" "+w["srcport"].(string)]
				if of["ja4"] != ja4 || w["domain"] != nil && of["sni"] != w["domain"] {
					t.Errorf("%s: %v\ngot %v", filepath.Base(file), w, of)
				}
			}
		}
	}
	t.Logf("%d fingerprints", published)
}

// TestClientsOfCaptures: what others have recorded is read; HASSH is as nDPI has it for its
// capture.
func TestClientsOfCaptures(t *testing.T) {
	for file, hassh := range map[string]string{
		"streams/ssh2.pcapng": "06046964c022c6407d15a27b12a6a4fb",
		"protocols/ssh.pcap":  "21b457a327ce7a2d4fce5ef2c42400bd",
	} {
		records := capture(t, filepath.Join(data(t), file), &ssh)
		if len(records) == 0 {
			t.Errorf("%s: no record", file)
		}
		for _, r := range records {
			client, _ := r["ssh"].(map[string]any)["client"].(map[string]any)
			if of, _ := client["hassh"].(map[string]any); of["hash"] != hassh {
				t.Errorf("%s: %v", file, r)
			}
		}
	}
}

// TestJA3AsItsAuthorsHaveIt: the examples of github.com/salesforce/ja3.
func TestJA3AsItsAuthorsHaveIt(t *testing.T) {
	for hash, h := range map[string]*hello{
		"ada70206e40642a3e4461f35503241d5": {version: 769, ciphers: []uint16{47, 53, 5, 10, 49161,
			49162, 49171, 49172, 50, 56, 19, 4}, extensions: []uint16{0, 10, 11},
			groups: []uint16{23, 24, 25}, points: []byte{0}},
		"de350869b8c85de67a350c8d186f11e6": {version: 769, ciphers: []uint16{4, 5, 10, 9, 100, 98,
			3, 6, 19, 18, 99}},
	} {
		if got := h.ja3(); md5Hex(got) != hash {
			t.Errorf("%s: %s", hash, got)
		}
	}
}

// TestJA4AsItsAuthorsDescribeIt: the examples of technical_details/JA4.md of
// github.com/FoxIO-LLC/ja4, each value of ALPN, and the values of what is not there. The third is
// that of their capture sigalg-grease, with GREASE in front of its signature algorithms.
func TestJA4AsItsAuthorsDescribeIt(t *testing.T) {
	ciphers := []uint16{0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8,
		0xc013, 0xc014, 0x009c, 0x009d, 0x002f, 0x0035}
	extensions := []uint16{0x001b, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002d, 0x000d, 0x0005,
		0x0023, 0x0012, 0x002b, 0xff01, 0x000b, 0x000a, 0x0015}
	algorithms := []uint16{0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601}
	example := hello{version: 0x0303, versions: []uint16{0x0303, 0x0304}, named: true,
		ciphers: ciphers, extensions: extensions, algorithms: algorithms, alpns: []string{"h2"}}
	without := example
	without.algorithms = nil
	other := example
	other.extensions = []uint16{0xfe0d, 0x0010, 0x0017, 0x0033, 0x44cd, 0xff01, 0x000a, 0x000d,
		0x0023, 0x002b, 0x000b, 0xca34, 0x002d, 0x0000, 0x0005, 0x001b, 0x0012}
	other.algorithms = (&cutter{b: []byte("\x3a\x3a\x09\x04\x09\x05\x09\x06\x04\x03\x08\x04" +
		"\x04\x01\x05\x03\x08\x05\x05\x01\x08\x06\x06\x01")}).numbers()
	for want, h := range map[string]*hello{
		"t13d1516h2_8daaf6152771_e5627efa2ab1": &example,
		"t13d1516h2_8daaf6152771_6d807ffa2a79": &without,
		"t13d1517h2_8daaf6152771_cb7bf5808d99": &other,
		"t12i000000_000000000000_000000000000": {version: 0x0303},
		"t00d000200_000000000000_000000000000": {version: 0x0305, named: true,
			extensions: []uint16{0, 16}},
		"t12i999900_": {version: 0x0303, ciphers: upTo(100), extensions: upTo(100)},
	} {
		if got := h.ja4('t'); !strings.HasPrefix(got, want) {
			t.Errorf("%+v: %s, not %s", h, got, want)
		}
	}
	for alpn, want := range map[string]string{"": "00", "h2": "h2", "http/1.1": "h1", "x": "xx",
		"\xab": "ab", "\xab\xcd": "ad", "\x20\x61": "21", "\x30\xab": "3b",
		"\x30\x31\xab\xcd": "3d", "\x30\xab\xcd\x31": "01",
		// Of their capture tls-non-ascii-alpn, as Wireshark 4.2 has it.
		"\xba\xad": "bd"} {
		if got := (&hello{alpns: []string{alpn, "h3"}}).ja4ALPN(); got != want {
			t.Errorf("ALPN %q: %s, not %s", alpn, got, want)
		}
	}
}

// upTo are the numbers from 1 on.
func upTo(n uint16) (all []uint16) {
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

// TestASecondExtensionOfAKindSaysNothing: servers refuse such a hello, and Suricata reads the
// first.
func TestASecondExtensionOfAKindSaysNothing(t *testing.T) {
	body := testHello(1 << 14)[recordHeader+helloHeader:]
	name := []byte("\x00\x00\x00\x08\x00\x06\x00\x00\x03a.b")
	at := bytes.Index(body, []byte{0x1a, 0x1a}) - 2 // where their length is
	twice := slices.Concat(body[:at], binary.BigEndian.AppendUint16(nil,
		uint16(len(body)-at-2+len(name))), body[at+2:], name)
	h, ok := readHello(twice, false)
	if !ok || h.sni != "shop.example" || !strings.HasPrefix(h.ja4('t'), "t13d0106h2_") {
		t.Errorf("%v, %+v", ok, h)
	}
}

// TestDatagramsOfCaptures: names and JA3 of QUIC are as tshark 4.0 has them. The JA4 of Chrome is
// that which FoxIO has published for another of its captures.
func TestDatagramsOfCaptures(t *testing.T) {
	for file, want := range map[string]string{
		"protocols/quic-29.pcap": "ff00001d localhost b3e43d74f4b790abca2f5fe7dd06e7cf",
		"protocols/quic-34.pcap": "ff000022 <nil> 0299b052ace53a14c3a04aceb5efd247",
		"protocols/quic_frags_ch_in_multiple_packets.pcapng": "1 <nil> " +
			"0299b052ace53a14c3a04aceb5efd247",
		"streams/quic-tls-handshake.pcapng": "1 www.google.com 0cda1bd7f270e894ed5de2af2f06cb80 " +
			"q13d0310h3_55b375c5d22e_cd85d2d88918",
	} {
		records := capture(t, filepath.Join(data(t), file), &quic)
		if len(records) != 1 {
			t.Errorf("%s: %d records", file, len(records))
			continue
		}
		of := records[0]["quic"].(map[string]any)
		got := fmt.Sprint(of["version"], " ", of["sni"], " ", of["ja3"].(map[string]any)["hash"],
			" ", of["ja4"])
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", file, got)
		}
	}
	for file, want := range map[string]string{
		"protocols/dns.pcap":                 "www.example.com AAAA e7.whatsapp.net A ",
		"protocols/dns_long_domainname.pcap": "gmr02c.16.0.fhkfhsdkfhsk.tunnel.example.com A ",
	} {
		got := ""
		for _, r := range capture(t, filepath.Join(data(t), file), &dnsRow) {
			of := r["dns"].(map[string]any)
			got += fmt.Sprint(of["rrname"], " ", of["rrtype"], " ")
		}
		if got != want {
			t.Errorf("%s: %s", file, got)
		}
	}
}

// again reads a second ClientHello, which answers a HelloRetryRequest, behind the first.
type again struct {
	tlsParser
	first bool
	skip  int
}

func (p *again) Feed(b []byte) Answer {
	const changeCipherSpec, itsBytes = 20, 6 // of RFC 8446, appendix D.4
	for _, c := range b {
		switch {
		case p.skip > 0:
			p.skip--
			continue
		case p.first && len(p.head)+p.left+len(p.hello) == 0 && c == changeCipherSpec:
			p.skip = itsBytes - 1
			continue
		}
		if a := p.tlsParser.Feed([]byte{c}); a == Done && !p.first {
			p.tlsParser, p.first = tlsParser{}, true
		} else if a != More {
			return a
		}
	}
	return More
}
