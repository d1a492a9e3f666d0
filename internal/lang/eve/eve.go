// Package eve is the table of fields that conditions on Suricata's EVE records may name.
//
// In goes the name of a field as a policy writes it, out comes its type. The names are paths into
// the JSON object, joined by dots, as Suricata's user guide ("EVE JSON Format") has them. It reads
// no records and knows no policies.
package eve

import (
	"strconv"
	"strings"
)

// Type is the type of a field's values.
type Type uint8

const (
	Text Type = iota
	Number
	Address // a text that is an IP address
)

// String is the type as messages name it.
func (t Type) String() string { return [...]string{"text", "number", "address"}[t] }

// Field is one row of the table.
type Field struct {
	Name    string
	Type    Type
	What    string   // in a few words
	Values  []string // all that Suricata writes, where that is a list; else nil
	Numbers bool     // of other values it writes the number
	Domain  bool     // a text that is a name of the DNS
	Also    []string // further paths of it, by version; "queries[]" is a list of objects
}

// Named is the field of a name.
func Named(name string) (Field, bool) {
	f, ok := byName[name]
	if key, is := strings.CutPrefix(name, "alert.metadata."); !ok && is && key != "" &&
		!strings.Contains(key, ".") { // the author of a rule chooses it
		return Field{Name: name, Type: Text, What: "metadata of the rule"}, true
	}
	return f, ok
}

// Fields are all rows, in the order of the documentation.
func Fields() []Field { return table }

var byName = func() map[string]Field {
	m := make(map[string]Field, len(table))
	for _, f := range table {
		m[f.Name] = f
	}
	return m
}()

