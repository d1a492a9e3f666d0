package match

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Quote is text of the input as an error shows it.
func Quote(s string) string {
	const most = 60
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strconv.QuoteToASCII(s)
}

// ProtoNames are the names that the language has for protocols (docs/reference/matches.md,
// "Matches").
var ProtoNames = map[uint8]string{
	1: "icmp", 2: "igmp", 4: "ipip", 6: "tcp", 17: "udp", 33: "dccp", 47: "gre", 50: "esp",
	51: "ah", 58: "icmp6", 89: "ospf", 132: "sctp", 136: "udplite",
}

// Int returns 1 for true.
func Int(b bool) int {
	if b {
		return 1
	}
	return 0
}

// protocolNumbers are the names that iptables, ipset and nft print for protocols (netdb, IANA).
var protocolNumbers = map[string]uint8{
	"ggp": 3, "st": 5, "pup": 12, "hmp": 20, "xns-idp": 22, "rdp": 27, "iso-tp4": 29, "xtp": 36,
	"ddp": 37, "idpr-cmtp": 38, "idrp": 45, "skip": 57,
	"carp": 112, "pfsync": 240, // of pf
	"rspf": 73, "vmtp": 81, "ax.25": 93, "isis": 124, "fc": 133, "manet": 138, "ethernet": 143,
	"icmp": 1, "igmp": 2, "ipencap": 4, "ipip": 4, "ipv4": 4, "tcp": 6, "egp": 8, "igp": 9,
	"udp": 17, "dccp": 33, "ipv6": 41,
	"ipv6-route": 43, "ipv6-frag": 44, "rsvp": 46, "gre": 47, "esp": 50, "ah": 51, "icmpv6": 58,
	"ipv6-icmp": 58, "icmp6": 58,
	"ipv6-nonxt": 59, "ipv6-opts": 60, "eigrp": 88, "ospf": 89, "ospfigp": 89, "etherip": 97,
	"encap": 98, "pim": 103,
	"ipcomp": 108, "comp": 108, "vrrp": 112, "l2tp": 115, "sctp": 132, "mobility-header": 135,
	"ipv6-mh": 135, "mh": 135,
	"udplite": 136, "mpls-in-ip": 137, "hip": 139, "shim6": 140, "wesp": 141, "rohc": 142,
}

// ProtocolNumber reads a protocol by name or number.
func ProtocolNumber(s string) (uint8, error) {
	if n, ok := protocolNumbers[s]; ok {
		return n, nil
	}
	n, err := strconv.ParseUint(s, 0, 8)
	if err != nil {
		return 0, fmt.Errorf("%s is not a protocol", Quote(s))
	}
	return uint8(n), nil
}

// ParseSpansOf reads a number, or a range with sep between its ends, of which one may be missing.
func ParseSpansOf(s, sep string, top uint64) (Spans, error) {
	lo, hi, isRange := strings.Cut(s, sep)
	r := Span{Lo: 0, Hi: top}
	var err error
	if lo != "" || !isRange {
		if r.Lo, err = strconv.ParseUint(lo, 0, 64); err != nil {
			return nil, fmt.Errorf("%s is not a number or a range", Quote(s))
		}
	}
	switch {
	case !isRange:
		r.Hi = r.Lo
	case hi != "":
		if r.Hi, err = strconv.ParseUint(hi, 0, 64); err != nil {
			return nil, fmt.Errorf("%s is not a number or a range", Quote(s))
		}
	}
	if r.Hi > top {
		return nil, fmt.Errorf("%s is above %d", Quote(s), top)
	}
	if r.Lo > r.Hi {
		return nil, fmt.Errorf("the range %s runs backwards", Quote(s))
	}
	return Spans{r}, nil
}

