package policy

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// MaxBytes is how many bytes a term on the payload may compare.
const MaxBytes = 16

// maxLooks is how many terms on the payload a policy may have: each is code of its own, and the
// kernel's verifier takes a million instructions.
const maxLooks = 1024

// maxPayload is the end of the bytes that such a term may compare: the payload of the longest
// datagram in IPv4 at an MTU of 1500.
const maxPayload = 1472

// parseBytes reads an offset and, behind a blank, bytes in hexadecimal with or without a mask.
func parseBytes(text string) (*Bytes, problem) {
	at, digits, _ := strings.Cut(text, " ")
	value, mask, masked := strings.Cut(digits, "/")
	b := new(Bytes)
	var p problem
	if b.Value, p = parseHex(value); p.found() {
		return nil, p
	}
	b.Mask = make([]byte, len(b.Value))
	for i := range b.Mask {
		b.Mask[i] = 0xff
	}
	if masked {
		if b.Mask, p = parseHex(mask); p.found() {
			return nil, p
		}
	}
	if len(b.Mask) != len(b.Value) {
		return nil, problemf("a mask has a bit for each bit of the bytes: 4c00/ff00.",
			"a mask of length %d for bytes of length %d", len(b.Mask), len(b.Value))
	}
	for i, m := range b.Mask {
		if b.Value[i]&^m != 0 {
			return nil, problemf("set it in the mask, or clear it in the bytes.",
				"byte %d has a bit that the mask leaves out, so nothing would match", i)
		}
	}
	n, err := strconv.Atoi(at)
	if err != nil || n+len(b.Value) > maxPayload {
		return nil, problemf("count from the end of the UDP header; the bytes may reach to "+
			strconv.Itoa(maxPayload)+".", "offset %s is too large", short(at))
	}
	b.At = n
	return b, problem{}
}

func parseHex(digits string) ([]byte, problem) {
	b, err := hex.DecodeString(strings.TrimPrefix(digits, "0x"))
	switch {
	case err != nil || len(b) == 0:
		return nil, problemf("write two hexadecimal digits for each byte: 0001 or 4c00/ff00.",
			"%q is not bytes in hexadecimal", short(digits))
	case len(b) > MaxBytes:
		return nil, problemf("compare the bytes that tell the traffic apart.",
			"%d bytes: at most %d are compared", len(b), MaxBytes)
	}
	return b, problem{}
}
