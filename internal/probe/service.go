package probe

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/diag"
	"levee/internal/packet"
)

// Service is a port of TCP or UDP.
type Service struct {
	Proto uint8
	Port  uint16
}

func (s Service) String() string { return fmt.Sprintf("%s %d", protoName(s.Proto), s.Port) }

func protoName(proto uint8) string {
	switch proto {
	case packet.ProtoTCP:
		return "tcp"
	case packet.ProtoUDP:
		return "udp"
	case packet.ProtoICMP:
		return "icmp"
	case packet.ProtoICMP6:
		return "icmp6"
	}
	return fmt.Sprintf("proto %d", proto)
}

// ParseServices reads ports and ranges of ports, 22 or 8000-8099.
func ParseServices(proto uint8, words []string) (out []Service, err error) {
	for _, w := range words {
		first, last, ranged := strings.Cut(w, "-")
		lo, err := parsePort(first)
		hi := lo
		if err == nil && ranged {
			hi, err = parsePort(last)
		}
		switch {
		case err != nil:
			return nil, err
		case lo > hi:
			return nil, fmt.Errorf("%s is a range that ends before it begins", w)
		}
		for p := int(lo); p <= int(hi); p++ {
			out = append(out, Service{proto, uint16(p)})
		}
	}
	slices.SortFunc(out, compareServices)
	return slices.Compact(out), nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%s is no port: write 22, or 8000-8099", diag.Quoted(text))
	}
	return uint16(n), nil
}

func compareServices(a, b Service) int {
	return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
}
