package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"levee/internal/dataplane/store"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/iptables"
	"levee/internal/lang/importer/nft"
)

// originals are rule sets of a small server: what it serves, and answers to what it asks for.
var originals = []struct {
	name, rules, load, clear string
	list                     []string
	read                     func(importer.Source, *bytes.Buffer) error
}{
	{"iptables", `*nat
-A PREROUTING -p tcp -m tcp --dport 9010 -j REDIRECT --to-ports 9000
-A PREROUTING -p udp -m udp --dport 9011 -j REDIRECT --to-ports 9001
COMMIT
*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -m conntrack --ctstate INVALID -j DROP
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p tcp -m state --state NEW -m tcp --dport 9000 -j ACCEPT
-A INPUT -p udp -m state --state NEW -m udp --dport 9000 -j ACCEPT
-A INPUT -p udp -m udp --dport 9002 -m hashlimit --hashlimit-above 5/hour --hashlimit-burst 7 --hashlimit-mode srcip --hashlimit-name x -j DROP
-A INPUT -p udp -m udp --dport 9002 -j ACCEPT
-A INPUT -p udp -m udp --dport 9003 -m limit --limit 5/hour --limit-burst 7 -j ACCEPT
COMMIT
`, "iptables-restore", "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\nCOMMIT\n",
		[]string{"iptables-save"}, readIPTables},
	{"nft", `table ip redirected {
	chain pre {
		type nat hook prerouting priority -100;
		tcp dport 9010 redirect to :9000
		udp dport 9011 redirect to :9001
	}
}
table ip filter {
	chain input {
		type filter hook input priority 0; policy drop;
		ct state vmap { established : accept, related : accept, invalid : drop }
		meta l4proto { tcp, udp } th dport 9000 ct state new accept
		udp dport 9002 limit rate over 5/hour burst 7 packets drop
		udp dport 9002 accept
		udp dport 9003 limit rate 5/hour burst 7 packets accept
	}
}
`, "nft -f -", "delete table ip filter", strings.Fields("nft -j list ruleset"),
		func(s importer.Source, out *bytes.Buffer) error {
			_, err := nft.Import(s, out, importer.Rulesets{Device: "lv0"})
			return err
		}},
}

func readIPTables(s importer.Source, out *bytes.Buffer) error {
	_, err := iptables.Import([]importer.Source{s}, out, importer.Rulesets{Device: "lv0"})
	return err
}

// tracks has conntrack on.
const tracks = "table inet track { chain in { type filter hook input priority 0; ct state " +
	"new; }; }\n"

// TestImportedConnectionsLive: an imported policy threw away answers over UDP from other ports than
// 53 and 123, later fragments of answers, and let in whoever set ACK. It serves and cuts what the
// original in the kernel does: new connections, answers, and connections that are older than it.
func TestImportedConnectionsLive(t *testing.T) {
	n := newTestNet(t)
	giveAddress(t, n.here, "lv0", "198.51.100.1/24")
	giveAddress(t, n.peer, "lv1", "198.51.100.2/24")
	for _, at := range []string{"198.51.100.1:9000", "198.51.100.1:9001"} {
		echoServer(t, n.here, at)
		echoDatagrams(t, n, true, at)
	}
	echoServer(t, n.peer, "198.51.100.2:7000")
	echoDatagrams(t, n, false, "198.51.100.2:7000")
	for _, o := range originals {
		words := strings.Fields(o.load)
		if _, err := exec.LookPath(words[0]); err != nil {
			t.Skipf("needs %s", words[0])
		}
		n.run(t, o.name, func(t *testing.T) {
			// as on a host whose rules are replaced
			run(t, n.here, "flush ruleset\n"+tracks, "nft", "-f", "-")
			older := n.older(t)
			if is := echoes(older[0], 5, time.Minute); is != nil {
				t.Fatal(is)
			}
			run(t, n.here, o.rules, words[0], words[1:]...)
			dump := in(t, n.here, func() ([]byte, error) {
				return exec.Command(o.list[0], o.list[1:]...).Output()
			})
			was := n.servedOf(t, older)
			run(t, n.here, o.clear, words[0], words[1:]...)
			var text bytes.Buffer
			if err := o.read(importer.Source{Name: o.name, R: bytes.NewReader(dump)},
				&text); err != nil {
				t.Fatal(err)
			}
			older = n.older(t)
			for _, mode := range []store.Mode{store.XDPNative, tcModes(t)[0]} {
				if err := bringPolicyAt(t, "lv0", mode, text.String(), 0); err != nil {
					t.Fatal(err)
				}
				is := n.servedOf(t, older)
				for i, s := range is {
					if s.err != was[i].err {
						t.Errorf("%s: %s: %q, with the original %q\n%s", mode, s.what, s.err,
							was[i].err, text.String())
					}
				}
				if _, err := Down(t.Context(), "lv0"); err != nil {
					t.Fatal(err)
				}
				older = n.older(t)
			}
		})
	}
}

// synproxied is a server whose SYNs netfilter answers, as the manual of SYNPROXY has it.
const synproxied = `*raw
:PREROUTING ACCEPT [0:0]
-A PREROUTING -i lv0 -p tcp -m tcp --dport 9000 --syn -j CT --notrack
COMMIT
*filter
:INPUT DROP [0:0]
-A INPUT -i lo -j ACCEPT
-A INPUT -i lv0 -p tcp -m tcp --dport 9000 -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --sack-perm --timestamp --wscale 7 --mss 1460
-A INPUT -m conntrack --ctstate INVALID -j DROP
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
`

