package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/probe/witness"
)

// ended is a run of the plan of two families that has ended, with a policy in front of it.
func ended(t *testing.T) *run {
	t.Helper()
	r := &run{plan: twoFamilies(t), Options: Options{Owned: &Owned{}},
		eyes: map[eyeKey]*eye{}, stopped: map[netip.Addr]string{}, ended: map[*Prefix]string{},
		ttls: map[netip.Addr]uint8{}, by: map[int]netip.Addr{}, arrived: map[int]string{},
		rules: []Judged{{"a", "`pass tcp port 20-30` (x.levee:1)", "pass"},
			{"b", "the default (x.levee:6)", "drop"}, {"c", "a cookie", answered}}}
	of := parsePolicy(t, "pass tcp port 20-30\npass udp port { 7, 53 }\ndefault drop\n")
	for i := range r.addrs {
		r.eyes[keyOf(r.addrs[i].Of)] = &eye{name: "ssh b", policy: of, last: &witness.End{},
			first: witness.InForce{Dev: "eth0", Name: "x.levee"}}
	}
	r.results = make([]result, r.total())
	for n := range r.results {
		r.results[n] = result{sent: 1, seen: 1, kind: resets, ttl: 64, rule: 1}
	}
	return r
}

// probeOf is the number of a service of the first address.
func probeOf(t *testing.T, r *run, s Service) int {
	t.Helper()
	for n := range r.results {
		if at := r.target(n); at.kind == aService && at.Service == s {
			return n
		}
	}
	t.Fatalf("nobody asks for %v", s)
	return 0
}

// TestWhatAServiceIs, by all that can come back for it, and what loss leaves open.
func TestWhatAServiceIs(t *testing.T) {
	const tcp, udp = 6, 17
	ssh, dns := Service{tcp, 22}, Service{udp, 53}
	three := uint8(7)
	for _, c := range []struct {
		name  string
		of    Service
		is    result
		with  func(r *run, n int)
		state State
		why   string // in it
	}{
		{"accepted", ssh, result{sent: 1, seen: 1, kind: accepts, rule: 1}, connects(connected),
			Open, ""},
		{"not connected to", ssh, result{sent: 1, seen: 1, kind: accepts, rule: 1}, nil, Open,
			"nobody connected"},
		{"a proxy of SYNs", ssh, result{sent: 1, seen: 1, kind: accepts, rule: 1},
			connects(resetAtOnce), Unknown, "made and reset"},
		{"a connection refused", ssh, result{sent: 1, seen: 1, kind: accepts, rule: 1},
			connects(refused), Closed, "refuses"},
		{"no connection", ssh, result{sent: 1, seen: 1, kind: accepts, rule: 1},
			connects(noneMade), Unknown, "no connection comes"},
		{"a cookie", ssh, result{sent: 1, seen: 1, kind: accepts, rule: 3}, nil, Unknown,
			"a cookie of levee's answered"},
		{"all ports accept", ssh, result{sent: 1, seen: 1, kind: accepts, rule: 1},
			func(r *run, n int) {
				connects(connected)(r, n)
				r.results[r.begin(aCanary)].kind = accepts
			}, Unknown, "something answers for every port"},
		{"reset", ssh, result{sent: 1, seen: 1, kind: resets, ttl: 63, rule: 1}, nil, Closed, ""},
		{"reset by another", ssh, result{sent: 1, seen: 1, kind: resets, ttl: 63, rule: 1},
			func(r *run, n int) { r.ttls[r.target(n).to] = 64 }, Filtered, "another machine"},
		{"an error", ssh, result{sent: 1, seen: 1, kind: icmpSays, icmpType: 3, icmpCode: 3,
			own: true, rule: 1}, nil, Filtered, "port unreachable"},
		{"dropped there", ssh, result{sent: 1, seen: 1, rule: 2}, nil, Filtered, "dropped by"},
		{"dropped behind", ssh, result{sent: three, seen: three, rule: 1}, nil, Filtered,
			"dropped behind it"},
		{"dropped before", ssh, result{sent: three}, nil, Filtered, "does not arrive"},
		{"asked once, and silent", ssh, result{sent: 1, seen: 1, rule: 1}, nil, Unknown,
			"silence may have a chance"},
		{"asked once, and not seen", ssh, result{sent: 1}, nil, Unknown, "did not arrive once"},
		{"much loss", ssh, result{sent: three, seen: three, rule: 1},
			func(r *run, _ int) { // every other answer came with the second try alone
				for n := range r.results {
					if r.results[n].kind == resets && n%2 == 0 {
						r.results[n].sent, r.results[n].seen, r.results[n].try = 3, 3, 1
					}
				}
			}, Unknown, "by loss alone"},
		{"never asked", ssh, result{}, func(r *run, n int) {
			r.stopped[r.target(n).to] = "prohibited"
		}, Unknown, "not asked: prohibited"},
		{"asked, then left alone", ssh, result{sent: 1}, func(r *run, n int) {
			r.stopped[r.target(n).to] = "prohibited"
		}, Unknown, "not asked again: prohibited"},
		{"a datagram", dns, result{sent: 1, seen: 1, kind: replies, rule: 1}, nil, Open, ""},
		{"a port of UDP", dns, result{sent: 1, seen: 1, kind: icmpSays, icmpType: 3, icmpCode: 3,
			own: true, rule: 1}, nil, Closed, ""},
		{"a port, by a router", dns, result{sent: 1, seen: 1, kind: icmpSays, icmpType: 3,
			icmpCode: 3, rule: 1},
			func(r *run, n int) { r.by[n] = netip.MustParseAddr("192.0.2.9") }, Filtered,
			"port unreachable by 192.0.2.9"},
		{"UDP, and silent", dns, result{sent: three, seen: three, rule: 1}, nil, Unknown,
			"nothing answered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ended(t)
			n := probeOf(t, r, c.of)
			r.results[n] = c.is
			if c.with != nil {
				c.with(r, n)
			}
			at := r.target(n)
			var got *Target
			rep := r.report(0, time.Second)
			for i := range rep.Targets {
				if x := &rep.Targets[i]; x.Address == at.to.String() && x.Port == at.Port &&
					x.Proto == protoName(at.Proto) {
					got = x
				}
			}
			if got == nil {
				t.Fatal("it is not reported")
			}
			if got.State != c.state || !strings.Contains(got.Why, c.why) ||
				c.why == "" && got.Why != "" {
				t.Errorf("%s: %q, want %s: %q", got.State, got.Why, c.state, c.why)
			}
		})
	}
}

