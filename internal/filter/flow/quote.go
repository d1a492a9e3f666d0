package flow

import (
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
	at, entry := "xdp", quoteProgEntryXdp
	switch {
	case tcx:
		at, entry = "tcx", quoteProgEntryTcx
	case frags:
		at, entry = "xdp_frags", quoteProgEntryXdpFrags
	}
	number := assembler.Number
	of := func(six bool, name string, dst ...assembler.Param) assembler.Function {
		return assembler.Function{Label: QuoteLabel(six), Name: name + at, Entry: entry,
			Params: append([]assembler.Param{context, number("off"), number("left")}, dst...),
			Change: r.sized}
	}
	return b.Functions(loadQuotes, "look into ICMP errors", of(false, "quote4_", number("dst")),
		of(true, "quote6_", number("dst_hi"), number("dst_lo")))
}
