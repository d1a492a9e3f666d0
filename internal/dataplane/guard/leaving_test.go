package guard

import (
	"errors"
	"net/netip"
	"testing"

	"levee/internal/host/session"
	"levee/internal/packet"
)

// TestAPolicyThatDropsWhatASessionAnswersWasPutInForce: the guard looked at what arrives only, and
// a policy that drops what leaves cut the session off all the same.
func TestAPolicyThatDropsWhatASessionAnswersWasPutInForce(t *testing.T) {
	const pass = ""
	for _, c := range []struct{ name, policy, decider string }{
		{"default", "default pass\nout default drop\n", "the default (edge.levee:2)"},
		{"a rule", "out drop tcp from port 22 as \"ssh\"\ndefault pass\n", `"ssh" (edge.levee:1)`},
		{"other ports", "out drop tcp port 22\nout drop udp\ndefault pass\n", pass},
		{"protected", "out protect tcp from port 22\ndefault pass\nout default drop\n", pass},
		{"ARP", "out drop arp as \"arp\"\ndefault pass\n", `"arp" (edge.levee:1)`},
		{"what answers", "out pass established\ndefault pass\nout default drop\n", pass},
		{"what does not answer", "out drop not established\ndefault pass\n", pass},
		{"answers alone", "out drop tcp established as \"answers\"\ndefault pass\n",
			`"answers" (edge.levee:1)`},
		{"what is essential", "out pass tcp from port 22\ndefault pass\nout default drop\n", pass},
	} {
		s := ssh()
		s[0].Neighbour = netip.MustParseAddr("198.51.100.254")
		err := Check(parse(t, c.policy), packet.Ethernet, s, nil)
		var cut *CutError
		switch {
		case c.decider == pass && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.decider != pass && (!errors.As(err, &cut) || cut.Decider != c.decider):
			t.Errorf("%s: %v, want it dropped by %s", c.name, err, c.decider)
		}
	}
	p := parse(t, "default pass\nout default drop\n")
	want := "an SSH session, from 192.0.2.7:50000 to 198.51.100.1:22, would end: what it answers " +
		"would be dropped by the default (edge.levee:2); " +
		"let it pass (`out protect to 192.0.2.7 tcp from port 22`)"
	if err := Check(p, packet.Ethernet, ssh(), nil); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if left := Alive(p, packet.Ethernet, ssh(), nil); len(left) != 0 {
		t.Errorf("%v lives, and is answered by nobody", left)
	}
}

// rooted is an SSH session of a socket of root's here, to where the kernel routes back.
func rooted() []session.Session {
	s := ssh()
	s[0].Own, s[0].Users, s[0].Back = true, []string{"root", "toor"}, true
	return s
}

// TestWhoSendsASessionWasUnknown: a policy that says nothing of sshd, by who sends, was refused.
func TestWhoSendsASessionWasUnknown(t *testing.T) {
	for text, cut := range map[string]bool{
		"out drop forwarded":                                false,
		"out drop local tcp":                                true,
		"out drop uid >= 1000":                              false,
		"out drop uid 0":                                    true,
		"out drop user www-data":                            false,
		"out drop user { www-data, toor }":                  true,
		"out drop not user root":                            false,
		"out drop not user www-data":                        true,
		"out pass user toor\nout default drop":              false,
		"out pass uid 0\nout default drop":                  false,
		"out drop service \"ssh.service\"":                  true,
		"out drop gid 7":                                    true,
		"drop not reverse-path strict":                      false,
		"drop not reverse-path loose":                       false,
		"out limit tcp rate 10/m":                           true,
		"out limit tcp rate 1/s by destination":             true,
		"out limit tcp rate 1000/s":                         false,
		"out limit tcp uid >= 1000 rate 1/s":                false,
		"out limit udp rate 1/s":                            false,
		"out protect tcp from port 22\nout limit rate 10/m": false,
		"out pass established\nout limit tcp rate 10/m":     false,
	} {
		p := parse(t, text+"\ndefault pass\n")
		err := Check(p, packet.Ethernet, rooted(), nil)
		if cut != errors.As(err, new(*CutError)) {
			t.Errorf("%s: %v", text, err)
		}
	}
	want := "an SSH session, from 192.0.2.7:50000 to 198.51.100.1:22, would end: what it answers " +
		"would be held to 10/m by `out limit tcp rate 10/m` (edge.levee:1); let it pass (`out " +
		"protect to 192.0.2.7 tcp from port 22`)"
	p := parse(t, "out limit tcp rate 10/m\ndefault pass\n")
	err := Check(p, packet.Ethernet, rooted(), nil)
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// TestASessionWasTakenForOver: where a rule in force asks for what is not known of a session, it
// was said to be over, and the next policy was free to cut it.
func TestASessionWasTakenForOver(t *testing.T) {
	for text, over := range map[string]bool{
		"drop not reverse-path strict":                       false,
		"drop tcp port 22 stream contains \"xxxx\"":          false,
		"out drop forwarded":                                 false,
		"out drop uid >= 1000":                               false,
		"out drop user www-data":                             false,
		"out drop not service \"nginx.service\"":             false,
		"out pass service \"ssh.service\"\nout default drop": false,
		"out drop user www-data\nout drop not user www-data": true,
		"out drop tcp":                                       true,
		"out pass not established service \"x.service\"\n" +
			"out drop tcp service \"y.service\"\nout default drop": true,
		"drop not reverse-path strict\ndrop reverse-path strict": true,
	} {
		p := parse(t, text+"\ndefault pass\n")
		if got := Alive(p, packet.Ethernet, ssh(), nil); (len(got) == 0) != over {
			t.Errorf("%s: %d live", text, len(got))
		}
	}
}