// TestAWitnessThatEndsEarlyProvesNothing: what was asked while nobody looked is neither filtered on
// the way nor answered by another machine.
func TestAWitnessThatEndsEarlyProvesNothing(t *testing.T) {
	r := ended(t)
	r.Owned.Prefixes = []Prefix{*r.addrs[0].Of}
	for i := range r.addrs[:2] {
		r.addrs[i].Of = &r.Owned.Prefixes[0]
	}
	silence := probeOf(t, r, Service{6, 22})
	r.results[silence] = result{sent: 7}
	r.results[probeOf(t, r, Service{6, 80})] = result{sent: 1, kind: resets, ttl: 64}
	if rep := r.report(0, time.Second); len(rep.Disagreements) < 2 {
		t.Fatalf("with its witness there: %+v", rep.Disagreements)
	}
	r.broke(r.eyeOf(r.addrs[0].Addr), "its witness ended early")
	if !r.done(silence) {
		t.Error("it is asked on")
	}
	rep := r.report(0, time.Second)
	for _, d := range rep.Disagreements {
		if d.Counted == nil {
			t.Errorf("%s: %s", d.Example, d.Why)
		}
	}
	for _, at := range rep.Targets {
		if at.Address == r.addrs[0].String() && at.Port == 22 && (at.State != Unknown ||
			!strings.Contains(at.Why, "its witness ended early")) {
			t.Errorf("%s: %s", at.State, at.Why)
		}
	}
	if rep.Agrees() || rep.Prefixes[0].Stopped != "its witness ended early" {
		t.Errorf("%+v", rep.Prefixes[0])
	}
	r = ended(t)
	r.Owned.Prefixes = []Prefix{*r.addrs[0].Of}
	r.over = true
	if e := r.eyeOf(r.addrs[1].Addr); e.broke {
		t.Error("it has ended")
	} else if r.broke(e, "it has ended"); e.broke {
		t.Error("the end of the run is early")
	}
}

// TestAWitnessThatNeverEndsIsKilled: who says what is none of its lines, for ever.
func TestAWitnessThatNeverEndsIsKilled(t *testing.T) {
	p := &Prefix{Prefix: netip.MustParsePrefix("198.51.100.7/32"), Witness: []string{"yes", "--"}}
	_, err := openEye(t.Context(), p, []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil)
	if err == nil || !strings.Contains(err.Error(), "what is none of its lines") {
		t.Error(err)
	}
}

func connects(s contactState) func(*run, int) {
	return func(r *run, n int) { r.contacts = map[int]contact{n: {state: s}} }
}

