package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"levee/internal/await"
	"levee/internal/dataplane/store"
)

// program is one that asks name servers. %[1]s is the server's address, %[2]s its own, %[3]s a
// directory of its own.
type program struct {
	name, version string // the second: arguments that have it say its version
	args          string
	asks          bool   // it asks once, for the name behind its arguments; others are resolvers
	config        string // of a resolver, which is asked at its own address, port 5300
}

var programs = []program{
	{name: "dig", version: "-v", asks: true, args: "@%[1]s -b %[2]s +tries=1 +time=10 " +
		"+cookie=0102030405060708a1a2a3a4a5a6a7a8"},
	{name: "kdig", version: "-V", asks: true, args: "@%[1]s -b %[2]s +retry=0 +time=10 " +
		"+cookie=0102030405060708a1a2a3a4a5a6a7a8"},
	{name: "drill", version: "-v", asks: true, args: "-a -I %[2]s @%[1]s"},
	{name: "unbound", version: "-V", args: "-d -c %[3]s/config", config: `server:
	interface: %[2]s@5300
	access-control: 0.0.0.0/0 allow
	outgoing-interface: %[2]s
	directory: %[3]s
	chroot: ""
	username: ""
	pidfile: ""
	use-syslog: no
	do-ip6: no
	num-threads: 1
	module-config: "iterator"
forward-zone:
	name: "."
	forward-addr: %[1]s
remote-control:
	control-enable: no
`},
	{name: "named", version: "-v", args: "-g -n 1 -4 -c %[3]s/config", config: `options {
	directory "%[3]s"; pid-file none; session-keyfile none;
	listen-on port 5300 { %[2]s; };
	query-source address %[2]s;
	allow-query { any; }; recursion yes; dnssec-validation no; empty-zones-enable no;
	forward only; forwarders { %[1]s; };
};
controls { };
`},
	{name: "dnsmasq", version: "-v", args: "-k -C %[3]s/config", config: `port=5300
listen-address=%[2]s
bind-interfaces
no-resolv
no-hosts
user=root
pid-file=
log-facility=-
server=%[1]s@%[2]s
`},
	{name: "pdns_recursor", version: "--version", args: "--config-dir=%[3]s",
		config: `local-address=%[2]s
local-port=5300
query-local-address=%[2]s
forward-zones-recurse=.=%[1]s
allow-from=0.0.0.0/0
socket-dir=%[3]s
dnssec=off
security-poll-suffix=
threads=1
`},
}

// TestProgramsAskAgainOverTCP has the programs of this machine ask a server that gives cookies (RFC
// 7873): over UDP, then where `cookie dns` has them come by TCP, and, proven, over UDP again.
func TestProgramsAskAgainOverTCP(t *testing.T) {
	var here []program
	for _, p := range programs {
		if _, err := exec.LookPath(p.name); err == nil {
			here = append(here, p)
		}
	}
	if len(here) == 0 {
		t.Skip("this machine has none of the programs that ask name servers")
	}
	n := newTestNet(t)
	giveBothFamilies(t, n)
	run(t, n.peer, "", "ip", "link", "set", "lo", "up") // by which resolvers are asked
	const server = "198.51.100.1"
	s := nameServer{cookies: true}
	s.serve(t, n.here, server+":53")
	const pass = `pass arp
pass udp port 53 as "query"
pass tcp port 53
pass icmp
default drop
`
	for i, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			defer Down(t.Context(), "lv0")
			if mode == store.XDPNative {
				hearXDP(t, n.peer, "lv1")
			}
			if err := bringPolicyAt(t, "lv0", mode, pass, 0); err != nil {
				t.Fatal(err)
			}
			var all []*asker
			for j, p := range here {
				a := &asker{program: p, n: n, addr: fmt.Sprintf("198.51.100.%d", 10+20*i+j)}
				giveAddress(t, n.peer, "lv1", a.addr+"/24")
				a.start(t, server)
				all = append(all, a)
			}
			asks := func(what string, udp, tcp int64) {
				for _, a := range all {
					before := [2]int64{s.udp.Load(), s.tcp.Load()}
					name := fmt.Sprintf("%s-%d.example.com", what, i)
					if err := a.ask(t, server, name); err != nil {
						t.Errorf("%s, %s: %v", a.name, what, err)
					}
					got := [2]int64{s.udp.Load() - before[0], s.tcp.Load() - before[1]}
					if got != [2]int64{udp, tcp} {
						t.Errorf("%s, %s: %v queries over UDP and TCP, want %d and %d", a.name,
							what, got, udp, tcp)
					}
				}
			}
			asks("quiet", 1, 0)
			if err := bringPolicyAt(t, "lv0", mode,
				"cookie dns udp port 53 as \"ask again\"\npass established\n"+pass, 0); err != nil {
				t.Fatal(err)
			}
			asks("flooded", 0, 1)
			asks("proven", 1, 0)
			if got := status(t).Cookies.Sources; got != len(all) {
				t.Errorf("%d clients are proven, want %d", got, len(all))
			}
			for _, a := range all {
				t.Logf("%s: %s", a.name, a.saysItsVersion(t))
			}
		})
	}
}