var table = []Field{
	{Name: "event_type", Type: Text, Values: eventTypes, What: "kind of record: alert, http, " +
		"dns, flow, ..."},
	{Name: "src_ip", Type: Address, What: "who sent the packet"},
	{Name: "dest_ip", Type: Address, What: "who it was sent to"},
	{Name: "src_port", Type: Number, What: "its port"},
	{Name: "dest_port", Type: Number, What: "its port"},
	{Name: "proto", Type: Text, Values: protocols, Numbers: true,
		What: "protocol: TCP, UDP, ICMP, ..."},
	{Name: "app_proto", Type: Text, Values: appProtocols,
		What: "protocol above it: http, tls, ssh, failed, ..."},
	{Name: "in_iface", Type: Text, What: "interface"},
	{Name: "host", Type: Text, What: "name of the sensor"},
	{Name: "flow_id", Type: Number, What: "flow"},
	{Name: "community_id", Type: Text, What: "flow, as other tools number it"},
	{Name: "direction", Type: Text, Values: []string{"to_server", "to_client"}, What: "to_server " +
		"or to_client"},
	{Name: "pkt_src", Type: Text, What: "where the packet comes from"},
	{Name: "vlan", Type: Number, What: "VLAN ids"},
	{Name: "icmp_type", Type: Number, What: "type of ICMP"},
	{Name: "icmp_code", Type: Number, What: "code of ICMP"},
	{Name: "alert.action", Type: Text, Values: []string{"allowed", "blocked"}, What: "allowed or " +
		"blocked"},
	{Name: "alert.gid", Type: Number, What: "group of signatures"},
	{Name: "alert.signature_id", Type: Number, What: "signature"},
	{Name: "alert.rev", Type: Number, What: "its revision"},
	{Name: "alert.signature", Type: Text, What: "its message"},
	{Name: "alert.category", Type: Text, What: "its class"},
	{Name: "alert.severity", Type: Number, What: "1 is the most severe"},
	{Name: "alert.source.ip", Type: Address, What: "source by the signature (target)"},
	{Name: "alert.target.ip", Type: Address, What: "target by the signature (target)"},
	{Name: "alert.xff", Type: Address, What: "client behind a proxy, if Suricata is told to " +
		"believe it"},
	{Name: "alert.metadata.signature_severity", Type: Text, What: "Major, Critical, ..."},
	{Name: "alert.metadata.attack_target", Type: Text, What: "Web_Server, ..."},
	{Name: "alert.metadata.deployment", Type: Text, What: "Perimeter, ..."},
	{Name: "alert.metadata.affected_product", Type: Text, What: "product"},
	{Name: "alert.metadata.confidence", Type: Text, What: "Low, Medium, High"},
	{Name: "alert.metadata.tag", Type: Text, What: "tag"},
	{Name: "alert.metadata.cve", Type: Text, What: "CVE_2021_41773, ..."},
	{Name: "alert.metadata.mitre_technique_id", Type: Text, What: "T1190, ..."},
	{Name: "http.hostname", Type: Text, Domain: true, What: "host that was asked for"},
	{Name: "http.url", Type: Text, What: "path and query"},
	{Name: "http.http_user_agent", Type: Text, What: "user agent"},
	{Name: "http.http_refer", Type: Text, What: "where the client comes from, as it says"},
	{Name: "http.http_method", Type: Text, What: "method"},
	{Name: "http.protocol", Type: Text, What: "HTTP/1.1, ..."},
	{Name: "http.http_content_type", Type: Text, What: "type of what was answered"},
	{Name: "http.status", Type: Number, What: "status of the answer"},
	{Name: "http.length", Type: Number, What: "bytes of the body"},
	{Name: "http.xff", Type: Address, What: "client behind a proxy, if Suricata is told to " +
		"believe it"},
	{Name: "dns.type", Type: Text, Values: []string{"query", "answer", "request", "response"},
		What: "query or answer"},
	{Name: "dns.rrname", Type: Text, Domain: true, What: "name",
		Also: []string{"dns.queries[].rrname", "dns.query[].rrname"}}, // of Suricata 8, of alerts
	{Name: "dns.rrtype", Type: Text, Values: rrTypes, Numbers: true, What: "A, AAAA, TXT, ...",
		Also: []string{"dns.queries[].rrtype", "dns.query[].rrtype"}},
	{Name: "dns.rcode", Type: Text, Values: rcodes, Numbers: true, What: "NOERROR, NXDOMAIN, ..."},
	{Name: "tls.sni", Type: Text, Domain: true, What: "name that was asked for"},
	{Name: "tls.version", Type: Text, Values: tlsVersions, Numbers: true,
		What: "TLSv1, TLS 1.1, TLS 1.2, TLS 1.3"},
	{Name: "tls.subject", Type: Text, What: "of the certificate"},
	{Name: "tls.issuerdn", Type: Text, What: "of the certificate"},
	{Name: "tls.fingerprint", Type: Text, What: "SHA-1 of the certificate"},
	{Name: "tls.client_alpns", Type: Text, What: "protocols that the client offers"},
	{Name: "tls.ja3.string", Type: Text, What: "what JA3 is the hash of"},
	{Name: "tls.ja3.hash", Type: Text, What: "JA3 of the client"},
	{Name: "tls.ja4", Type: Text, What: "JA4 of the client"},
	{Name: "quic.version", Type: Text, What: "version in hexadecimal, 1 of RFC 9000"},
	{Name: "quic.sni", Type: Text, Domain: true, What: "name that was asked for"},
	{Name: "quic.ja3.string", Type: Text, What: "what JA3 is the hash of"},
	{Name: "quic.ja3.hash", Type: Text, What: "JA3 of the client"},
	{Name: "quic.ja4", Type: Text, What: "JA4 of the client"},
	{Name: "dtls.sni", Type: Text, Domain: true, What: "name that was asked for"},
	{Name: "dtls.client_alpns", Type: Text, What: "protocols that the client offers"},
	{Name: "dtls.ja3.string", Type: Text, What: "what JA3 is the hash of"},
	{Name: "dtls.ja3.hash", Type: Text, What: "JA3 of the client"},
	{Name: "dtls.ja4", Type: Text, What: "JA4 of the client"},
	{Name: "ssh.client.software_version", Type: Text, What: "software of the client"},
	{Name: "ssh.client.proto_version", Type: Text, What: "2.0, ..."},
	{Name: "ssh.client.hassh.hash", Type: Text, What: "HASSH of the client"},
	{Name: "ssh.client.hassh.string", Type: Text, What: "what it is the hash of"},
	{Name: "sip.method", Type: Text, What: "method"},
	{Name: "smb.command", Type: Text, What: "SMB2_COMMAND_SESSION_SETUP, ..."},
	{Name: "smb.dialect", Type: Text, What: "version"},
	{Name: "smb.status", Type: Text, What: "STATUS_LOGON_FAILURE, ..."},
	{Name: "smb.filename", Type: Text, What: "file"},
	{Name: "smb.share", Type: Text, What: "share"},
	{Name: "smb.ntlmssp.user", Type: Text, What: "user"},
	{Name: "smb.ntlmssp.host", Type: Text, What: "name of the client, as it says"},
	{Name: "ftp.command", Type: Text, What: "command"},
	{Name: "ftp.command_data", Type: Text, What: "what stands behind it"},
	{Name: "ftp.completion_code", Type: Text, What: "530, ..."},
	{Name: "rdp.cookie", Type: Text, What: "user, as the client says"},
	{Name: "rdp.client.client_name", Type: Text, What: "name of the client, as it says"},
	{Name: "rfb.authentication.security_result", Type: Text, Values: []string{"OK", "FAIL",
		"TOOMANY"}, What: "OK, FAIL, TOOMANY",
		Also: []string{"rfb.authentication.security-result"}}, // of FAIL (rust/src/rfb/logger.rs)
	{Name: "krb5.error_code", Type: Text, What: "KDC_ERR_PREAUTH_FAILED, ..."},
	{Name: "snmp.community", Type: Text, What: "community"},
	{Name: "mqtt.connect.username", Type: Text, What: "user"},
	{Name: "mqtt.connect.client_id", Type: Text, What: "client, as it says"},
	{Name: "tftp.file", Type: Text, What: "file"},
	{Name: "fileinfo.filename", Type: Text, What: "file that was transferred"},
	{Name: "fileinfo.md5", Type: Text, What: "its MD5"},
	{Name: "fileinfo.sha256", Type: Text, What: "its SHA-256"},
	{Name: "drop.reason", Type: Text, What: "why Suricata dropped a packet: rules, flow drop, ..."},
	{Name: "smtp.helo", Type: Text, What: "HELO"},
	{Name: "smtp.mail_from", Type: Text, What: "envelope"},
	{Name: "smtp.rcpt_to", Type: Text, What: "recipients"},
	{Name: "payload_printable", Type: Text, What: "payload, with a dot for what is not printable"},
	{Name: "anomaly.type", Type: Text, Values: []string{"decode", "stream", "applayer"},
		What: "decode, stream or applayer"},
	{Name: "anomaly.event", Type: Text, What: "event"},
	{Name: "anomaly.layer", Type: Text, What: "who has seen it: proto_parser, proto_detect, ..."},
	{Name: "anomaly.app_proto", Type: Text, Values: appProtocols, What: "protocol that it is of"},
	{Name: "mpegts.event", Type: Text, Values: []string{"stream", "discontinuity", "no_signal",
		"signal", "scrambled", "clear", "damaged", "fragments", "no_room"},
		What: "of `levee monitor mpegts`"},
	{Name: "mpegts.pid", Type: Number, What: "PID that it is of"},
	{Name: "mpegts.discontinuities", Type: Number, What: "how many"},
	{Name: "mpegts.missing", Type: Number, What: "packets, at least"},
	{Name: "mpegts.rtp_lost", Type: Number, What: "datagrams"},
	{Name: "mpegts.packets", Type: Number, What: "packets or datagrams"},
	{Name: "mpegts.silent", Type: Number, What: "seconds without signal"},
	{Name: "flow.pkts_toserver", Type: Number, What: "packets"},
	{Name: "flow.pkts_toclient", Type: Number, What: "packets"},
	{Name: "flow.bytes_toserver", Type: Number, What: "bytes"},
	{Name: "flow.bytes_toclient", Type: Number, What: "bytes"},
	{Name: "flow.age", Type: Number, What: "seconds"},
	{Name: "flow.state", Type: Text, Values: []string{"new", "established", "closed", "bypassed"},
		What: "new, established, closed"},
	{Name: "flow.reason", Type: Text, Values: []string{"timeout", "forced", "shutdown",
		"tcp_reuse", "unknown"},
		What: "timeout, forced, shutdown"},
}

