package region

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

func leavingPolicy(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, ds := resolve.Parse("rules.levee", []byte(text), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	return p
}

// TestADifferenceOfWhatLeavesWasNone: `levee diff`, and `levee up` that replaces a policy, looked
// at what arrives only, and said that no packet is decided otherwise.
func TestADifferenceOfWhatLeavesWasNone(t *testing.T) {
	const said = "default drop\nout drop tcp port 25 as \"smtp\"\n"
	for _, c := range []struct{ a, b, before, after, test string }{
		{"default drop\n", said, "out:default", "out drop tcp port 25 as \"smtp\"",
			"port 25 leaves expect drop"},
		{said, "default drop\n", "out drop tcp port 25 as \"smtp\"", "out:default",
			"port 25 leaves expect pass"},
		{said, said + "out default drop\n", "out:default", "default", "leaves expect drop"},
	} {
		a, b := leavingPolicy(t, c.a), leavingPolicy(t, c.b)
		told := Compare(t.Context(), a, b).Tell(a, b)
		found := false
		for _, d := range told.Differences {
			if !strings.HasPrefix(d.Parts[0].Kind, "what leaves") {
				t.Errorf("%q to %q: %+v", c.a, c.b, d)
			}
			found = found || strings.Contains(d.Before.line(), c.before) &&
				len(d.Test) > 0 && strings.HasSuffix(d.Test[len(d.Test)-1], c.test)
		}
		if !found {
			t.Errorf("%q to %q: %+v", c.a, c.b, told.Differences)
		}
	}
	a, b := leavingPolicy(t, said), leavingPolicy(t, said)
	if told := Compare(t.Context(), a, b).Tell(a, b); len(told.Differences) > 0 {
		t.Errorf("the same twice: %+v", told.Differences)
	}
}

// TestADifferenceOfUsersWasNone: rules name users by places in lists, and each policy has its own.
func TestADifferenceOfUsersWasNone(t *testing.T) {
	policy := func(user string) *policy.Policy {
		return leavingPolicy(t, "default drop\nout pass tcp port 25 user "+user+
			"\nout default drop\n")
	}
	a, b := policy("www-data"), policy("{ postfix, www-data }")
	told := Compare(t.Context(), a, b).Tell(a, b)
	if len(told.Differences) != 1 || told.Differences[0].Parts[0].Match !=
		`to port 25 user { "www-data", "postfix" }` || strings.Join(told.Differences[0].Test, "; ") !=
		`packet ipv4 tcp port 25 user "postfix" leaves expect pass` {
		t.Errorf("%+v", told.Differences)
	}
	a, b = policy("{ www-data, postfix }"), policy("{ postfix, www-data }")
	if told := Compare(t.Context(), a, b).Tell(a, b); len(told.Differences) > 0 {
		t.Errorf("in another order: %+v", told.Differences)
	}
}

// TestAnExampleHadAUnitAndNoContainer: the kernel tells both or neither, so that no test could show
// the packets that came past the first rule so, and none was found that a test can show.
func TestAnExampleHadAUnitAndNoContainer(t *testing.T) {
	const front = "default drop\nout pass not container { web, db }\n" +
		"out pass container db not service { \"nginx.service\", \"a.scope\" }\n"
	a := leavingPolicy(t, front+"out drop not container db\n")
	b := leavingPolicy(t, front+"out drop to 10.0.0.0/8 not service { \"nginx.service\", "+
		"\"postfix.service\" }\nout drop not container db\n")
	told := Compare(t.Context(), a, b).Tell(a, b)
	for _, d := range told.Differences {
		if !strings.Contains(strings.Join(d.Test, "; "), `service "a.scope" container "db"`) {
			t.Errorf("%s: %q", d.Before.line(), d.Test)
		}
	}
	if len(told.Differences) == 0 {
		t.Error("no difference")
	}
}

// TestWhatAnswersIsShownByPacketsBefore: an answer over UDP has a question in front of it.
func TestWhatAnswersIsShownByPacketsBefore(t *testing.T) {
	for _, c := range []struct{ rule, test string }{
		{"out pass udp established", "packet ipv4 udp from 198.51.100.1 to 192.0.2.1 from port 9 " +
			"port 40000; packet ipv4 udp from port 40000 leaves expect pass"},
		{"out pass tcp flags ack/syn,rst,ack established", "packet ipv4 tcp from 192.0.2.1 to " +
			"198.51.100.1 from port 40000 port 9 syn leaves; packet ipv4 tcp from 198.51.100.1 " +
			"to 192.0.2.1 from port 9 port 40000 flags syn,ack; packet ipv4 tcp flags ack " +
			"leaves expect pass"},
		{"out pass icmp established", "packet ipv4 icmp type 0/0 leaves expect pass"},
		{"out pass tcp syn established", ""},
	} {
		const rest = "out pass tcp syn\nout default drop\n"
		a, b := leavingPolicy(t, "default pass\n"+rest),
			leavingPolicy(t, "default pass\n"+c.rule+"\n"+rest)
		told := Compare(t.Context(), a, b).Tell(a, b)
		test := ""
		for _, d := range told.Differences {
			test = strings.Join(d.Test, "; ")
		}
		if test != c.test {
			t.Errorf("%s: %q", c.rule, test)
		}
	}
}

// TestAQuestionAboutWhatLeaves: questions were of what arrives alone.
func TestAQuestionAboutWhatLeaves(t *testing.T) {
	const text = "default drop\nout pass established\nout pass tcp port 25 user www-data\n" +
		"out drop uid 0-999 tcp\nout default drop\n"
	for _, c := range []struct{ ask, want string }{
		{"out tcp syn port 25", `pass  rules.levee:3  out pass tcp port 25 user www-data
    from anywhere, not established user "www-data"  (TCP)
drop  rules.levee:4  out drop tcp uid 0-999
    from anywhere, not established user none or not "www-data" uid 0-999  (TCP)
drop  rules.levee:5
    from anywhere, not established user none or not "www-data" uid none or 1000-4294967294  (TCP)
`},
		{"out forwarded tcp syn port 25", `drop  rules.levee:5
    from anywhere, not established user none uid none  (TCP)
`},
	} {
		q, ds := Ask("rules.levee", []byte(text), c.ask, nil)
		if q == nil {
			t.Fatal(ds.Err())
		}
		var got strings.Builder
		told := q.Tell(q.Who())
		told.Print(&got)
		if d := cmp.Diff(c.want, got.String()); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.ask, d)
		}
	}
}