// services are the ports of names that files for iptables-restore have in place of numbers (IANA's
// registry of service names, as /etc/services has them): only those in wide use.
var services = map[string]string{
	"echo": "7", "discard": "9", "daytime": "13", "chargen": "19", "ftp-data": "20", "ftp": "21",
	"ssh": "22", "telnet": "23", "smtp": "25", "time": "37", "whois": "43", "nicname": "43",
	"tacacs": "49", "domain": "53",
	"bootps": "67", "bootpc": "68", "tftp": "69", "gopher": "70", "finger": "79",
	"http": "80", "www": "80", "kerberos": "88", "pop3": "110", "sunrpc": "111", "auth": "113",
	"nntp": "119", "ntp": "123", "epmap": "135", "loc-srv": "135", "netbios-ns": "137",
	"netbios-dgm": "138",
	"netbios-ssn": "139", "imap2": "143", "imap": "143", "snmp": "161", "snmp-trap": "162",
	"snmptrap": "162", "xdmcp": "177", "bgp": "179", "irc": "194", "ldap": "389", "https": "443",
	"microsoft-ds": "445", "kpasswd": "464",
	"submissions": "465", "smtps": "465", "ssmtp": "465", "urd": "465", "isakmp": "500",
	"syslog": "514", "printer": "515", "route": "520", "router": "520", "dhcpv6-client": "546",
	"dhcpv6-server": "547", "afpovertcp": "548", "rtsp": "554", "nntps": "563",
	"submission": "587", "ipp": "631",
	"ldaps": "636", "domain-s": "853", "rsync": "873", "ftps-data": "989", "ftps": "990",
	"telnets": "992", "imaps": "993", "pop3s": "995",
	"socks": "1080", "openvpn": "1194", "ms-sql-s": "1433", "ms-sql-m": "1434", "l2f": "1701",
	"l2tp": "1701", "pptp": "1723", "radius": "1812", "radius-acct": "1813", "mqtt": "1883",
	"nfs": "2049", "cvspserver": "2401", "iscsi-target": "3260", "mysql": "3306",
	"ms-wbt-server": "3389", "nut": "3493", "svn": "3690", "ipsec-nat-t": "4500", "sip": "5060",
	"sip-tls": "5061", "xmpp-client": "5222", "xmpp-server": "5269",
	"mdns": "5353", "postgresql": "5432", "amqp": "5672", "amqps": "5671", "x11": "6000",
	"sane-port": "6566", "http-alt": "8080", "zabbix-agent": "10050", "zabbix-trapper": "10051",
	"git": "9418", "systat": "11", "netstat": "15", "qotd": "17", "ident": "113",
	"portmapper": "111", "smux": "199", "ptp-event": "319", "ptp-general": "320", "svrloc": "427",
	"exec": "512", "login": "513", "shell": "514", "cmd": "514", "uucp": "540", "asf-rmcp": "623",
	"ldp": "646", "tinc": "655", "kerberos-adm": "749", "rmiregistry": "1099", "radacct": "1813",
	"cisco-sccp": "2000", "eyetv": "2170", "dict": "2628", "gpsd": "2947", "icpv2": "3130",
	"distcc": "3632", "daap": "3689", "subversion": "3690", "sieve": "4190", "epmd": "4369",
	"ntske": "4460", "iax": "4569", "munin": "4949", "jabber-client": "5222",
	"jabber-server": "5269", "postgres": "5432", "nrpe": "5666", "nsca": "5667", "redis": "6379",
	"syslog-tls": "6514", "ircd": "6667", "ircs-u": "6697", "webcache": "8080",
	"privoxy": "8118", "puppet": "8140", "webmin": "10000", "nbd": "10809", "hkp": "11371",
	"tcpmux": "1", "mail": "25", "kerberos5": "88", "krb5": "88", "kerberos-sec": "88",
	"iso-tsap": "102", "poppassd": "106", "pop-3": "110", "tap": "113", "z3950": "210",
	"imap3": "220", "biff": "512", "comsat": "512", "who": "513", "whod": "513", "spooler": "515",
	"talk": "517", "ntalk": "518", "routed": "520", "klogin": "543", "kshell": "544",
	"snntp": "563", "spamd": "783", "supfilesrv": "871", "groupwise": "1677", "gnunet": "2086",
	"gds-db": "3050", "gds_db": "3050", "icp": "3130", "isns": "3205", "sysrqd": "4094",
	"remctl": "4373", "hylafax": "4559", "mtn": "4691", "radmin-port": "4899", "cfengine": "5308",
	"sane": "6566", "saned": "6566", "babel": "6696", "font-service": "7100", "xfs": "7100",
	"tproxy": "8081", "xinetd": "9098", "bacula-dir": "9101", "bacula-fd": "9102",
	"bacula-sd": "9103", "amanda": "10080", "kamanda": "10081", "afs3-fileserver": "7000",
	"afs3-callback": "7001", "afs3-prserver": "7002", "afs3-vlserver": "7003",
	"afs3-kaserver": "7004", "afs3-volser": "7005", "afs3-bos": "7007",
}

