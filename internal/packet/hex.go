package packet

import (
	"errors"
	"fmt"
	"strings"
)

// ParseHex reads a frame written as hex digits, as people paste it: white space, newlines, colons
// and dashes between the digits are free, and so is 0x in front of a group. A line that begins
// with an offset ("0x0010:" or "00000010:") is one of `tcpdump -xx` or `xxd`: the offset is left
// out, and so is the text column behind two spaces. The error says which character is wrong.
func ParseHex(s string) ([]byte, error) {
	var b []byte
	half := -1 // the first digit of a byte
	for n, line := range strings.Split(s, "\n") {
		start, rest := withoutOffset(line)
		for i := 0; i < len(rest); i++ {
			c := rest[i]
			if strings.IndexByte(" \t\r:-", c) >= 0 {
				continue
			}
			if c == '0' && half < 0 && i+1 < len(rest) && rest[i+1]|0x20 == 'x' {
				i++
				continue
			}
			d := strings.IndexByte("0123456789abcdef", c|0x20)
			if d < 0 || c < '0' {
				return nil, fmt.Errorf("packet in hex: %q in line %d, column %d, is no hex digit",
					rune(c), n+1, start+i+1)
			}
			if half < 0 {
				half = d
				continue
			}
			if len(b) == maxCaptured {
				return nil, fmt.Errorf("packet in hex: more than %d bytes", maxCaptured)
			}
			b = append(b, byte(half<<4|d))
			half = -1
		}
	}
	if half >= 0 {
		return nil, fmt.Errorf("packet in hex: an odd number of digits, one is missing behind "+
			"byte %d", len(b))
	}
	if len(b) == 0 {
		return nil, errors.New("packet in hex: no digits")
	}
	return b, nil
}

// withoutOffset cuts the offset of a dump line, and the text behind its digits; start is where in
// the line the rest begins. The text stands behind two spaces, which the digits of tcpdump and xxd
// never have between them. A colon with no space behind it separates bytes, and is no offset's.
func withoutOffset(line string) (start int, rest string) {
	trimmed := strings.TrimLeft(line, " \t")
	offset, rest, found := strings.Cut(trimmed, ": ")
	digits := strings.TrimPrefix(offset, "0x")
	if !found || len(digits) < 4 || strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
		return 0, line
	}
	rest = strings.TrimLeft(rest, " \t")
	start = len(line) - len(rest)
	rest, _, _ = strings.Cut(rest, "  ")
	return start, rest
}
