package flow

import (
	"fmt"
	"sync"

	"levee/internal/filter/assembler"
)

// Errors returns the types of ICMP errors, which quote the packet that caused them: unreachable,
// time exceeded and parameter problem (RFC 792), of ICMPv6 also packet too big (RFC 4443). A source
// quench is void (RFC 6633), and a redirect is no error.
func Errors(six bool) []uint8 {
	if six {
		return []uint8{1, 2, 3, 4}
	}
	return []uint8{3, 11, 12}
}

// EchoReply returns the type of ICMP that answers an echo request.
func EchoReply(six bool) uint8 {
	if six {
		return 129
	}
	return 0
}

// Asked returns the types of ICMP that are looked up: errors and echo replies.
func Asked(six bool) []uint8 { return append(Errors(six), EchoReply(six)) }

// MaxQuoteInstructions limits the instructions of the functions that look into errors.
const MaxQuoteInstructions = 1_000

// QuoteLabel returns the function that says whether the packet that an ICMP error quotes belongs to
// a connection. It is given the context, the offset of the ICMP header, the number of bytes from
// that offset, and the destination of the error, in one word or two. It returns Known or Unknown,
// and changes nothing.
func QuoteLabel(six bool) string {
	if six {
		return "flow_quote6"
	}
	return "flow_quote4"
}

var loadQuotes = sync.OnceValues(loadQuote)

// EmitQuotes emits the functions that are called, for programs at tc or at XDP, for packets in one
// buffer or several.
func (r Room) EmitQuotes(b *assembler.Builder, context assembler.Param, tcx, frags bool) error {
	all, err := loadQuotes()
	if err != nil {
		return fmt.Errorf("read the functions that look into ICMP errors: %w", err)
	}
	kind, entry := "xdp", quoteProgEntryXdp
	switch {
	case tcx:
		kind, entry = "tcx", quoteProgEntryTcx
	case frags:
		kind, entry = "xdp_frags", quoteProgEntryXdpFrags
	}
	for _, six := range []bool{false, true} {
		label := QuoteLabel(six)
		if !b.Referenced(label) {
			continue
		}
		name, words := "quote4_", []assembler.Param{assembler.Number("dst")}
		if six {
			name = "quote6_"
			words = []assembler.Param{assembler.Number("dst_hi"), assembler.Number("dst_lo")}
		}
		body, err := assembler.Take(all.Programs[entry].Instructions, name+kind)
		if err != nil {
			return err
		}
		b.Global(label, append([]assembler.Param{context, assembler.Number("off"),
			assembler.Number("left")}, words...)...)
		b.Emit(r.sized(body)...)
	}
	return nil
}
