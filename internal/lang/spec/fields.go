package spec

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/packet"
)

// extensionWords are the words of IPv6 extension headers.
var extensionWords = map[string]uint8{
	"hop-options":  packet.ProtoHopByHop,
	"dest-options": packet.ProtoDestOpts,
	"routing":      packet.ProtoRouting,
}

// tcpOptions are the options that have words: what the first of a packet's words for one appends.
var tcpOptions = map[string][]byte{
	"mss":            {2, 4, 0, 0},
	"window-scale":   {3, 3, 0},
	"timestamp":      timestampOption,
	"timestamp-echo": timestampOption,
}

var timestampOption = []byte{8, 10, 0, 0, 0, 0, 0, 0, 0, 0} // RFC 7323 section 3

// isMAC tells whether a header field is an Ethernet address.
func isMAC(word string) bool { return packet.FieldBits(word) == 48 }

// fieldNumber returns what a header field takes.
func fieldNumber(word string) *literal.Number {
	return &literal.Number{What: "a value of " + word, Max: 1<<packet.FieldBits(word) - 1}
}

// specNamedField sets one header field.
func specNamedField(spec *packet.Spec, word, text string) diag.Problem {
	if option := tcpOptions[word]; option != nil && !hasOption(spec, word) {
		spec.TCPOptions = append(spec.TCPOptions, option...)
	}
	f := packet.FieldValue{Word: word}
	var p diag.Problem
	switch {
	case packet.IsChecksum(word) && text == "wrong":
		f.Wrong = true
	case isMAC(word):
		f.Value, p = literal.MAC(text)
	default:
		var rg field.Range
		rg, p = fieldNumber(word).One(text)
		f.Value = rg.Lo
	}
	spec.Fields = append(spec.Fields, f)
	return p
}

// hasOption tells whether the packet has the option already: both words of a timestamp set one.
func hasOption(spec *packet.Spec, word string) bool {
	for _, f := range spec.Fields {
		if a := tcpOptions[f.Word]; a != nil && a[0] == tcpOptions[word][0] {
			return true
		}
	}
	return false
}

// specBytes sets what is given as bytes; it returns false after an error.
func specBytes(c *diag.Collector, spec *packet.Spec, t *ast.Term) bool {
	var b []byte
	switch v := t.Value; {
	case v == nil:
	case v.Hex:
		errors := c.Errors()
		b = Hex(c, ast.Word{Text: v.Elems[0].Text, Pos: v.Elems[0].Pos},
			"write two digits a byte: \"00 1f\".")
		if c.Errors() > errors {
			return false
		}
	case v.Text:
		b = []byte(v.Elems[0].Text)
	case v.Elems[0].Text == "counting":
		spec.Counting = true
	}
	switch t.Name {
	case "payload":
		spec.Payload = b
	case "ip-options":
		spec.IPOptions = b
	case "tcp-options":
		spec.TCPOptions = append(spec.TCPOptions, b...)
	case "sack-permitted":
		spec.TCPOptions = append(spec.TCPOptions, 4, 2)
	default:
		spec.Extensions = append(spec.Extensions,
			packet.Extension{Proto: extensionWords[t.Name], Body: b})
	}
	return true
}