// asker is a program that asks the server, at an address of its own.
type asker struct {
	program
	addr, dir string
	n         *testNet
}

// inPeer runs this test program in the other namespace and returns what it prints.
func (a *asker) inPeer(t *testing.T, args ...string) (out []byte, err error) {
	in(t, a.n.peer, func() (any, error) {
		out, err = exec.CommandContext(t.Context(), a.name, args...).CombinedOutput()
		return nil, nil
	})
	return out, err
}

// arguments are those that ask a server, or begin a resolver that does.
func (a *asker) arguments(server string) []string {
	return strings.Fields(fmt.Sprintf(a.args, server, a.addr, a.dir))
}

// start begins a resolver, and waits until it can be asked.
func (a *asker) start(t *testing.T, server string) {
	if a.asks {
		return
	}
	a.dir = t.TempDir()
	config := fmt.Sprintf(a.config, server, a.addr, a.dir)
	for _, name := range []string{"config", "recursor.conf"} {
		if err := os.WriteFile(filepath.Join(a.dir, name), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), a.name, a.arguments(server)...)
	cmd.Stdout, cmd.Stderr = &said, &said
	in(t, a.n.peer, func() (any, error) { return nil, cmd.Start() })
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %s", a.name, said.Bytes())
		}
	})
	await.OK(t, func() error {
		c, err := a.dial(t, "tcp") // it listens there, too
		if err == nil {
			c.Close()
		}
		return err
	})
}

// dial connects to a resolver.
func (a *asker) dial(t *testing.T, network string) (c net.Conn, err error) {
	in(t, a.n.peer, func() (any, error) {
		c, err = new(net.Dialer).DialContext(t.Context(), network, a.addr+":5300")
		return nil, nil
	})
	return c, err
}

// ask asks for a name.
func (a *asker) ask(t *testing.T, server, name string) error {
	if a.asks {
		out, err := a.inPeer(t, append(a.arguments(server), name, "A")...)
		if err == nil && !bytes.Contains(out, []byte("192.0.2.55")) {
			err = errors.New("no answer")
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	r := net.Resolver{PreferGo: true,
		Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
			return a.dial(t, network)
		}}
	ips, err := r.LookupNetIP(t.Context(), "ip4", name+".")
	if err == nil && (len(ips) != 1 || ips[0].String() != "192.0.2.55") {
		err = fmt.Errorf("it answers %v", ips)
	}
	return err
}

var versions = regexp.MustCompile(`\d+\.\d+[\w.~+-]*`)

func (a *asker) saysItsVersion(t *testing.T) string {
	out, _ := a.inPeer(t, a.version)
	return versions.FindString(string(out))
}