// ServicePorts returns s with a number in place of a service that is known by name.
func ServicePorts(s string) string {
	if n, ok := services[s]; ok {
		return n
	}
	return s
}

// IsHostName tells whether s can only be the name of a host: it has a letter that no address has.
func IsHostName(s string) bool {
	return !strings.Contains(s, ":") &&
		strings.IndexFunc(s, func(c rune) bool {
			return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		}) >= 0
}

// ParseSpan reads an address, a prefix or a range of addresses.
func ParseSpan(s string) (AddressSpan, error) {
	if lo, hi, isRange := strings.Cut(s, "-"); isRange {
		a, errA := netip.ParseAddr(lo)
		b, errB := netip.ParseAddr(hi)
		if errA != nil || errB != nil || a.BitLen() != b.BitLen() || b.Less(a) || a.Zone() != "" ||
			b.Zone() != "" {
			return AddressSpan{}, fmt.Errorf("%s is not a range of addresses", Quote(s))
		}
		return AddressSpan{a, b}, nil
	}
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return AddressSpan{}, fmt.Errorf("%s is not an address", Quote(s))
		}
		return AddressSpan{a, a}, nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return AddressSpan{}, fmt.Errorf("%s is not a prefix", Quote(s))
	}
	return PrefixSpan(p), nil
}

// ParseMaskedAddr reads an address with a mask in dots; contiguous tells whether it is a prefix.
func ParseMaskedAddr(s string) (a AddressSpan, contiguous bool, err error) {
	if s == "0" || s == "0/0" { // as people write it
		s = "0.0.0.0/0"
	}
	addr, mask, has := strings.Cut(s, "/")
	m, errM := netip.ParseAddr(mask)
	if !has || errM != nil {
		a, err = ParseSpan(s)
		return a, true, err
	}
	ip, err := netip.ParseAddr(addr)
	if err != nil || ip.BitLen() != m.BitLen() {
		return a, false, fmt.Errorf("%s is not an address with a mask", Quote(s))
	}
	bits, raw := 0, m.AsSlice()
	for bits < len(raw)*8 && raw[bits/8]&(0x80>>(bits%8)) != 0 {
		bits++
	}
	for i := bits; i < len(raw)*8; i++ {
		if raw[i/8]&(0x80>>(i%8)) != 0 {
			return a, false, nil
		}
	}
	return PrefixSpan(netip.PrefixFrom(ip, bits)), true, nil
}

// icmpTypeNames are the names that iptables and nft have for ICMP types, and those of iptables for
// codes.
var icmpTypeNames = map[string]string{
	"echo-reply": "0", "pong": "0", "destination-unreachable": "3", "network-unreachable": "3/0",
	"host-unreachable":     "3/1",
	"protocol-unreachable": "3/2", "port-unreachable": "3/3", "fragmentation-needed": "3/4",
	"source-quench": "4", "redirect": "5",
	"echo-request": "8", "ping": "8", "router-advertisement": "9", "router-solicitation": "10",
	"time-exceeded": "11", "ttl-exceeded": "11",
	"parameter-problem": "12", "timestamp-request": "13", "timestamp-reply": "14",
	"info-request": "15", "info-reply": "16",
	"address-mask-request": "17", "address-mask-reply": "18",
	"source-route-failed": "3/5", "network-unknown": "3/6", "host-unknown": "3/7",
	"network-prohibited": "3/9", "host-prohibited": "3/10", "TOS-network-unreachable": "3/11",
	"TOS-host-unreachable": "3/12", "communication-prohibited": "3/13",
	"host-precedence-violation": "3/14", "precedence-cutoff": "3/15", "network-redirect": "5/0",
	"host-redirect": "5/1", "TOS-network-redirect": "5/2", "TOS-host-redirect": "5/3",
	"ttl-zero-during-transit": "11/0", "ttl-zero-during-reassembly": "11/1",
	"ip-header-bad": "12/0", "required-option-missing": "12/1",
}