// TestLossIsMeasured by the tries before one that got through.
func TestLossIsMeasured(t *testing.T) {
	r := ended(t)
	first := r.begin(aService)
	all := len(r.results)
	r.results[first] = result{sent: 3, seen: 2, kind: resets, try: 1, rule: 1}
	r.results[first+1] = result{sent: 7, seen: 7, kind: resets, try: 2, rule: 1}
	r.results[first+2] = result{sent: 7} // nobody knows of these
	l := r.loss()
	if want := (Share{1, all - 1 + 1 + 2}); l.There != want {
		t.Errorf("on the way there %+v, want %+v", l.There, want)
	}
	if want := (Share{2, all - len(r.addrs) - 1 + 2}); l.AndBack != want {
		t.Errorf("and back %+v, want %+v", l.AndBack, want)
	}
}

// TestOnlyRunTimeKnows what a dynamic set holds: that another rule decides is no disagreement.
func TestOnlyRunTimeKnows(t *testing.T) {
	of := parsePolicy(t, "set s = dynamic(max 10)\npass tcp from s port 22\n"+
		"limit tcp port 25 rate 1pps by source\ncookie tcp port 443\npass established\n"+
		"pass udp\ndefault drop\n")
	want := map[string]string{"pass tcp from s port 22": "what set s holds",
		"limit tcp port 25 rate 1pps by source": "a limit", "cookie tcp port 443": "a cookie",
		"pass established": "what was before", "pass udp": ""}
	seen := 0
	for _, s := range of.Slots() {
		if s.Reason != policy.ByRule {
			continue
		}
		what, ok := want[s.Rule.Text]
		if got := runTime(of, s.ID); !ok || got != what {
			t.Errorf("%s: %q, want %q", s.Rule.Text, got, what)
		}
		seen++
	}
	if seen != len(want) {
		t.Errorf("%d rules of %d", seen, len(want))
	}
}

// TestAContactShowsWhatIsThere: who speaks, who is silent, who resets and who is not there.
func TestAContactShowsWhatIsThere(t *testing.T) {
	serve := func(with func(*net.TCPConn)) netip.AddrPort {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				with(c.(*net.TCPConn))
			}
		}()
		return l.Addr().(*net.TCPAddr).AddrPort()
	}
	held := make(chan *net.TCPConn, 1)
	t.Cleanup(func() { _ = (<-held).Close() })
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := gone.Addr().(*net.TCPAddr).AddrPort()
	_ = gone.Close()
	for _, c := range []struct {
		name string
		to   netip.AddrPort
		want contact
	}{
		{"who speaks", serve(func(c *net.TCPConn) {
			_, _ = c.Write([]byte("220 hello\r\nmore"))
			_ = c.Close()
		}), contact{connected, "220 hello"}},
		{"who is silent", serve(func(c *net.TCPConn) { held <- c }),
			contact{state: connected}},
		{"who ends", serve(func(c *net.TCPConn) { _ = c.Close() }), contact{state: connected}},
		{"who resets", serve(func(c *net.TCPConn) {
			_ = c.SetLinger(0)
			_ = c.Close()
		}), contact{state: resetAtOnce}},
		{"who is not there", closed, contact{state: refused}},
	} {
		if got := touch(t.Context(), c.to, c.want.banner != ""); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestASlowBannerWasItsFirstLetter: what a service says may come letter by letter.
func TestASlowBannerWasItsFirstLetter(t *testing.T) {
	for _, c := range []struct {
		says []string
		want string
	}{
		{[]string{"2", "20 hel", "lo\r", "\nmore"}, "220 hello"},
		{[]string{"\r", "\n"}, "(an empty line)"},
		{[]string{strings.Repeat("x", 200), strings.Repeat("y", 200)},
			strings.Repeat("x", 200) + strings.Repeat("y", bannerBytes-200)},
	} {
		here, there := net.Pipe() // each word waits until it is read
		go func() {
			for _, word := range c.says {
				_, _ = there.Write([]byte(word))
			}
			_ = there.Close()
		}()
		h := &heard{conn: here}
		if err := h.listen(time.Minute, true); err != nil || h.line() != c.want {
			t.Errorf("%q: %q, %v", c.says, h.line(), err)
		}
		_ = here.Close()
	}
}

// TestAWebServerIsAskedAfterItWasSilent: the time for listening was over by then, and was taken for
// that of the question, too.
func TestAWebServerIsAskedAfterItWasSilent(t *testing.T) {
	here, there := net.Pipe()
	asked := make(chan string, 1)
	go func() {
		defer there.Close()
		buf := make([]byte, bannerBytes)
		n, _ := there.Read(buf)
		asked <- string(buf[:n])
		_, _ = there.Write([]byte("HTTP/1.0 200 OK\r\nServer: x\r\n"))
	}()
	h := &heard{conn: here}
	if err := h.listen(0, true); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent one: %v", err)
	}
	if err := h.ask("HEAD"); err != nil || h.line() != "HTTP/1.0 200 OK" || <-asked != "HEAD" {
		t.Errorf("%q, %v", h.line(), err)
	}
}

