package importer_test

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"levee/internal/lang/importer"
	"levee/internal/packet"
)

// TestBytesByTheirPlace: `@th,64,16` and its like left their rules out.
func TestBytesByTheirPlace(t *testing.T) {
	raw := func(base, place string) string {
		return `{"payload": {"base": "` + base + `", ` + place + `}}`
	}
	udp := match("==", `{"meta": {"key": "l4proto"}}`, `"udp"`) + `, `
	tcp := match("==", `{"meta": {"key": "l4proto"}}`, `"tcp"`) + `, `
	four := match("==", `{"meta": {"key": "nfproto"}}`, `"ipv4"`) + `, `
	six := match("==", `{"meta": {"key": "nfproto"}}`, `"ipv6"`) + `, `
	bytes := raw("th", `"offset": 64, "len": 16`)
	opcode := `{"&": [` + raw("th", `"offset": 80, "len": 8`) + `, 120]}`
	for _, tt := range []struct{ expr, want string }{
		{udp + match("==", bytes, "258"), "drop udp payload at 0 0102"},
		{udp + match("!=", bytes, "258"), "drop udp not payload at 0 0102"},
		{udp + match("==", bytes, `{"set": [1, 515]}`), "drop udp payload at 0 0001\n" +
			"drop udp payload at 0 0203"},
		{udp + match("==", opcode, "40"), "drop udp payload at 2 28/78"},
		{udp + match("==", raw("th", `"offset": 87, "len": 1`), "1"),
			"drop udp payload at 2 01/01"},
		{udp + match(">", raw("th", `"offset": 160, "len": 8`), "63"),
			"drop udp payload at 12 40/c0\ndrop udp payload at 12 80/80"},
		{udp + match("==", raw("ih", `"offset": 0, "len": 32`), "305419896"),
			"drop udp payload at 0 12345678"},
		{udp + match("==", raw("th", `"offset": 160, "len": 104`),
			"571869637119735265651843039597"), "drop udp payload at 12 " +
			"0737cf7a0b2f8a2d91ba42816d"},
		{udp + match("==", bytes, "258") + ", " + match("==", raw("th",
			`"offset": 64, "len": 32`), "16909060"), "drop udp payload at 0 01020304"},
		{udp + match("==", bytes, "258") + ", " + match("==", raw("th",
			`"offset": 64, "len": 8`), "2"), ""},
		{tcp + match("==", raw("th", `"offset": 16, "len": 16`), "22"), "drop tcp port 22"},
		{four + match("==", raw("nh", `"offset": 72, "len": 8`), "17"), "drop ipv4 udp"},
		{four + match("==", raw("nh", `"offset": 96, "len": 32`), "3221225985"),
			"drop from 192.0.2.1"},
		{six + match("!=", raw("nh", `"offset": 56, "len": 8`), "255"), "drop ipv6 ttl 0-254"},
		{match("==", raw("ll", `"offset": 48, "len": 48`), "2199023255553"),
			"drop ether from 02:00:00:00:00:01 from any"},
		{match("==", payload("ip", "version"), "4"), "drop ipv4"},
	} {
		text, rep := nftImport(t, nftInput(tt.expr+dropped), importer.Rulesets{})
		want := tt.want + "\ndefault pass"
		if got := rulesOf(text); got != strings.TrimPrefix(want, "\n") || rep.Fates.LeftOut > 0 {
			t.Errorf("%s: %s\n%q", tt.expr, rep.Fates, got)
		}
	}
	for expr, say := range map[string]string{
		match("==", bytes, "1"): "write `meta l4proto udp`",
		tcp + match("==", raw("ih", `"offset": 0, "len": 8`), "1"):     "UDP alone",
		match("==", raw("nh", `"offset": 72, "len": 8`), "6"):          "meta nfproto ipv4",
		udp + match("==", raw("th", `"offset": 20000, "len": 8`), "1"): "further behind",
		udp + match("==", raw("th", `"offset": 64, "len": 4000`), "1"): "by their offset",
		udp + match("==", bytes, "65536"):                              "cannot have",
		udp + match(">", bytes, "65535"):                               "cannot have",
		udp + match("==", bytes, `"x"`):                                "is not a number",
		udp + match("!=", bytes, `{"set": [1`+strings.Repeat(", 2", 16)+`]}`): "more " +
			"than 16",
	} {
		_, rep := nftImport(t, nftInput(expr+dropped), importer.Rulesets{})
		remarksHave(t, rep, "left out, widens|"+say)
	}
}

// TestRangesOfBytes holds a range of bytes to each of their values.
func TestRangesOfBytes(t *testing.T) {
	text, _ := nftImport(t, nftInput(match("==", `{"meta": {"key": "l4proto"}}`, `"udp"`)+`, `+
		match("==", `{"payload": {"base": "th", "offset": 68, "len": 4}}`,
			`{"range": [3, 12]}`)+dropped), importer.Rulesets{})
	for v := range 16 {
		f, err := packet.Build(packet.Spec{From: netip.MustParseAddr("192.0.2.1"),
			To: netip.MustParseAddr("198.51.100.1"), Proto: new(uint8(17)),
			FromPort: new(uint16(5)), ToPort: new(uint16(5)), Payload: []byte{0xa0 | byte(v)}})
		if err != nil {
			t.Fatal(err)
		}
		if got := passes(t, text, f); got != (v < 3 || v > 12) {
			t.Errorf("%d passes: %v: %s\n%s", v, got, hex.EncodeToString(f), text)
		}
	}
}