var icmp6TypeNames = map[string]string{
	"destination-unreachable": "1", "packet-too-big": "2", "time-exceeded": "3",
	"ttl-exceeded": "3", "parameter-problem": "4",
	"echo-request": "128", "ping": "128", "echo-reply": "129", "pong": "129",
	"mld-listener-query": "130", "mld-listener-report": "131",
	"mld-listener-done": "132", "mld-listener-reduction": "132", "router-solicitation": "133",
	"nd-router-solicit":    "133",
	"router-advertisement": "134", "nd-router-advert": "134", "neighbour-solicitation": "135",
	"neighbor-solicitation": "135",
	"nd-neighbor-solicit":   "135", "neighbour-advertisement": "136",
	"neighbor-advertisement": "136",
	"nd-neighbor-advert":     "136",
	"redirect":               "137", "nd-redirect": "137", "router-renumbering": "138",
	"ind-neighbor-solicit": "141", "ind-neighbor-advert": "142",
	"mld2-listener-report": "143", "no-route": "1/0", "communication-prohibited": "1/1",
	"beyond-scope": "1/2", "address-unreachable": "1/3", "port-unreachable": "1/4",
	"failed-policy": "1/5", "reject-route": "1/6", "ttl-zero-during-transit": "3/0",
	"ttl-zero-during-reassembly": "3/1", "bad-header": "4/0", "unknown-header-type": "4/1",
	"unknown-option": "4/2",
}

// ParseICMPType reads a type, type/code or a name, as type<<8 | code.
func ParseICMPType(s string, six bool) (Spans, error) {
	names := icmpTypeNames
	if six {
		names = icmp6TypeNames
	}
	if n, ok := names[s]; ok {
		s = n
	}
	typ, code, has := strings.Cut(s, "/")
	t, err := strconv.ParseUint(typ, 0, 8)
	if err != nil {
		return nil, fmt.Errorf("%s is not an ICMP type", Quote(s))
	}
	if !has {
		return Between(t<<8, t<<8|0xff), nil
	}
	c, err := strconv.ParseUint(code, 0, 8)
	if err != nil {
		return nil, fmt.Errorf("%s is not an ICMP type and code", Quote(s))
	}
	return Just(t<<8 | c), nil
}

// ParseMAC reads an Ethernet address.
func ParseMAC(s string) (v uint64, err error) {
	parts := strings.Split(s, ":")
	for _, p := range parts {
		n, err := strconv.ParseUint(p, 16, 8)
		if err != nil || len(parts) != 6 {
			return 0, fmt.Errorf("%s is not an Ethernet address", Quote(s))
		}
		v = v<<8 | n
	}
	return v, nil
}

var flagBits = map[string]uint8{"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32,
	"ecn": 64, "ece": 64, "cwr": 128, "all": 0x3f, "none": 0}

// ParseFlags reads TCP flags with commas between them.
func ParseFlags(s string) (v uint8, err error) {
	for _, n := range strings.Split(strings.ToLower(s), ",") {
		f, ok := flagBits[n]
		if !ok {
			return 0, fmt.Errorf("%s is not a TCP flag", Quote(n))
		}
		v |= f
	}
	return v, nil
}

var dscpNames = map[string]uint64{"ef": 46, "be": 0, "va": 44, "le": 1, "df": 0, "lephb": 1}

// ParseDSCP reads a code point: a number, ef, be, cs0 to cs7, af11 to af43.
func ParseDSCP(s string) (uint64, error) {
	l := strings.ToLower(s)
	if v, ok := dscpNames[l]; ok {
		return v, nil
	}
	if len(l) == 3 && l[:2] == "cs" && l[2] >= '0' && l[2] <= '7' {
		return uint64(l[2]-'0') * 8, nil
	}
	if len(l) == 4 && l[:2] == "af" && l[2] >= '1' && l[2] <= '4' && l[3] >= '1' && l[3] <= '3' {
		return uint64(l[2]-'0')*8 + uint64(l[3]-'0')*2, nil
	}
	v, err := strconv.ParseUint(l, 0, 64)
	if err != nil || v > 63 {
		return 0, fmt.Errorf("%s is not a DSCP", Quote(s))
	}
	return v, nil
}
