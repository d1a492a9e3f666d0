package iptables

import (
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

const ofSender = "asks who sends, which is known of what leaves alone"

// sender reads options about the socket that a packet is from.
func (p *ipRule) sender(o string) (bool, error) {
	fields := map[string]match.Field{"--uid-owner": match.UID, "--gid-owner": match.GID,
		"--socket-exists": match.UID}
	f, owner := fields[o]
	switch {
	case p.module == "owner" && o == "--suppl-groups":
		p.Unknown("asks for all groups of a process (--suppl-groups)", "")
	case p.module == "cgroup" && o == "--path":
		path := p.value()
		m, ok := importer.OfService(path, p.not)
		if !ok {
			p.Unknown(importer.ServiceText+": "+match.Quote(path), "name each unit of it")
		} else if p.asksSender() {
			p.Both(m)
		}
	case p.module == "cgroup" && o == "--cgroup":
		p.value()
		p.Unknown("asks for a class of net_cls", "ask for the unit: service \"NAME.service\"")
	case p.module == "owner" && owner:
		s, err := match.Between(0, match.Top[f]), error(nil)
		if o != "--socket-exists" {
			name := p.value()
			switch {
			case name == "root":
				s = match.Just(0)
			case match.IsHostName(name): // files for iptables-restore have names
				p.Unknown("asks for the user or group "+match.Quote(name)+" by its name: "+
					"write the number, as iptables-save does", "")
			default:
				s, err = match.ParseSpansOf(name, "-", match.Top[f])
			}
			if err != nil {
				return true, err
			}
		}
		p.negated = p.negated || p.not
		if p.asksSender() {
			p.number(f, s)
		}
	default:
		return false, nil
	}
	return true, nil
}

// asksSender reports whether the rule may ask who sends.
func (p *ipRule) asksSender() bool {
	if !p.t.leaves {
		p.Unknown(ofSender, "")
	}
	return p.t.leaves
}

// finishOwner is for options of -m owner that are negated: these hold for what has no socket, too,
// for which no term about a sender does.
func (p *ipRule) finishOwner() {
	switch {
	case !p.negated || !p.t.leaves:
	case p.Rule.Verb == importer.DoDrop:
		p.Rule.Widen("drops what has no socket, too, such as resets of the kernel: a policy drops "+
			"what other sockets send", "add `out drop local` behind it for these", p.Rule.Alts)
	case p.Rule.Verb != importer.DoCount:
		p.Unknown("holds for what has no socket, too, such as resets of the kernel",
			"ask for those that it is about")
	}
}
