package importer_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/iptables"
)

// writer makes rules of few addresses and ports, so that they overlap.
type writer struct {
	rnd   *rand.Rand
	six   bool
	nets  []string
	ports []int
	seen  int    // names of limits and lists so far
	base  bool   // of nft: a base chain is written
	only  string // of nft: the family of the table, or "" for both
}

func newWriter(rnd *rand.Rand, six bool) *writer {
	w := &writer{rnd: rnd, six: six}
	nets := []string{"192.0.2.0/24", "192.0.2.0/29", "192.0.2.3", "192.0.2.8/30", "10.0.0.0/8",
		"10.1.0.0/16", "10.1.2.3", "198.51.100.0/25", "198.51.100.7", "203.0.113.0/24",
		"203.0.113.64/26", "203.0.113.5"}
	if six {
		nets = []string{"2001:db8:aaaa::/48", "2001:db8:aaaa::/64", "2001:db8:aaaa::1",
			"2001:db8:aaaa:1::/64", "2001:db8:bbbb::/64", "2001:db8:bbbb::7", "fe80::/10",
			"2001:db8::/32", "2001:db8:bbbb::/126"}
	}
	for _, i := range rnd.Perm(len(nets))[:5] {
		w.nets = append(w.nets, nets[i])
	}
	all := []int{21, 22, 25, 53, 67, 68, 80, 123, 443, 546, 1024, 5353, 8080, 30000}
	for _, i := range rnd.Perm(len(all))[:6] {
		w.ports = append(w.ports, all[i])
	}
	slices.Sort(w.ports)
	return w
}

func (w *writer) one(n int) bool        { return w.rnd.IntN(n) == 0 }
func (w *writer) net() string           { return pick(w.rnd, w.nets...) }
func (w *writer) port() int             { return pick(w.rnd, w.ports...) }
func (w *writer) of(s ...string) string { return pick(w.rnd, s...) }

// not is a negation now and then.
func (w *writer) not() string {
	if w.one(5) {
		return "! "
	}
	return ""
}

// some joins a few different ones.
func (w *writer) some(sep string, most int, from ...string) string {
	n := 1 + w.rnd.IntN(min(most, len(from)))
	var out []string
	for _, i := range w.rnd.Perm(len(from))[:n] {
		out = append(out, from[i])
	}
	return strings.Join(out, sep)
}

// portRange is a port or a range as iptables has it.
func (w *writer) portRange() string {
	a, b := w.port(), w.port()
	switch {
	case w.one(6):
		return fmt.Sprintf(":%d", a)
	case w.one(6):
		return fmt.Sprintf("%d:", a)
	case a < b && w.one(2):
		return fmt.Sprintf("%d:%d", a, b)
	}
	return fmt.Sprint(a)
}

var tcpFlagNames = []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG"}

