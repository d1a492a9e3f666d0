package inuse

import (
	"fmt"
	"slices"
	"strings"
)

// Known is a service that a profile is for, by who listens where.
type Known struct {
	Profile string
	Proto   string   // tcp or udp
	Port    uint16   // where such a service listens, whoever it is; 0 where only names tell
	Owners  []string // processes that are such a service, wherever they listen
}

// Services returns listeners for which profiles exist, the more certain ones first.
func Services() []Known {
	return []Known{
		{"goldsrc", "udp", 0, []string{"hlds_linux"}},
		{"source-engine", "udp", 27015, []string{"srcds_linux", "srcds_linux64"}},
		{"raknet", "udp", 19132, []string{"bedrock_server"}},
		{"minecraft-java", "tcp", 25565, nil},
		{"fivem", "udp", 30120, []string{"FXServer"}},
		{"teamspeak3", "udp", 9987, []string{"ts3server"}},
		{"wireguard", "udp", 51820, nil},
		{"openvpn", "udp", 1194, []string{"openvpn"}},
		{"dns-recursive", "udp", 0, []string{"unbound", "kresd", "pdns_recursor", "dnsmasq"}},
		{"dns-authoritative", "udp", 53, []string{"named", "nsd", "knotd", "pdns_server"}},
		{"ntp", "udp", 123, []string{"ntpd", "chronyd"}},
		{"sip", "udp", 5060, []string{"asterisk", "kamailio", "opensips", "freeswitch"}},
		{"turn", "udp", 3478, []string{"turnserver"}},
		{"quic", "udp", 443, nil},
		{"ssh", "tcp", 22, []string{"sshd"}},
		{"mail", "tcp", 25, nil},
	}
}

// proposals are lines that use profiles, with the ports where their services listen.
func (m *Machine) proposals() (out []string) {
	of := map[string][]uint16{}
	for _, l := range m.Listeners {
		if name := profileFor(l); name != "" && !slices.Contains(of[name], l.Port) {
			of[name] = append(of[name], l.Port)
		}
	}
	for _, k := range Services() {
		at := of[k.Profile]
		if len(at) == 0 {
			continue
		}
		parameter := "port"
		if k.Profile == "mail" { // port is where users send and read
			parameter = "smtp"
		}
		out = append(out, fmt.Sprintf("use %s %s %s", k.Profile, parameter, ports(at)))
	}
	return out
}

// profileFor returns the profile for a listener: by its process where that is known, else by its
// port.
func profileFor(l Listener) string {
	all := Services()
	for _, k := range all {
		if k.Proto == l.Proto && slices.Contains(k.Owners, l.Owner) {
			return k.Profile
		}
	}
	for _, k := range all {
		if k.Proto == l.Proto && k.Port != 0 && k.Port == l.Port {
			return k.Profile
		}
	}
	return ""
}

// profiles proposes profiles for what listens.
func (m *Machine) profiles(w *draft) {
	all := m.proposals()
	if len(all) == 0 {
		return
	}
	w.line("# Profiles take floods of some of these services: `levee profile show NAME`. In the " +
		"place of")
	w.line("# their rules write:\n#   %s", strings.Join(all, "\n#   "))
	at := slices.IndexFunc(all, func(use string) bool { return strings.HasPrefix(use, "use dns-") })
	if at < 0 {
		return
	}
	_, port, _ := strings.Cut(all[at], " port ")
	w.line("# Names that are asked for to hurt others: `levee set add abused evil.example`. In " +
		"front of the\n# rules of DNS write:\n" +
		"#   set abused = dynamic(of names, max 100000, lease 1h, keep)")
	w.line(`#   drop udp port %s dns name in abused as "abused"`, port)
}
