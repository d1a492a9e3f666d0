package nat

import (
	"strconv"
	"strings"
)

// parseSave reads what iptables-save and its like print, into a ruleset. Chains are named by table.
func parseSave(text string) *ruleset {
	r := &ruleset{chains: map[string][]step{}}
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:] + " "
		case strings.HasPrefix(line, ":"):
			f := append(strings.Fields(line[1:]), "", "")
			name := table + f[0]
			switch {
			case name == "nat PREROUTING":
				r.arrive = append(r.arrive, name)
			case f[0] == "FORWARD":
				r.forward = append(r.forward, name)
				r.closed = r.closed || f[1] == "DROP"
			}
		case strings.HasPrefix(line, "-A "):
			words := strings.Fields(line)
			if len(words) > 2 {
				name := table + words[1]
				r.chains[name] = append(r.chains[name], saved(table, words[2:], line))
			}
		}
	}
	return r
}

// saved reads the words of a rule behind its chain.
func saved(table string, words []string, text string) step {
	s := step{text: text}
	var c cond
	not := false
	for i := 0; i < len(words); i++ {
		word := words[i]
		if word == "!" {
			not = true
			continue
		}
		value := ""
		if i+1 < len(words) {
			value = words[i+1]
		}
		switch word {
		case "-j", "-g":
			switch value {
			case "DNAT", "REDIRECT", "NETMAP":
				s.sends = true
			case "DROP", "REJECT":
				s.drops = true
			default:
				s.into = table + value
			}
		case "--state", "--ctstate":
			s.states = true
		default:
			if !not { // what a rule leaves out makes a forward larger, at most
				c.asks(word, value)
			}
		}
		if strings.HasPrefix(word, "-") {
			not = false
		}
	}
	s.when = []cond{c}
	return s
}

// asks adds what a word of a rule asks.
func (c *cond) asks(word, value string) {
	switch word {
	case "-p", "--protocol":
		if p, ok := protoOf(value); ok && p != 0 {
			c.protos = append(c.protos, p)
		}
	case "-s", "--source", "-d", "--destination":
		p, ok := prefixOf(value)
		switch {
		case !ok:
		case word == "-s" || word == "--source":
			c.from = append(c.from, p)
		default:
			c.to = append(c.to, p)
		}
	case "-i", "--in-interface":
		c.devs = append(c.devs, value)
	case "--dport", "--destination-port", "--dports", "--destination-ports", "--ports":
		for part := range strings.SplitSeq(value, ",") {
			if r, ok := rangeOf(part, ":"); ok {
				c.ports = append(c.ports, r)
			}
		}
	}
}

// rangeOf reads a port, or two with a word between; the ends may be left out.
func rangeOf(text, between string) (Range, bool) {
	low, high, both := strings.Cut(text, between)
	if !both {
		high = low
	}
	if both && low == "" {
		low = "0"
	}
	if both && high == "" {
		high = "65535"
	}
	a, err1 := strconv.ParseUint(low, 10, 16)
	b, err2 := strconv.ParseUint(high, 10, 16)
	return Range{uint16(a), uint16(b)}, err1 == nil && err2 == nil && a <= b && b > 0
}