// TestWhatWasBeforeDidNotPass: packets that make a connection known had no length, payload and
// sender, and where rules ask for these, nothing was known of it and no example found.
func TestWhatWasBeforeDidNotPass(t *testing.T) {
	const front = "pass established\ndefault drop\n"
	const groups = "default pass\nout pass udp to 198.51.100.0/24 port 53\nout default drop\n"
	const twoEnds = "default pass\nout pass udp to { 192.0.2.2, 203.0.113.1 }\nout default drop\n"
	for _, c := range []struct{ name, a, b, test string }{
		{"a query", front + "out pass udp port 53 dns query\nout default drop\n",
			front + "out drop udp port 53 dns query established\nout pass udp port 53 dns query\n" +
				"out default drop\n", "dns"},
		{"a length", front + "out pass udp len > 100\nout default drop\n",
			front + "out drop udp len > 100 established\nout pass udp len > 100\n" +
				"out default drop\n", "len 101"},
		{"the length of what comes", "pass udp len > 100\ndefault drop\nout default drop\n",
			"pass udp len > 100\ndefault drop\nout pass udp established\nout default drop\n",
			"len 1400"},
		{"a sender", front + "out pass udp user www-data\nout default drop\n",
			front + "out drop udp user www-data established\nout pass udp user www-data\n" +
				"out default drop\n", `user "www-data" leaves; `},
		{"the sender of what left", front + "out pass udp user www-data\nout default drop\n",
			"drop udp established\n" + front + "out pass udp user www-data\nout default drop\n",
			`user "www-data" leaves; packet ipv4 udp expect drop`},
		{"that of a connection", front + "out pass tcp service \"a.service\"\nout default drop\n",
			"drop tcp established\n" + front + "out pass tcp service \"a.service\"\n" +
				"out default drop\n", `service "a.service" leaves; `},
		{"the address to which it began", front + "out pass udp port 53 to 10.1.2.0/24\n" +
			"out default drop\n", "default drop\nout pass udp port 53 to 10.1.2.0/24\n" +
			"out default drop\n", "from 10.1.2.0 from port 53 expect drop"},
		{"the port at which it began", "pass udp port 25\nout pass udp established\n" +
			"default drop\nout default drop\n", "pass udp port 25\ndefault drop\n" +
			"out default drop\n", "port 25; packet ipv4 udp from port 25"},
		{"a query of a group", front + "out pass udp dns name \"a.example\" group adm\n" +
			"out default drop\n", "default drop\nout pass udp dns name \"a.example\" group adm\n" +
			"out default drop\n", `" group "adm" leaves; `},
		{"an entry of a set", "set ntp = dynamic(max 9)\n" + front + "out pass udp to ntp\n" +
			"out default drop\n", "set ntp = dynamic(max 9)\ndefault drop\nout pass udp to ntp\n" +
			"out default drop\n", "set ntp has "},
		{"a SYN-ACK", front + "out pass tcp established\nout default drop\n",
			"default drop\nout pass tcp established\nout default drop\n", "flags syn,ack"},
		{"an error", "pass icmp established\ndefault drop\nout pass tcp port 25\n" +
			"out default drop\n", "default drop\nout pass tcp port 25\nout default drop\n",
			"type 3/3 payload hex"},
		{"a long SYN", front + "out pass len 64-1400\nout default drop\n",
			"drop tcp established\n" + front + "out pass len 64-1400\nout default drop\n",
			"syn len 1400 leaves; "},
		{"a SYN-ACK of some length", "drop tcp established\ndefault pass\n" +
			"out pass tcp len 64-1400 established\nout default drop\n", "default pass\n" +
			"out pass tcp len 64-1400 established\nout default drop\n", "len 64 leaves; "},
		{"a question to a group", "drop udp from 10.1.0.0/16 port 40000 established\n" +
			groups,
			groups, "to 198.51.100.1 port 53 ether to 33:33:00:00:00:01 leaves; "},
		{"a query of this side", "out pass udp dns query user www-data\n" +
			"out pass udp len 100 established\n" + front + "out default drop\n",
			"out pass udp dns query user www-data\n" + front + "out default drop\n",
			`user "www-data" leaves; `},
		{"one of two addresses", "pass udp from 192.0.2.2\ndrop udp port 40000 established\n" +
			twoEnds,
			"pass udp from 192.0.2.2\n" + twoEnds, "from 203.0.113.1 "},
	} {
		a, b := leavingPolicy(t, c.a), leavingPolicy(t, c.b)
		told := Compare(t.Context(), a, b).Tell(a, b)
		if len(told.Differences) == 0 {
			t.Errorf("%s: no difference", c.name)
		}
		for _, d := range told.Differences {
			test := strings.Join(d.Test, "; ")
			if want := c.test; test == "" || want != "dns" && !strings.Contains(test, want) ||
				want == "dns" && strings.Count(test, "payload hex") < 2 {
				t.Errorf("%s: %q", c.name, test)
			}
		}
	}
}

// TestNobodySaidWhyAConnectionHasNoExample: of connections that no packet begins under one of the
// policies, `levee diff` said that no test can show them, and not why.
func TestNobodySaidWhyAConnectionHasNoExample(t *testing.T) {
	for _, c := range []struct{ name, rest string }{
		{"nothing leaves", "default pass\nout drop udp\n"},
		{"others begin", "default pass\nout pass udp from 10.0.0.1\nout default drop\n"},
	} {
		a := leavingPolicy(t, "drop udp to 203.0.113.1 port 40000 established\n"+c.rest)
		b := leavingPolicy(t, c.rest)
		told := Compare(t.Context(), a, b).Tell(a, b)
		if len(told.Differences) == 0 {
			t.Errorf("%s: no difference", c.name)
		}
		for _, d := range told.Differences {
			if len(d.Test) > 0 || !strings.HasSuffix(d.Parts[0].line(), ", as where "+otherRules) {
				t.Errorf("%s: %q, %s", c.name, d.Test, d.Parts[0].line())
			}
		}
	}
}
