package trafgen

import (
	"math/rand/v2"
	"strings"
)

// frame is one packet: headers by functions, and bytes.
type frame struct {
	line    int
	headers []*header
	bytes   []cell
}

// header is a function such as ipv4(da=192.0.2.1).
type header struct {
	token
	fields []field
}

// field is an argument of such a function; value is empty where the name says all.
type field struct {
	token
	value []token
}

// cell is one byte.
type cell struct {
	token
	kind     cellKind
	v        byte // fixed
	lo, hi   byte // of a counter
	step     byte
	down     bool
	from, to uint64 // the arguments of a checksum
}

type cellKind uint8

const (
	fixed cellKind = iota
	drawn          // anew for each packet
	counted
	summed
)

// parser goes through tokens.
type parser struct {
	tokens []token
	at     int
	random *rand.Rand // for what is drawn once
	nested int        // parentheses that are open
}

func parse(tokens []token) (out []*frame, err error) {
	p := &parser{tokens: tokens, random: rand.New(rand.NewPCG(1, 1))}
	written := 0
	for p.at < len(p.tokens) {
		t := p.next()
		if t.text == "cpu" {
			return nil, wrong(t.line, t.text, "packets of some cores alone: `levee gen --cpu` "+
				"shares all of them among cores")
		}
		if t.text != "{" || t.kind != aSign {
			return nil, wrong(t.line, t.text, "a packet begins with {")
		}
		one, err := p.packet(t.line)
		if err != nil {
			return nil, err
		}
		if written += len(one.bytes); written > maxBytes {
			return nil, wrong(one.line, "{", "the packets have more than %d bytes together",
				maxBytes)
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		return nil, wrong(1, "{", "there is no packet")
	}
	return out, nil
}

func (p *parser) next() token {
	if p.at == len(p.tokens) {
		last := token{line: 1, kind: aSign}
		if p.at > 0 {
			last.line = p.tokens[p.at-1].line
		}
		return last // ends whatever is read
	}
	p.at++
	return p.tokens[p.at-1]
}

// sign takes a sign if it is the next.
func (p *parser) sign(s string) bool {
	if p.at < len(p.tokens) && p.tokens[p.at].kind == aSign && p.tokens[p.at].text == s {
		p.at++
		return true
	}
	return false
}

func (p *parser) packet(line int) (*frame, error) {
	out := &frame{line: line}
	for !p.sign("}") {
		if p.sign(",") {
			continue
		}
		t := p.next()
		v, isNumber := t.value()
		switch {
		case t.text == "" && t.kind == aSign:
			return nil, wrong(line, "{", "this packet is not closed by }")
		case t.kind == aText:
			for _, c := range []byte(t.text) {
				out.bytes = append(out.bytes, cell{token: t, v: c})
			}
		case isNumber && v > 255:
			return nil, wrong(t.line, t.text, "a byte is 0 to 255: c16(%s) is two", t.text)
		case isNumber:
			out.bytes = append(out.bytes, cell{token: t, v: byte(v)})
		case t.kind == aWord && p.sign("("):
			if err := p.call(out, t); err != nil {
				return nil, err
			}
		default:
			return nil, wrong(t.line, t.text, "this is no byte, no text and no function")
		}
		if len(out.bytes) > maxFrame {
			return nil, wrong(t.line, t.text, "the packet has more than %d bytes", maxFrame)
		}
	}
	if len(out.headers) == 0 && len(out.bytes) == 0 {
		return nil, wrong(line, "{", "the packet is empty")
	}
	return out, nil
}

// call reads a function behind its parenthesis.
func (p *parser) call(out *frame, t token) error {
	if name, ok := headerNames[t.text]; ok {
		if len(out.bytes) > 0 {
			return wrong(t.line, t.text, "a header behind bytes cannot be imported: write all of "+
				"the packet by functions, or none")
		}
		h := &header{token: t}
		h.text = name
		out.headers = append(out.headers, h)
		return p.fields(h)
	}
	_, constant := constants[t.text]
	if _, ok := fills[t.text]; !ok && !constant {
		return wrong(t.line, t.text, "this function cannot be imported")
	}
	var args []uint64
	for !p.sign(")") {
		if p.sign(",") {
			continue
		}
		v, err := p.expression()
		if err != nil {
			return err
		}
		args = append(args, v)
	}
	cells, err := p.fill(t, args)
	out.bytes = append(out.bytes, cells...)
	return err
}

// fills holds the functions that write bytes, besides those of constants, with the least and the
// greatest number of their arguments.
var fills = map[string][2]int{
	"fill": {2, 2}, "rnd": {0, 1}, "drnd": {0, 1}, "seqinc": {3, 3}, "seqdec": {3, 3},
	"dinc": {2, 3}, "ddec": {2, 3}, "csumip": {2, 2}, "csumicmp": {2, 2}, "csumtcp": {2, 2},
	"csumudp": {2, 2}, "csumtcp6": {2, 2}, "csumudp6": {2, 2},
}

// fill returns the value of a function.
func (p *parser) fill(t token, args []uint64) (out []cell, err error) {
	arg := func(i int, otherwise uint64) uint64 {
		if i < len(args) {
			return args[i]
		}
		return otherwise
	}
	times := func(n uint64, f func(i uint64) cell) error {
		if n > maxFrame {
			return wrong(t.line, t.text, "%d bytes: a packet has %d at most", n, maxFrame)
		}
		for i := range n {
			c := f(i)
			c.token = t
			out = append(out, c)
		}
		return nil
	}
	if err := fits(t, args); err != nil {
		return nil, err
	}
	switch t.text {
	case "fill":
		err = times(args[1], func(uint64) cell { return cell{v: byte(args[0])} })
	case "rnd":
		err = times(arg(0, 1), func(uint64) cell { return cell{v: byte(p.random.Uint32())} })
	case "drnd":
		err = times(arg(0, 1), func(uint64) cell { return cell{kind: drawn} })
	case "seqinc", "seqdec":
		err = times(args[2], func(i uint64) cell {
			if t.text == "seqdec" {
				return cell{v: byte(args[0] - i*args[1])}
			}
			return cell{v: byte(args[0] + i*args[1])}
		})
	case "dinc", "ddec":
		if args[0] > args[1] || arg(2, 1) == 0 || arg(2, 1) > 255 {
			return nil, wrong(t.line, t.text, "from %d to %d by %d: the least comes first, and a "+
				"step is 1 to 255", args[0], args[1], arg(2, 1))
		}
		err = times(1, func(uint64) cell {
			return cell{kind: counted, lo: byte(args[0]), hi: byte(args[1]),
				step: byte(arg(2, 1)), down: t.text == "ddec"}
		})
	case "csumip", "csumicmp", "csumtcp", "csumudp", "csumtcp6", "csumudp6":
		err = times(2, func(uint64) cell { return cell{kind: summed, from: args[0], to: args[1]} })
	default:
		bytes := constants[t.text]
		if bytes < 8 && args[0]>>(8*bytes) != 0 {
			return nil, wrong(t.line, t.text, "%d does not fit %d bytes", args[0], bytes)
		}
		err = times(uint64(bytes), func(i uint64) cell {
			return cell{v: byte(args[0] >> (8 * (uint64(bytes) - 1 - i)))}
		})
	}
	return out, err
}

// fits checks the number of a function's arguments, and those that are bytes.
func fits(t token, args []uint64) error {
	for i, a := range args {
		if !strings.HasPrefix(t.text, "c") && a > 255 && !(t.text == "fill" && i == 1) && i < 2 &&
			t.text != "rnd" && t.text != "drnd" {
			return wrong(t.line, t.text, "%d: a byte is 0 to 255", a)
		}
	}
	n, ok := fills[t.text]
	if !ok { // a constant
		n = [2]int{1, 1}
	}
	if len(args) < n[0] || len(args) > n[1] {
		return wrong(t.line, t.text, "%d arguments: it takes %d to %d", len(args), n[0], n[1])
	}
	return nil
}

// constants are functions that write a number in so many bytes.
var constants = map[string]int{"const8": 1, "c8": 1, "const16": 2, "c16": 2, "be16": 2,
	"const32": 4, "c32": 4, "be32": 4, "const64": 8, "c64": 8, "be64": 8}

// expression reads a number, or several of them with one operator; another one needs parentheses,
// since trafgen's order is not C's.
func (p *parser) expression() (uint64, error) {
	v, err := p.operand()
	for op := ""; err == nil && p.at < len(p.tokens); {
		t := p.tokens[p.at]
		if t.kind != aSign || !strings.Contains(" - + * / % & | << >> ^ ", " "+t.text+" ") {
			break
		}
		if op != "" && op != t.text {
			return 0, wrong(t.line, t.text, "write parentheses around %s or %s", op, t.text)
		}
		op = t.text
		p.at++
		var w uint64
		if w, err = p.operand(); err != nil {
			break
		}
		switch {
		case (op == "/" || op == "%") && w == 0:
			return 0, wrong(t.line, t.text, "a division by 0")
		case op == "-":
			v -= w
		case op == "+":
			v += w
		case op == "*":
			v *= w
		case op == "/":
			v /= w
		case op == "%":
			v %= w
		case op == "&":
			v &= w
		case op == "|":
			v |= w
		case op == "^":
			v ^= w
		case op == "<<":
			v <<= w
		default:
			v >>= w
		}
	}
	return v, err
}

func (p *parser) operand() (uint64, error) {
	if p.sign("(") {
		if p.nested++; p.nested > maxNested {
			t := p.next()
			return 0, wrong(t.line, t.text, "more than %d parentheses in each other", maxNested)
		}
		v, err := p.expression()
		p.nested--
		if err == nil && !p.sign(")") {
			t := p.next()
			err = wrong(t.line, t.text, "a parenthesis is not closed")
		}
		return v, err
	}
	t := p.next()
	v, ok := t.value()
	if t.kind == aText && len(t.text) == 1 {
		v, ok = uint64(t.text[0]), true
	}
	if !ok {
		return 0, wrong(t.line, t.text, "this is no number")
	}
	return v, nil
}

// fields reads the arguments of a header's function.
func (p *parser) fields(h *header) error {
	for !p.sign(")") {
		if p.sign(",") {
			continue
		}
		f := field{token: p.next()}
		if f.kind != aWord {
			return wrong(f.line, f.text, "the fields of %s() are not closed by )", h.text)
		}
		if p.sign("[") {
			return wrong(f.line, f.text, "a part of a field cannot be imported: write the range")
		}
		if p.sign("=") {
			for open := 0; p.at < len(p.tokens); p.at++ {
				t := p.tokens[p.at]
				if t.kind == aSign && open == 0 && (t.text == "," || t.text == ")") {
					break
				}
				if t.kind == aSign {
					open += strings.Count(t.text, "(") - strings.Count(t.text, ")")
				}
				f.value = append(f.value, t)
			}
			if len(f.value) == 0 {
				return wrong(f.line, f.text, "it has no value")
			}
		}
		h.fields = append(h.fields, f)
	}
	return nil
}