// TestNobodyConnectsOnceTheWitnessHasGone: what was asked by whole connections went on, though
// nobody could see at the target whose they were.
func TestNobodyConnectsOnceTheWitnessHasGone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := ended(t)
	r.Rate = 1e6
	r.Owned.Prefixes = []Prefix{*r.addrs[0].Of}
	port := l.Addr().(*net.TCPAddr).AddrPort()
	r.addrs = r.addrs[:1]
	r.addrs[0] = Address{port.Addr(), &r.Owned.Prefixes[0]}
	r.services, r.confirmed, r.canary, r.classes = nil, []int{0}, nil, nil
	for range 2 * contactsOnce {
		r.services = append(r.services, Service{packet.ProtoTCP, port.Port()})
	}
	r.results = make([]result, r.total())
	for n := range r.results {
		r.results[n] = result{sent: 1, seen: 1, kind: accepts, rule: 1}
	}
	go func() {
		for first := true; ; first = false {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if first {
				r.broke(r.eyeOf(port.Addr()), "its witness ended early")
			}
			_ = c.Close()
		}
	}()
	if err := r.contactAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(r.contacts); n == 0 || n > contactsOnce+1 {
		t.Errorf("%d connections of %d", n, 2*contactsOnce)
	}
}

// TestAWitnessNamedMoreRulesThanCouldBeCounted: the 32,768th rule that a policy of many, or a
// witness that makes them up, named was none, and the report ended with a panic.
func TestAWitnessNamedMoreRulesThanCouldBeCounted(t *testing.T) {
	r := ended(t)
	r.ruleAt, r.marks, r.news = map[Judged]int{}, map[uint64]sealed{}, make(chan struct{}, 1)
	n := probeOf(t, r, Service{packet.ProtoTCP, 22})
	frame, ip, err := build(r.spec(n, 0))
	if err != nil {
		t.Fatal(err)
	}
	var d packet.Packet
	packet.L3.Decode(ip, &d)
	r.marks[r.key.mark(ip, &d)] = sealed{n, 0}
	e := r.eyeOf(r.target(n).to)
	for i := range 1<<15 + 1 {
		r.witnessed(e, &witness.Packet{Slot: fmt.Sprint(i), Rule: "a", Verdict: "pass",
			Link: packet.Ethernet.String(), Bytes: frame, Length: len(frame)})
	}
	r.report(0, time.Second)
	if got := r.results[n].rule; int(got) != len(r.rules) {
		t.Errorf("rule %d of %d counted it", got, len(r.rules))
	}
}

// TestWhoDoesNotWantItIsNotConnectedTo; an interrupted connection proves nothing.
func TestWhoDoesNotWantItIsNotConnectedTo(t *testing.T) {
	for _, c := range []struct {
		name string
		with func(*run)
		want []contactState
	}{
		{"nobody minds", func(*run) {}, []contactState{refused, refused}},
		{"one does", func(r *run) { r.stopped[netip.MustParseAddr("127.0.0.1")] = "prohibited" },
			[]contactState{refused}},
	} {
		r := ended(t)
		r.Rate = 1e6
		for i, a := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
			r.addrs[i].Addr = netip.MustParseAddr(a)
		}
		r.services = []Service{{packet.ProtoTCP, 1}}
		for n := range r.results {
			r.results[n].kind = accepts
		}
		c.with(r)
		if err := r.contactAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []contactState
		for _, x := range r.contacts {
			got = append(got, x.state)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if c := touch(ctx, netip.MustParseAddrPort("127.0.0.1:1"), false); c.state != untried {
		t.Errorf("an interrupted connection says %+v", c)
	}
}

// TestAFileThatOthersChangeIsNotTaken, as it names commands.
func TestAFileThatOthersChangeIsNotTaken(t *testing.T) {
	path := t.TempDir() + "/mine.probe"
	text := []byte("198.51.100.7 of \"A\" by \"ssh b\"\n")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if o, _, err := ReadOwned(path); o == nil || err != nil {
		t.Fatalf("%v, %v", o, err)
	}
	if err := os.Chmod(path, 0o620); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadOwned(path); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("%v", err)
	}
	if _, _, err := ReadOwned(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