// TestClientsReachWhatSYNPROXYGuards: a client gets to the service through the cookie that SYNPROXY
// becomes, as it does through SYNPROXY.
func TestClientsReachWhatSYNPROXYGuards(t *testing.T) {
	if _, err := exec.LookPath("iptables-restore"); err != nil {
		t.Skip("needs iptables-restore")
	}
	n := newTestNet(t)
	giveAddress(t, n.here, "lv0", "198.51.100.1/24")
	giveAddress(t, n.peer, "lv1", "198.51.100.2/24")
	echoServer(t, n.here, "198.51.100.1:9000")
	asks := func(with string) {
		t.Helper()
		err := in(t, n.peer, func() (error, error) {
			c, err := net.DialTimeout("tcp", "198.51.100.1:9000", hangs)
			if err != nil {
				return err, nil
			}
			defer c.Close()
			return echoes(c, 5000, hangs), nil
		})
		if err != nil {
			t.Errorf("with %s: %v", with, err)
		}
	}
	run(t, n.here, synproxied, "iptables-restore")
	// what begins without a SYN is for SYNPROXY, and no connection yet
	run(t, n.here, "", "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_loose=0")
	run(t, n.here, "", "ip", "link", "set", "lo", "up") // by which SYNPROXY asks the server
	asks("SYNPROXY")
	run(t, n.here, "*raw\nCOMMIT\n*filter\n:INPUT ACCEPT\nCOMMIT\n", "iptables-restore")
	var text bytes.Buffer
	if err := readIPTables(importer.Source{Name: "rules", R: strings.NewReader(synproxied)},
		&text); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []store.Mode{store.XDPNative, tcModes(t)[0]} {
		n.run(t, string(mode), func(t *testing.T) {
			if mode == store.XDPNative {
				hearXDP(t, n.peer, "lv1")
			}
			if err := bringPolicyAt(t, "lv0", mode, text.String(), 0); err != nil {
				t.Fatal(err)
			}
			asks("the policy")
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// older are connections that are there before the rules are, of both sides.
func (n *testNet) older(t *testing.T) []net.Conn {
	return []net.Conn{dial(t, n.peer, "198.51.100.1:9001"), dial(t, n.here, "198.51.100.2:7000")}
}

// served is the result of one attempt: the error as text, "" if it succeeded.
type served struct{ what, err string }

// servedOf tries what the servers of both sides do.
func (n *testNet) servedOf(t *testing.T, older []net.Conn) (out []served) {
	try := func(what string, err error) {
		text := ""
		if err != nil {
			text = "error"
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			text = "refused"
		}
		if errors.Is(err, errCame) {
			text = err.Error()
		}
		out = append(out, served{what, text})
	}
	from := map[bool]string{true: "here", false: "the peer"}
	ask := func(network string, here bool, to string, size int, within time.Duration) {
		ns := n.peer
		if here {
			ns = n.here
		}
		type result struct{ err error }
		err := in(t, ns, func() (result, error) {
			c, err := net.DialTimeout(network, to, within)
			if err != nil {
				return result{err}, nil
			}
			defer c.Close()
			return result{echoes(c, size, within)}, nil
		}).err
		try(fmt.Sprintf("%s, %d bytes from %s to %s", network, size, from[here], to), err)
	}
	const long, short = hangs, 200 * time.Millisecond
	for i, c := range older {
		try(fmt.Sprint("older connection ", i), echoes(c, 5, long))
	}
	ask("tcp", false, "198.51.100.1:9000", 5, long)
	ask("udp", false, "198.51.100.1:9000", 5, long)
	ask("udp", false, "198.51.100.1:9000", 4000, long)
	ask("tcp", false, "198.51.100.1:9001", 5, short)
	ask("udp", false, "198.51.100.1:9001", 5, short)
	ask("tcp", false, "198.51.100.1:9010", 5, long) // redirected to 9000, which is open
	ask("udp", false, "198.51.100.1:9011", 5, short)
	ask("tcp", true, "198.51.100.2:7000", 5, long)
	ask("udp", true, "198.51.100.2:7000", 4000, long)
	ask("udp", true, "198.51.100.2:7009", 5, long)  // an error of ICMP says that nobody is there
	for _, port := range []string{"9002", "9003"} { // of 20 datagrams a limit lets 7 in
		try("20 datagrams to port "+port, n.burst(t, "198.51.100.1:"+port))
	}
	return out
}

// burst sends 20 datagrams and says how many came, as an error.
func (n *testNet) burst(t *testing.T, to string) error {
	l := in(t, n.here, func() (net.PacketConn, error) { return net.ListenPacket("udp", to) })
	defer l.Close()
	c := in(t, n.peer, func() (net.Conn, error) { return net.Dial("udp", to) })
	defer c.Close()
	for range 20 {
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
	}
	for came := 0; ; came++ {
		within := hangs
		if came >= 7 { // those that the limit lets in
			within = 100 * time.Millisecond
		}
		_ = l.SetReadDeadline(time.Now().Add(within))
		if _, _, err := l.ReadFrom(make([]byte, 9)); err != nil {
			return fmt.Errorf("%w: %d", errCame, came)
		}
	}
}

var errCame = errors.New("came")

// echoes says whether so much comes back.
func echoes(c net.Conn, size int, within time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := c.Write(make([]byte, size)); err != nil {
		return err
	}
	in := make([]byte, size)
	for got := 0; got < size; {
		k, err := c.Read(in[got:])
		if err != nil {
			return err
		}
		got += k
	}
	return nil
}

// echoDatagrams is a server that sends back each datagram.
func echoDatagrams(t *testing.T, n *testNet, here bool, at string) {
	t.Helper()
	ns := n.peer
	if here {
		ns = n.here
	}
	l := in(t, ns, func() (net.PacketConn, error) { return net.ListenPacket("udp", at) })
	t.Cleanup(func() { l.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			k, from, err := l.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = l.WriteTo(buf[:k], from)
		}
	}()
}
