// Package fieldtest is for tests that walk the table of fields: a field that is in the table and
// not handled in some stage fails the test of that stage.
package fieldtest

import (
	"fmt"

	"levee/internal/lang/field"
)

// Sample is a term of a policy that stands for itself, beside Sets.
type Sample struct {
	Text  string
	Field field.Field // that it asks for; None of `malformed`
}

// Side returns what stands in front of the rule of a sample: out where the field is of what leaves.
func (s Sample) Side() string {
	if s.Field.Info().Kernel == field.Leaving {
		return "out "
	}
	return ""
}

// Sets are the sets that samples name.
const Sets = `set hosts = { 192.0.2.0/24, 2001:db8::/32 }
set services = { tcp/80, udp/53 }
set endpoints = { 192.0.2.1 tcp/80, 192.0.2.1 gre, 2001:db8::1 icmp6 }
set zones = { "example.com", "*.evil.example" }
set leased = dynamic(max 9)
set openings = dynamic(of services, max 9)
set partners = dynamic(of endpoints, max 9)
`

// Samples are terms of each form of each row of the table, as they are printed.
func Samples() (all []Sample) {
	for i := range field.Phrases {
		all = append(all, of(&field.Phrases[i])...)
	}
	return all
}

func of(ph *field.Phrase) (all []Sample) {
	info := ph.Field.Info()
	add := func(f field.Field, values ...string) {
		for _, v := range values {
			all = append(all, Sample{ph.Word + " " + v, f})
		}
	}
	switch ph.Form {
	case field.FormAlone:
		return []Sample{{ph.Word, ph.Field}}
	case field.FormWord:
		for _, w := range ph.Words {
			all = append(all, Sample{w, ph.Field})
		}
	case field.FormNumber:
		least, most := 0, info.Max
		if ph.Field == field.VLAN || ph.Field == field.InnerVLAN {
			least = 1
		}
		add(ph.Field, fmt.Sprint(most), fmt.Sprint(most/2), fmt.Sprintf("%d-%d", least, most/2),
			fmt.Sprintf("{ %d, 3, %d }", least, most), fmt.Sprintf("< %d", least+1), "!= 1")
	case field.FormMAC:
		add(ph.Field, "02:00:00:00:00:99", "{ 02:00:00:00:00:03, ff:ff:ff:ff:ff:ff }")
	case field.FormSuffix:
		add(ph.Field, "::a/64", "{ ::a/64, ::211:22ff:fe33:4455/64 }")
	case field.FormBytes:
		add(ph.Field, "0 00ff", "12 4c00/ff00", "7 000102030405060708090a0b0c0d0e0f")
	case field.FormPattern:
		add(ph.Field, `"evil"`, "00ff17", `/^[a-c]+\x00/`, `{ "Evil", 0001, /e[a-c]?l/ } any case`)
	case field.FormName:
		add(ph.Field, `"www.example.com"`, "in zones", `in { "example.com", "*.example.net" }`)
	case field.FormSender:
		names := []string{"www-data", "{ postfix, \"first.last\" }"}
		if ph.Field == field.Service {
			names = []string{`"sshd.service"`, `{ "postfix.service", "getty@tty1.service" }`}
		}
		add(ph.Field, names...)
	case field.FormInner:
		return []Sample{
			{"inner( tcp syn from 192.0.2.0/24 port 22 )", ph.Field},
			{"inner( ipv6 not ttl < 5 )", ph.Field}, {"inner( vlan 5 udp from hosts )", ph.Field},
		}
	case field.FormICMP:
		add(ph.Field, "8", "3/4", "133-137", "{ 3/4, 11 }")
	case field.FormFlags:
		add(ph.Field, "none/syn,ack", "syn/syn,ack,rst")
	case field.FormAddress:
		service, endpoint := field.SrcService, field.SrcEndpoint
		if ph.Field == field.DstAddr {
			service, endpoint = field.DstService, field.DstEndpoint
		}
		add(ph.Field, "any", "192.0.2.1", "2001:db8::/32", "{ 10.0.0.0/8, 192.0.2.1-192.0.2.9 }",
			"hosts", "leased")
		add(service, "tcp/80", "{ tcp/80, udp/53 }", "services", "openings")
		add(endpoint, "192.0.2.1 tcp/80", "{ 192.0.2.1 gre, 2001:db8::1 icmp6 }", "endpoints",
			"partners")
	}
	if ph.Form == field.FormNumber || ph.Form == field.FormICMP || ph.Form == field.FormFlags {
		for _, n := range info.Names {
			add(ph.Field, n.Word)
		}
	}
	return all
}
