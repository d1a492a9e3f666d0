package nat

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"levee/internal/host/hosttest"
)

// in moves the test to a new network namespace and runs commands of a shell there.
func in(t *testing.T, commands string) {
	t.Helper()
	hosttest.Enter(t)
	if b, err := exec.Command("/bin/sh", "-ec", commands).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
}

// found returns the forwards that were read, one a line.
func found(r *Rules) (out []string) {
	for _, f := range r.Forwards {
		line := fmt.Sprintf("%d %d-%d", f.Proto, f.Ports.Low, f.Ports.High)
		if f.From.IsValid() {
			line += " from " + f.From.String()
		}
		if f.To.IsValid() {
			line += " to " + f.To.String()
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func check(t *testing.T, r *Rules, filters bool, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := found(r); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r.Filters != filters || len(r.Unread) > 0 {
		t.Errorf("filters %v, unread %q", r.Filters, r.Unread)
	}
}

// TestForwardsOfNftables by every kind of statement that sends elsewhere.
func TestForwardsOfNftables(t *testing.T) {
	in(t, `nft -f - <<'END'
table ip n {
	map m { type inet_service : ipv4_addr . inet_service; elements = { 8443 : 10.0.0.3 . 443 } }
	set own { type ipv4_addr; flags interval; elements = { 192.0.2.1, 198.51.100.0/24 } }
	set none { type inet_service; }
	chain pre {
		type nat hook prerouting priority dstnat
		iifname "eth0" tcp dport { 80, 443-445 } dnat to 10.0.0.2
		iifname "et*" tcp dport 81 dnat to 10.0.0.2
		iifname "lan0" tcp dport 82 dnat to 10.0.0.2
		ip daddr @own udp dport 53 redirect to :5353
		meta l4proto { tcp, udp } th dport 5060 dnat to 10.0.0.4
		dnat ip addr . port to tcp dport map @m
		dnat to tcp dport map { 2222 : 10.0.0.5, 2223 : 10.0.0.6 }
		meta l4proto . th dport vmap { tcp . 9000 : jump a, udp . 9001 : goto a }
		ip saddr 203.0.113.0/24 fib daddr type local tcp dport 9100 counter dnat to 10.0.0.7:9100
		iif "lo" tcp dport 7 dnat to 10.0.0.8
		ip daddr 127.0.0.1 tcp dport 8 dnat to 10.0.0.8
		tcp dport @none dnat to 10.0.0.8
		ip daddr 192.0.2.3 tcp dport != 22 dnat to 10.0.0.9
		ip protocol 47 dnat to 10.0.0.9
	}
	chain a {
		dnat to 10.0.0.2
	}
	chain forward {
		type filter hook forward priority filter
		ct state invalid drop
	}
}
table ip6 n {
	chain pre {
		type nat hook prerouting priority dstnat
		tcp dport 86 dnat to 2001:db8::1
	}
}
END`)
	check(t, Read(t.Context(), []string{"eth0"}), false, "6 80-80", "6 443-445", "6 81-81",
		"17 53-53 to 192.0.2.1/32", "17 53-53 to 198.51.100.0/24", "6 5060-5060", "17 5060-5060",
		"6 8443-8443", "6 2222-2222", "6 2223-2223", "6 9000-9000", "17 9001-9001",
		"6 9100-9100 from 203.0.113.0/24", "0 0-0 to 192.0.2.3/32", "47 0-0", "6 86-86")
}

// rules are of a host of containers, as Docker makes them with and without its proxy.
const rules = `
%[1]s -t nat -N DOCKER
%[1]s -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
%[1]s -t nat -A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80
%[1]s -t nat -A DOCKER -d 127.0.0.1/32 -p tcp -m tcp --dport 9 -j DNAT --to-destination 10.0.0.2:80
%[1]s -t nat -A PREROUTING -p udp -m multiport --dports 1,5:7 -j REDIRECT --to-ports 9
%[1]s -t nat -A PREROUTING -i eth0 -s 203.0.113.0/24 -p tcp --dport 81 -j DNAT --to-destination 10.0.0.3
%[1]s -t nat -A PREROUTING -i lan0 -p tcp --dport 82 -j DNAT --to-destination 10.0.0.3
%[1]s -t nat -A PREROUTING -d 192.0.2.8 -j DNAT --to-destination 10.0.0.4
%[1]s -A FORWARD -i eth0 -j REJECT
`

// TestForwardsOfIptables of both kinds: nft tells of the one that there are rules, and nothing of
// the other.
func TestForwardsOfIptables(t *testing.T) {
	for _, kind := range []string{"iptables-nft", "iptables-legacy"} {
		t.Run(kind, func(t *testing.T) {
			in(t, fmt.Sprintf(rules, kind+" -w"))
			check(t, Read(t.Context(), []string{"eth0"}), true, "6 8080-8080", "17 1-1", "17 5-7",
				"6 81-81 from 203.0.113.0/24", "0 0-0 to 192.0.2.8/32")
		})
	}
}

// TestNothingIsReadWhereThereIsNothing, and a filter of nftables is seen by its policy.
func TestNothingIsReadWhereThereIsNothing(t *testing.T) {
	in(t, "")
	check(t, Read(t.Context(), []string{"eth0"}), false)
	in(t, `nft 'table inet f { chain f { type filter hook forward priority 0; policy drop; }; }'`)
	check(t, Read(t.Context(), []string{"eth0"}), true)
}

// TestWhoCannotReadTheRulesIsTold why.
func TestWhoCannotReadTheRulesIsTold(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{"nft": "echo no rights >&2; exit 1"} {
		if err := os.WriteFile(dir+"/"+name, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	in(t, "") // no table of the old iptables
	if !hasTables() {
		t.Skip("this kernel has no nf_tables")
	}
	r := Read(t.Context(), []string{"eth0"})
	if len(r.Unread) != 1 || !strings.Contains(r.Unread[0], "no rights") {
		t.Errorf("%q", r.Unread)
	}
	t.Setenv("PATH", t.TempDir())
	r = Read(t.Context(), []string{"eth0"})
	if len(r.Unread) != 1 || !strings.Contains(r.Unread[0], "package nftables") {
		t.Errorf("without programs: %q", r.Unread)
	}
}

// TestRulesThatCallEachOtherEnd: a map in a circle, and more rules than are followed.
func TestRulesThatCallEachOtherEnd(t *testing.T) {
	text := "*nat\n:PREROUTING ACCEPT\n"
	for _, from := range []string{"PREROUTING", "A", "B"} {
		text += "-A " + from + " -j A\n-A " + from + " -j B\n"
	}
	text += "-A B -j DNAT --to 10.0.0.1\n"
	r := &Rules{}
	r.add(parseSave(text), nil)
	if len(r.Unread) != 1 || len(r.Forwards) != 1 || r.Filters {
		t.Errorf("%+v", r)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(fmt.Sprintf(rules, ""))
	f.Add("*nat\n:PREROUTING\n-A PREROUTING ! -j")
	f.Add(`{"nftables": [{"rule": {"family": "ip", "table": "t", "chain": "c", "expr": [{"vmap": ` +
		`{"key": {"concat": [1]}, "data": {"set": [[1], [2, {"jump": 3}]]}}}, {"dnat": null}]}}]}`)
	f.Fuzz(func(_ *testing.T, text string) {
		parseSave(text).forwards(nil)
		if r, _, err := parseNft([]byte(text)); err == nil {
			r.forwards(nil)
		}
	})
}