// eventTypes are those of the user guide of Suricata 8, of older ones, and of what the agent reads
// itself.
var eventTypes = []string{
	"alert", "anomaly", "arp", "banner", "bittorrent_dht", "dcerpc", "dhcp", "dnp3", "dns", "doh2",
	"drop", "dtls", "engine", "enip", "fileinfo", "flow", "frame", "ftp", "ftp_data", "http", "ike",
	"ikev2", "krb5", "ldap", "llmnr", "mdns", "metadata", "modbus", "mpegts", "mqtt",
	"netflow", "nfs", "packetinfo", "pgsql", "pop3", "quic", "rdp", "rfb", "sip", "smb",
	"smtp", "snmp", "ssh", "stats", "template", "tftp", "tls", "verdict", "websocket",
}

// protocols are as Suricata names them: the common ones of its table (util-proto-name.c), and those
// that versions before 7 took from /etc/protocols.
var protocols = []string{"TCP", "UDP", "ICMP", "IPv6-ICMP", "SCTP", "GRE", "ESP", "AH", "IP",
	"IPv6", "IGMP", "OSPFIGP", "OSPF", "PIM", "VRRP", "EIGRP", "IPIP", "IP-in-IP", "L2TP", "DCCP",
	"UDPLite", "IPComp", "RSVP", "ETHERIP", "HOPOPT", "IPv6-NoNxt"}

