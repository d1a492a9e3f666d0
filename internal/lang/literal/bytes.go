package literal

import (
	"encoding/hex"
	"strconv"
	"strings"

	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
)

// maxPayload is the end of the bytes that a policy may name by their offset: the payload of the
// longest datagram in IPv4 at an MTU of 1500.
const maxPayload = 1472

// Bytes reads an offset and, behind a blank, bytes in hexadecimal with or without a mask.
func Bytes(text string) (*policy.Bytes, diag.Problem) {
	at, digits, _ := strings.Cut(text, " ")
	value, mask, masked := strings.Cut(digits, "/")
	b := new(policy.Bytes)
	var p diag.Problem
	if b.Value, p = parseHex(value); p.Found() {
		return nil, p
	}
	b.Mask = make([]byte, len(b.Value))
	for i := range b.Mask {
		b.Mask[i] = 0xff
	}
	if masked {
		if b.Mask, p = parseHex(mask); p.Found() {
			return nil, p
		}
	}
	if len(b.Mask) != len(b.Value) {
		return nil, diag.Problemf("a mask has a bit for each bit of the bytes: 4c00/ff00.",
			"a mask of length %d for bytes of length %d", len(b.Mask), len(b.Value))
	}
	for i, m := range b.Mask {
		if b.Value[i]&^m != 0 {
			return nil, diag.Problemf("set it in the mask, or clear it in the bytes.",
				"byte %d has a bit that the mask leaves out, so nothing would match", i)
		}
	}
	if b.At, p = Offset(at, len(b.Value)); p.Found() {
		return nil, p
	}
	return b, p
}

// Offset reads where so many bytes of a payload begin, behind the UDP header.
func Offset(text string, bytes int) (int, diag.Problem) {
	at, err := strconv.ParseUint(text, 10, 32)
	if err != nil || int(at)+bytes > maxPayload {
		return 0, diag.Problemf("count from the end of the UDP header; the bytes may reach to "+
			strconv.Itoa(maxPayload)+".", "offset %s is too large", diag.Clip(text))
	}
	return int(at), diag.Problem{}
}

func parseHex(digits string) ([]byte, diag.Problem) {
	b, err := hex.DecodeString(strings.TrimPrefix(digits, "0x"))
	switch {
	case err != nil || len(b) == 0:
		return nil, diag.Problemf("write two hexadecimal digits for each byte: 0001 or 4c00/ff00.",
			"%q is not bytes in hexadecimal", diag.Clip(digits))
	case len(b) > policy.MaxBytes:
		return nil, diag.Problemf("compare the bytes that tell the traffic apart.",
			"%d bytes: at most %d are compared", len(b), policy.MaxBytes)
	}
	return b, diag.Problem{}
}
