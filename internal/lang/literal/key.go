package literal

import (
	"strconv"
	"strings"

	"levee/internal/lang/diag"
)

// KeyHint says what to write in the place of a word that is no key of a limit.
func KeyHint(word string) string {
	switch strings.ToLower(word) {
	case "src", "saddr", "from", "srcip", "ip", "host", "address", "client":
		return diag.DidYouMean("source")
	case "dst", "daddr", "to", "dstip", "dest":
		return diag.DidYouMean("destination")
	case "dport", "dstport", "destination-port":
		return diag.DidYouMean("port")
	case "sport", "srcport", "source-port":
		return diag.DidYouMean("from port")
	case "connection", "5-tuple", "five-tuple", "conn":
		return diag.DidYouMean("flow")
	}
	keys := []string{"source", "destination", "port", "flow", "dns-name"}
	if m := diag.Nearest(word, keys); m != "" {
		return diag.DidYouMean(m)
	}
	return "keys are source, destination, source/24,56, from port, port, flow and dns-name/2."
}

// PrefixBits reads prefix lengths of IPv4 and IPv6: `24,56`, or `24` alone, which means 32 bits
// more for IPv6. what is the word before them, for errors.
func PrefixBits(text, what string) (bits4, bits6 int, p diag.Problem) {
	four, six, both := strings.Cut(text, ",")
	hint := "write " + what + "/24 or " + what + "/24,56: bits of IPv4, then of IPv6 addresses."
	n, err := strconv.ParseUint(four, 10, 8)
	if err != nil || n < 1 || n > 32 {
		return 0, 0, diag.Problemf(hint, "%q is not a prefix length from 1 to 32", diag.Clip(four))
	}
	bits4, bits6 = int(n), int(n)+32
	if !both {
		return bits4, bits6, p
	}
	if n, err = strconv.ParseUint(six, 10, 8); err != nil || n < 1 || n > 128 {
		return 0, 0, diag.Problemf(hint, "%q is not a prefix length from 1 to 128", diag.Clip(six))
	}
	return bits4, int(n), p
}