// appProtocols are those of Suricata 5 to 8. http is HTTP/1; http_any stands in rules.
var appProtocols = []string{
	"bittorrent-dht", "dcerpc", "dhcp", "dnp3", "dns", "doh2", "enip", "failed", "ftp", "ftp-data",
	"http", "http2", "http_any", "ike", "ikev2", "imap", "irc", "jabber", "krb5", "ldap", "mdns",
	"modbus", "mqtt", "msn", "mysql", "nfs", "ntp", "pgsql", "pop3", "quic", "rdp", "rfb", "sip",
	"smb", "smtp", "snmp", "ssh", "telnet", "template", "template-rust", "tftp", "tls", "unknown",
	"websocket",
}

// tlsVersions are those of Suricata 5 to 8 (SSLVersionToString), which write another version as a
// number, in hexadecimal before 8.
var tlsVersions = []string{"UNDETERMINED", "SSLv2", "SSLv3", "TLSv1", "TLS 1.1", "TLS 1.2",
	"TLS 1.3", "TLS 1.3 draft-<16", "TLS 1.3 draft-16", "TLS 1.3 draft-17", "TLS 1.3 draft-18",
	"TLS 1.3 draft-19", "TLS 1.3 draft-20", "TLS 1.3 draft-20-fb", "TLS 1.3 draft-21",
	"TLS 1.3 draft-21-fb", "TLS 1.3 draft-22", "TLS 1.3 draft-22-fb", "TLS 1.3 draft-23",
	"TLS 1.3 draft-23-fb", "TLS 1.3 draft-24", "TLS 1.3 draft-25", "TLS 1.3 draft-26",
	"TLS 1.3 draft-26-fb", "TLS 1.3 draft-27", "TLS 1.3 draft-28"}

// rcodes and rrTypes are as versions of Suricata name them, which misspell some.
var (
	rcodes = []string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN",
		"YXRRSET", "NXRRSET", "NOTAUTH", "NOTZONE", "BADVERS/BADSIG", "BADKEY", "BADTIME",
		"BADMODE", "BADNAME", "BADALG", "BADTRUNC"}
	rrTypes = []string{"A", "NS", "MD", "MF", "CNAME", "SOA", "MB", "MG", "MR", "NULL", "WKS",
		"PTR", "HINFO", "MINFO", "MX", "TXT", "RP", "AFSDB", "X25", "ISDN", "RT", "NSAP",
		"NSAPPTR", "SIG", "KEY", "PX", "GPOS", "AAAA", "LOC", "NXT", "SRV", "ATMA", "NAPTR", "KX",
		"CERT", "A6", "DNAME", "OPT", "APL", "DS", "SSHFP", "IPSECKEY", "RRSIG", "NSEC", "DNSKEY",
		"DHCID", "NSEC3", "NSEC3PARAM", "TLSA", "HIP", "CDS", "CDNSKEY", "HTTPS", "SVCB", "SPF",
		"TKEY", "TSIG", "IXFR", "AXFR", "MAILA", "ANY", "URI", "ND", "NSAPPT", "CDSNKEY"}
)

// Known tells whether one of the values that a field may have is the text, or contains, begins or
// ends with it, as how says. Where one does in other letters alone, it is near. Of a field whose
// values are not known any may.
func (f Field) Known(how, text string) (is bool, near string) {
	holds := func(v, s string) bool { return v == s }
	switch how {
	case "contains":
		holds = strings.Contains
	case "begins":
		holds = strings.HasPrefix
	case "ends":
		holds = strings.HasSuffix
	}
	for _, v := range f.Values {
		if holds(v, text) {
			return true, ""
		}
		if near == "" && holds(strings.ToLower(v), strings.ToLower(text)) {
			near = v
		}
	}
	number := strings.TrimPrefix(text, "TYPE") // so say streams of the agent
	_, err := strconv.ParseUint(number, 0, 32)
	return len(f.Values) == 0 || f.Numbers && err == nil, near
}
