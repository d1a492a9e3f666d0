package pf

import (
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// This file has what pf knows of its machine: addresses and networks of interfaces, and routes. The
// policy's interface has `self`, where the source names no other. What is of several interfaces
// stands in files beside the policy.

// own returns the packets from or to what is no address; none, if no packet on a wire has it.
func (r *pfRule) own(dir string, item []pfToken, not bool) ([]match.Match, *importer.Reason) {
	word := item[0].text
	if item[0].is("(") && len(item) > 1 {
		word = item[1].text
	}
	name, of, _ := strings.Cut(word, ":")
	if of == "0" { // without aliases
		of = ""
	}
	dev := r.p.opts.Device
	loopback := (name == "lo" || name == "lo0") && !onInterface("lo", dev)
	isDev := dev != "" && (name == "egress" || onInterface(name, dev))
	isName := name == "self" || name == "egress" || item[0].is("(") || isInterface(word)
	switch {
	case loopback && (of == "" || of == "network"):
		if not {
			return []match.Match{{}}, nil
		}
		return nil, nil
	case isName && of == "" && isDev && r.p.others:
		return r.elsewhere(dir, not), nil
	case isName && of == "" && (name == "self" || isDev || dev == ""):
		r.p.own = append(r.p.own, ownRule{r.Rule, importer.Printable(word, 40),
			(r.Rule.Verb == importer.DoDrop) == not})
		return []match.Match{importer.AddressIn(dir, match.Self, not)}, nil
	case isName && (of == "" || of == "network" || of == "broadcast"):
		if name == "egress" && dev != "" {
			name = dev
		}
		return []match.Match{importer.AddressIn(dir, r.ofInterface(name, of), not)}, nil
	case (word == "urpf-failed" || word == "no-route") && dir == "src" && !r.p.leaves:
		way := match.Strict
		if word == "no-route" {
			way = match.Loose
		}
		r.Remark(importer.Changed, importer.PathText, importer.PathHint)
		return []match.Match{match.Match{}.With(way,
			match.Just(uint64(match.Int(not)))).Settle()}, nil
	case word == "no-route" || word == "urpf-failed" || word == "route":
		return nil, &importer.Reason{What: "asks the routing table (" + word + ")",
			Instead: rpFilter}
	}
	return nil, &importer.Reason{What: "names " + match.Quote(word) + ", whose addresses only pf " +
		"knows", Instead: "write its addresses"}
}

const rpFilter = "use net.ipv4.conf.*.rp_filter"

// elsewhere returns the packets from or to addresses of the policy's interface: `self` without what
// the kernel delivers by others.
func (r *pfRule) elsewhere(dir string, not bool) []match.Match {
	dev := r.p.opts.Device
	s := r.p.besides("elsewhere", func(set string) []string {
		return importer.ElsewhereComment(set, dev)
	})
	s.Own = true
	r.Rule.Filled = append(r.Rule.Filled, importer.Filled{Text: "the addresses of " +
		match.Quote(dev) + " are `self` without `" + s.Name + "`",
		Instead: "make its file by the command above the set; `levee up --keep`, as of systemd " +
			"and OpenRC, follows new addresses of this interface", Same: true})
	self, beside := importer.AddressIn(dir, match.Self, not), importer.AddressIn(dir, s, !not)
	if not {
		return []match.Match{self, beside}
	}
	return []match.Match{self.And(&beside)}
}

// ofInterface returns the set of the addresses, the networks or the broadcast addresses of an
// interface.
func (r *pfRule) ofInterface(name, of string) *match.Set {
	what, command := "addresses", "ip -o addr show dev "+name+
		` | awk '{ sub("/.*", "", $4); print $4 }'`
	routes := "{ ip route show proto kernel dev " + name + "; ip -6 route show proto kernel dev " +
		name + "; } | awk '{ print $1 }'"
	if name == "self" {
		routes = strings.ReplaceAll(routes, " dev self", "")
	}
	key := name
	switch of {
	case "network":
		what, key, command = "networks", name+"-network", routes
	case "broadcast":
		what, key, command = "broadcast addresses", name+"-broadcast",
			"ip route show table local type broadcast dev "+name+" | awk '{ print $2 }'"
	}
	s := r.p.besides(key, func(set string) []string {
		return importer.BesideComment(set, name, command)
	})
	r.Rule.Filled = append(r.Rule.Filled, importer.Beside("which "+what+" "+match.Quote(name)+
		" has", "", s.Name, ", with the name that Linux has for it, and again when they change"))
	return s
}

// besides returns the set of addresses that stand in a file beside the policy, by what they are of.
func (p *pf) besides(key string, comments func(set string) []string) *match.Set {
	if s := p.beside[key]; s != nil {
		return s
	}
	s := &match.Set{Name: match.UniqueName(key, p.out.Taken), Dynamic: true}
	p.beside[key] = s
	p.out.AddSet(s.Name, "dynamic(max 4096, from file(\""+s.Name+".txt\"))").Comments =
		comments(s.Name)
	return s
}

// ownRule is a rule about addresses of the machine.
type ownRule struct {
	r      *importer.ChainRule
	of     string // self, or an interface
	widens bool   // more of them than the source means lets more pass
}

// tellOwn says how `self` differs from the addresses that pf means, once all interfaces that the
// source names are known.
func (p *pf) tellOwn() {
	const hint = "`levee up --keep`, as of systemd and OpenRC, follows addresses that change; " +
		"without, and where an interface alone is meant, write its addresses"
	for _, o := range p.own {
		text := "the addresses of the machine (" + o.of + ") are `self`: those of all its " +
			"interfaces, and of broadcasts"
		switch {
		case o.r.Absent:
		case o.widens && p.others && o.of != "self":
			o.r.Widen(text, hint, []match.Match{{}})
		default:
			o.r.Remarks = append(o.r.Remarks, o.r.Remark(importer.Changed, text, hint))
		}
	}
}

// isInterface tells whether a word has the form of an interface's name: letters and a number.
func isInterface(word string) bool {
	word, _, _ = strings.Cut(word, ":")
	letters := strings.TrimRight(word, "0123456789")
	return letters != word && letters != "" && !strings.ContainsAny(letters, ".-_0123456789")
}
