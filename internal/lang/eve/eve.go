// Package eve is the table of fields that conditions on Suricata's EVE records may name.
//
// In goes the name of a field as a policy writes it, out comes its type. The names are paths into
// the JSON object, joined by dots, as Suricata's user guide ("EVE JSON Format") has them. It reads
// no records and knows no policies.
package eve

// Type is what the values of a field are.
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
	Name string
	Type Type
	What string // in a few words
}

// Named is the field of a name.
func Named(name string) (Field, bool) {
	f, ok := byName[name]
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
	{"event_type", Text, "kind of record: alert, http, dns, flow, ..."},
	{"src_ip", Address, "who sent the packet"},
	{"dest_ip", Address, "who it was sent to"},
	{"src_port", Number, "its port"},
	{"dest_port", Number, "its port"},
	{"proto", Text, "protocol: TCP, UDP, ICMP, ..."},
	{"app_proto", Text, "protocol above it: http, tls, ssh, failed, ..."},
	{"in_iface", Text, "interface"},
	{"host", Text, "name of the sensor"},
	{"flow_id", Number, "flow"},
	{"community_id", Text, "flow, as other tools number it"},
	{"direction", Text, "to_server or to_client"},
	{"pkt_src", Text, "where the packet comes from"},
	{"vlan", Number, "VLAN ids"},
	{"icmp_type", Number, "type of ICMP"},
	{"icmp_code", Number, "code of ICMP"},
	{"alert.action", Text, "allowed or blocked"},
	{"alert.gid", Number, "group of signatures"},
	{"alert.signature_id", Number, "signature"},
	{"alert.rev", Number, "its revision"},
	{"alert.signature", Text, "its message"},
	{"alert.category", Text, "its class"},
	{"alert.severity", Number, "1 is the most severe"},
	{"alert.source.ip", Address, "source by the signature (target)"},
	{"alert.target.ip", Address, "target by the signature (target)"},
	{"alert.metadata.signature_severity", Text, "Major, Critical, ..."},
	{"alert.metadata.attack_target", Text, "Web_Server, ..."},
	{"alert.metadata.deployment", Text, "Perimeter, ..."},
	{"alert.metadata.affected_product", Text, "product"},
	{"alert.metadata.confidence", Text, "Low, Medium, High"},
	{"alert.metadata.tag", Text, "tag"},
	{"alert.metadata.cve", Text, "CVE_2021_41773, ..."},
	{"alert.metadata.mitre_technique_id", Text, "T1190, ..."},
	{"http.hostname", Text, "host that was asked for"},
	{"http.url", Text, "path and query"},
	{"http.http_user_agent", Text, "user agent"},
	{"http.http_method", Text, "method"},
	{"http.protocol", Text, "HTTP/1.1, ..."},
	{"http.status", Number, "status of the answer"},
	{"http.length", Number, "bytes of the body"},
	{"http.xff", Address, "client behind a proxy, if Suricata is told to believe it"},
	{"dns.type", Text, "query or answer"},
	{"dns.rrname", Text, "name"},
	{"dns.rrtype", Text, "A, AAAA, TXT, ..."},
	{"dns.rcode", Text, "NOERROR, NXDOMAIN, ..."},
	{"tls.sni", Text, "name that was asked for"},
	{"tls.version", Text, "version"},
	{"tls.subject", Text, "of the certificate"},
	{"tls.issuerdn", Text, "of the certificate"},
	{"tls.fingerprint", Text, "SHA-1 of the certificate"},
	{"tls.ja3.hash", Text, "JA3 of the client"},
	{"tls.ja4", Text, "JA4 of the client"},
	{"ssh.client.software_version", Text, "software of the client"},
	{"ssh.client.hassh.hash", Text, "HASSH of the client"},
	{"sip.method", Text, "method"},
	{"smtp.helo", Text, "HELO"},
	{"smtp.mail_from", Text, "envelope"},
	{"anomaly.type", Text, "decode, stream or applayer"},
	{"anomaly.event", Text, "event"},
	{"flow.pkts_toserver", Number, "packets"},
	{"flow.pkts_toclient", Number, "packets"},
	{"flow.bytes_toserver", Number, "bytes"},
	{"flow.bytes_toclient", Number, "bytes"},
	{"flow.state", Text, "new, established, closed"},
	{"flow.reason", Text, "timeout, forced, shutdown"},
}
