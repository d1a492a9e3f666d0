package guard

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// TestASessionThatCannotBeBegunAgain: its packets pass, and the first of the next one does not.
func TestASessionThatCannotBeBegunAgain(t *testing.T) {
	for _, c := range []struct{ policy, decider string }{
		{"pass tcp flags ack\ndefault drop\n", "the default (edge.levee:2)"},
		{"drop tcp syn port 22 as \"no more\"\ndefault pass\n", `"no more" (edge.levee:1)`},
		{"pass tcp port 22\ndefault drop\n", ""},
		{"pass tcp syn port 22\ndefault drop\n", ""},
		// a cookie answers it, and the client says it again
		{"cookie tcp port 22\npass tcp port 22\ndefault drop\n", ""},
		{"cookie tcp port 22\npass established\npass proven tcp port 22\ndefault drop\n", ""},
		// no cookie answers it
		{"cookie tcp port 80\npass established\npass proven tcp port 22\ndefault drop\n",
			"the default (edge.levee:4)"},
		{"cookie tcp port 22 above 10kpps\npass established\npass proven tcp port 22\n" +
			"default drop\n", "the default (edge.levee:4)"},
		{"cookie dns udp port 53\npass established\npass proven tcp port 22\ndefault drop\n",
			"the default (edge.levee:4)"},
		// a cookie answers some
		{"cookie tcp from port < 32768 port 22\npass established\npass proven tcp port 22\n" +
			"default drop\n", "the default (edge.levee:4)"},
		{"drop tcp syn from port < 32768 not proven as \"low\"\ncookie tcp port 22\n" +
			"pass established\npass proven tcp port 22\ndefault drop\n",
			`"low" (edge.levee:1)`},
		{"cookie tcp from port < 32768 port 22\npass tcp port 22\ndefault drop\n", ""},
		{"cookie tcp port 22\npass established\ndrop proven tcp port 22 as \"twice\"\n" +
			"default pass\n", `"twice" (edge.levee:3)`},
		{"pass established\npass proven tcp port 22\ndefault drop\n",
			"the default (edge.levee:3)"},
		{"limit tcp syn port 22 rate 10/m by source\ndefault pass\n", ""},
		// what one made-up SYN did not show
		{"drop tcp syn from port < 32768 as \"low\"\ndefault pass\n", `"low" (edge.levee:1)`},
		{"drop tcp syn len < 60 as \"short\"\ndefault pass\n", `"short" (edge.levee:1)`},
		{"drop tcp syn ttl < 64 as \"far\"\ndefault pass\n", `"far" (edge.levee:1)`},
		{"drop tcp flags syn,ece,cwr as \"ecn\"\ndefault pass\n", `"ecn" (edge.levee:1)`},
		// what no system begins a connection with
		{"drop tcp syn window 1024\ndrop tcp syn len 40\ndrop tcp flags syn,fin\n" +
			"drop tcp from port < 1024\ndefault pass\n", ""},
	} {
		var cut *CutError
		err := CheckNew(parse(t, c.policy), packet.Ethernet, ssh(), nil)
		if (c.decider == "") != (err == nil) || err != nil && (!errors.As(err, &cut) ||
			cut.Decider != c.decider || !strings.HasPrefix(err.Error(),
			"a new connection such as an SSH session, from 192.0.2.7:50000 to ")) {
			t.Errorf("%q: %v", c.policy, err)
		}
	}
}

// TestTheAnswerToTheNextLoginWasDroppedInSilence: rules for what leaves were asked about packets of
// the session alone.
func TestTheAnswerToTheNextLoginWasDroppedInSilence(t *testing.T) {
	for text, decider := range map[string]string{
		"out drop tcp flags syn,ack as \"answers\"\ndefault pass": `"answers" (edge.levee:1)`,
		"out pass tcp from port 22 flags ack/syn,ack\ndefault pass\nout default drop": "the " +
			"default (edge.levee:3)",
		"out drop tcp from port 22 port < 32768 as \"low\"\ndefault pass": `"low" (edge.levee:1)`,
		"out drop tcp uid 0 flags syn,ack\ndefault pass":                  "`out drop",
		"out pass established\nout default drop\ndefault pass":            "",
		"out pass tcp from port 22\nout default drop\ndefault pass":       "",
		"out drop tcp syn\ndefault pass":                                  "",
		"out drop tcp uid 33 flags syn,ack\ndefault pass":                 "",
		"out drop tcp from port 22 port < 1024\ndefault pass":             "",
	} {
		p := parse(t, text+"\n")
		if err := Check(p, packet.Ethernet, rooted(), nil); err != nil {
			t.Errorf("%q: the session ends: %v", text, err)
		}
		var cut *CutError
		err := CheckNew(p, packet.Ethernet, rooted(), nil)
		if (decider == "") != (err == nil) || err != nil && (!errors.As(err, &cut) ||
			!strings.HasPrefix(cut.Decider, decider) || !strings.HasPrefix(cut.Remedy, "out ")) {
			t.Errorf("%q: %v", text, err)
		}
	}
	want := "a new connection such as an SSH session, from 192.0.2.7:50000 to 198.51.100.1:22, " +
		"would end: the answer to its first packet would be dropped by \"answers\" " +
		"(edge.levee:1); let it pass (`out protect to 192.0.2.7 tcp from port 22`)"
	p := parse(t, "out drop tcp flags syn,ack as \"answers\"\ndefault pass\n")
	if err := CheckNew(p, packet.Ethernet, ssh(), nil); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// TestASessionThatIsBegunElsewhere: nobody begins again what this machine began, and what dynamic
// sets hold counts.
func TestASessionThatIsBegunElsewhere(t *testing.T) {
	p := parse(t, "set admins = dynamic(max 9)\npass established\n"+
		"pass tcp port 22 from admins\ndefault drop\n")
	if err := CheckNew(p, packet.Ethernet, ssh(), nil); err == nil {
		t.Error("an empty set lets a new session pass")
	}
	in := policy.Element{Prefix: netip.MustParsePrefix("192.0.2.0/24")}
	if err := CheckNew(p, packet.Ethernet, ssh(), Entries{"admins": {in}}); err != nil {
		t.Error(err)
	}
	began := ssh()
	began[0].Again = false
	if err := CheckNew(p, packet.Ethernet, began, nil); err != nil {
		t.Error(err)
	}
}