// terms are the conditions of a rule of iptables. asks tells whether a rule may ask for states.
func (w *writer) terms(states bool) string {
	var out []string
	add := func(f string, args ...any) { out = append(out, fmt.Sprintf(f, args...)) }
	if w.one(3) {
		add("%s-s %s", w.not(), w.net())
	}
	if w.one(10) {
		add("%s-d %s", w.not(), map[bool]string{false: w.of("198.51.100.10", "198.18.0.0/24"),
			true: w.of("2001:db8:5::10", "2001:db8::/64", "ff00::/8")}[w.six])
	}
	if w.one(7) {
		add("%s", w.of("-i eth0", "-i lo", "! -i lo", "-i eth1", "! -i eth0", "-i eth+",
			"! -i eth+", "-i e+", "-i docker0", "! -i docker0", "-i veth+", "-i +", "-i eth0.100",
			"! -i eth0.100", "-i eth0.+"))
	}
	icmp, kind := "icmp", "-m icmp --icmp-type"
	if w.six {
		icmp, kind = "ipv6-icmp", "-m icmp6 --icmpv6-type"
	}
	switch w.rnd.IntN(12) {
	case 0, 1, 2:
		add("-p tcp -m tcp %s--dport %s", w.not(), w.portRange())
		if w.one(4) {
			add("%s", w.of("--syn", "--sport 1024:", "! --syn"))
		}
	case 3, 4:
		add("-p udp -m udp %s%s %s", w.not(), w.of("--dport", "--dport", "--sport"), w.portRange())
	case 5, 6:
		var l []string
		for range 1 + w.rnd.IntN(4) {
			if r := w.portRange(); !strings.HasPrefix(r, ":") && !strings.HasSuffix(r, ":") {
				l = append(l, r)
			}
		}
		if len(l) == 0 {
			l = []string{"22"}
		}
		add("-p %s -m multiport %s--%s %s", w.of("tcp", "udp", "tcp"), w.not(),
			w.of("dports", "dports", "sports", "ports"), strings.Join(l, ","))
	case 7:
		mask := w.some(",", 4, tcpFlagNames...)
		add("-p tcp -m tcp %s--tcp-flags %s %s", w.not(), mask,
			w.of("NONE", mask, strings.Split(mask, ",")[0], "SYN"))
	case 8:
		types := w.of("0", "3", "3/1", "3/4", "8", "11", "13", "echo-request", "any")
		if w.six {
			types = w.of("1", "1/1", "2", "3", "128", "129", "135", "echo-request")
		}
		not := w.not()
		if types == "any" {
			not = ""
		}
		add("-p %s %s %s", icmp, strings.Replace(kind, "--", not+"--", 1), types)
	case 9:
		add("%s-p %s", w.not(), w.of("tcp", "udp", icmp, "gre", "sctp", "esp", "253"))
	}
	proto := strings.Join(out, " ")
	if states && w.one(4) {
		s := w.some(",", 3, "NEW", "ESTABLISHED", "RELATED", "INVALID")
		if w.one(8) {
			s = "UNTRACKED"
		}
		by := w.of("-m state "+w.not()+"--state ", "-m conntrack "+w.not()+"--ctstate ")
		if w.one(4) {
			by, s = "-m conntrack "+w.not()+"--ctstate ", w.of("DNAT", s+",DNAT")
		}
		add("%s", by+s)
	}
	if w.one(6) {
		out = append(out, w.other(proto))
	}
	if w.one(14) {
		w.seen++
		add("%s", w.of("-m limit --limit 5/min", "-m limit --limit 100/sec --limit-burst 200",
			fmt.Sprintf("-m hashlimit --hashlimit-upto 20/sec --hashlimit-burst 30 "+
				"--hashlimit-mode srcip --hashlimit-name h%d", w.seen),
			fmt.Sprintf("-m hashlimit --hashlimit-above 10/min --hashlimit-burst 7 "+
				"--hashlimit-mode srcip --hashlimit-name h%d", w.seen),
			"-m connlimit --connlimit-above 10 --connlimit-mask 32 --connlimit-saddr"))
	}
	if w.one(8) {
		add("-m comment --comment \"%s\"", w.of("a", "drop all", "it's", "x -j y", "100%"))
	}
	return strings.Join(out, " ")
}

// other is a condition of a kind that few rules have.
func (w *writer) other(have string) string {
	all := []string{"-m length " + w.not() + "--length 28:60", "-m length --length 61:",
		"-m dscp " + w.not() + "--dscp 46", "-m mac " + w.not() + "--mac-source 02:00:00:00:00:01",
		"-m pkttype " + w.not() + "--pkt-type broadcast", "-m policy --dir in --pol none",
		"-m addrtype " + w.not() + "--dst-type LOCAL",
		"-m addrtype " + w.not() + "--dst-type MULTICAST",
		"-m addrtype --src-type LOCAL", "-m addrtype --src-type UNICAST", "-m tos --tos 0x20/0xfc"}
	if w.six {
		all = append(all, "-m hl --hl-lt 5", "-m hl --hl-eq 64", "-m set "+w.not()+
			"--match-set six src", "-m iprange "+w.not()+
			"--src-range 2001:db8:bbbb::1-2001:db8:bbbb::9")
		return w.of(all...)
	}
	all = append(all, "-m ttl --ttl-lt 5", "-m ttl --ttl-eq 64", "-m ttl --ttl-gt 4",
		"-m addrtype "+w.not()+"--dst-type BROADCAST",
		"-m iprange "+w.not()+"--src-range 192.0.2.3-192.0.2.9", "-f", "! -f")
	for _, s := range []string{"nets src", "nets src", "nets dst", "svc src,dst", "svc dst,dst",
		"low dst", "pn src,dst", "said src", "bits src", "masked src", "three src,dst,dst",
		"both src", "banned src", "empty src", "endpoints dst,dst",
		"ippi src,dst,src"} {
		not := w.not()
		if strings.Contains(s, ",") && !w.one(4) {
			not = ""
		}
		all = append(all, "-m set "+not+"--match-set "+s)
	}
	if strings.HasPrefix(have, "-p udp") {
		all = append(all, `-m string --hex-string "|c0ffee|" --algo bm`,
			`-m u32 --u32 "0>>22&0x3C@8=0x0"`)
	}
	return w.of(all...)
}

// setsToAsk are sets of the kinds that ipset has.
const setsToAsk = setsOfRules + "create banned hash:ip timeout 3600\nadd banned 192.0.2.3 " +
	"timeout 600\nadd banned 203.0.113.5\ncreate empty hash:net\ncreate endpoints hash:ip,port " +
	"timeout 900\nadd endpoints 198.18.0.1,tcp:22 timeout 600\nadd endpoints " +
	"198.51.100.10,udp:53\ncreate ippi hash:ip,port,ip\nadd ippi 192.0.2.3,tcp:22,192.0.2.3\n"

// chain writes the rules of a chain; behind are the chains that it may lead to.
func (w *writer) chain(b *strings.Builder, name string, n int, behind []string) {
	for range n {
		terms := w.terms(true)
		verdicts := []string{"-j ACCEPT", "-j ACCEPT", "-j DROP", "-j DROP", "-j RETURN", "",
			"-j LOG --log-prefix \"x: \"", "-j REJECT"}
		if strings.Contains(terms, "-p tcp") && !strings.Contains(terms, "! -p tcp") {
			verdicts = append(verdicts, "-j REJECT --reject-with tcp-reset")
		}
		for _, c := range behind {
			verdicts = append(verdicts, "-j "+c, "-j "+c, "-g "+c)
		}
		line := "-A " + name + " " + terms + " " + w.of(verdicts...)
		b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
}

// natRule is a rule of a nat chain: to another port of the machine, to a host behind it, or
// neither.
func (w *writer) natRule(chain string) string {
	proto := w.of("tcp", "udp")
	port := fmt.Sprintf("--dport %s%d", w.of("", "", "", "! "), w.port())
	if port = strings.Replace(port, "--dport ! ", "! --dport ", 1); w.one(4) {
		port = fmt.Sprintf("-m multiport --dports %d,%d:%d", w.ports[0], w.ports[1], w.ports[3])
	}
	to := fmt.Sprintf("REDIRECT --to-ports %d", w.port())
	switch {
	case w.one(6):
		to = w.of("RETURN", "ACCEPT")
	case w.one(4):
		lo, hi := w.targetPorts()
		to = fmt.Sprintf("REDIRECT --to-ports %d-%d", lo, hi) + w.of("", "", " --random")
		if w.one(2) && !w.six {
			to = fmt.Sprintf("DNAT --to-destination :%d-%d/%d", lo, hi, w.port())
		}
	case w.one(3) && !w.six:
		to = "DNAT --to-destination 203.0.113.99" + w.of("", ":8080")
	}
	from := w.of("", "-s "+w.net()+" ", "-i eth0 ", "! -i docker0 ", "-i docker0 ")
	if !w.six {
		from += w.of("", "", "", "-d 198.51.100.10 ", "! -d 198.51.100.10 ", "-d 224.0.0.0/4 ")
	}
	return fmt.Sprintf("-A %s %s-p %s %s -j %s", chain, from, proto, port, to)
}

// targetPorts are the ends of a short range of ports.
func (w *writer) targetPorts() (lo, hi int) {
	lo = min(w.port(), 65000)
	return lo, lo + 1 + w.rnd.IntN(300)
}

// rules is a file for iptables-restore.
func (w *writer) rules() string {
	var b strings.Builder
	chains := []string{"f2b-sshd", "ufw-user", "DOCKER-USER", "limits"}[:1+w.rnd.IntN(4)]
	if w.one(4) {
		b.WriteString("*raw\n:PREROUTING ACCEPT [0:0]\n")
		for range 1 + w.rnd.IntN(3) {
			b.WriteString("-A PREROUTING " + w.terms(false) + " " + w.of("-j DROP", "-j DROP",
				"-j ACCEPT") + "\n")
		}
		b.WriteString("COMMIT\n")
	}
	if w.one(4) {
		b.WriteString("*mangle\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n")
		for range 1 + w.rnd.IntN(3) {
			b.WriteString("-A " + w.of("PREROUTING", "INPUT") + " " + w.terms(true) + " " +
				w.of("-j DROP", "-j DROP", "-j ACCEPT", "-j RETURN") + "\n")
		}
		b.WriteString("COMMIT\n")
	}
	if w.one(4) {
		b.WriteString("*nat\n:PREROUTING ACCEPT [0:0]\n:N - [0:0]\n")
		for range 1 + w.rnd.IntN(4) {
			b.WriteString(w.natRule(w.of("PREROUTING", "N")) + "\n")
		}
		b.WriteString("-A PREROUTING " + w.of("-m addrtype --dst-type LOCAL ", "",
			"! -s "+w.net()+" ") + "-j N\nCOMMIT\n")
	}
	fmt.Fprintf(&b, "*filter\n:INPUT %s [0:0]\n", w.of("ACCEPT", "DROP", "DROP"))
	for _, c := range chains {
		b.WriteString(":" + c + " - [0:0]\n")
	}
	if w.one(2) {
		b.WriteString("-A INPUT -i lo -j ACCEPT\n")
	}
	if w.one(2) {
		b.WriteString("-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n")
	}
	if w.one(3) {
		b.WriteString("-A INPUT -m conntrack --ctstate INVALID -j DROP\n")
	}
	if w.one(8) && !w.six {
		b.WriteString("-A INPUT -p tcp -m tcp --dport 22 -m recent --set --name s --rsource\n-A " +
			"INPUT -p tcp -m tcp --dport 22 -m recent --update --seconds 60 --hitcount 4 --name " +
			"s --rsource -j DROP\n")
	}
	w.chain(&b, "INPUT", 5+w.rnd.IntN(8), chains)
	for i, c := range chains {
		w.chain(&b, c, 2+w.rnd.IntN(4), chains[i+1:])
		if w.one(3) {
			b.WriteString("-A " + c + " " + w.of("-j RETURN", "-j DROP", "-j ACCEPT") + "\n")
		}
	}
	if w.one(6) {
		b.WriteString("COMMIT\n*security\n:INPUT ACCEPT [0:0]\n")
		for range 1 + w.rnd.IntN(3) {
			b.WriteString("-A INPUT " + w.terms(true) + " " + w.of("-j DROP", "-j ACCEPT") + "\n")
		}
	}
	return b.String() + "COMMIT\n"
}

// generatedIPTables loads and imports a set of iptables, of one family or both; nil where chains
// copied into one another are too many.
func (k *kernelSide) generatedIPTables(rnd *rand.Rand) *generated {
	k.t.Helper()
	g := &generated{}
	for _, restore := range []string{"iptables-restore", "ip6tables-restore"} {
		k.run(noRules, restore)
	}
	in := []importer.Source{{Name: "sets", R: strings.NewReader(k.run("", "ipset", "save"))}}
	for _, six := range []bool{false, true} {
		if six && rnd.IntN(3) == 0 {
			continue
		}
		rules, tool := newWriter(rnd, six).rules(), "iptables"
		if six {
			tool = "ip6tables"
		}
		g.source += rules
		k.run(rules, tool+"-restore")
		in = append(in, importer.Source{Name: tool, R: strings.NewReader(k.run("", tool+"-save"))})
	}
	g.source += setsToAsk
	var out bytes.Buffer
	rep, err := iptables.Import(in, &out, importer.Rulesets{Device: "eth0"})
	if err != nil && strings.Contains(err.Error(), "chains copied into one another") {
		return nil
	}
	if err != nil {
		k.t.Fatalf("%v\n%s", err, g.source)
	}
	checkImported(k.t, out.Bytes(), rep)
	g.rep, g.policy = rep, out.String()
	return g
}
