package inuse

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree makes a root with these files; those that end in -> are links.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(target, full)
		} else {
			err = os.WriteFile(full, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const socketHead = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt  " +
	" uid  timeout inode\n"

// server is a cloud machine with SSH, a web server, a resolver's stub, WireGuard and Docker.
var server = map[string]string{
	"proc/net/route": "Iface\tDestination\tGateway " +
		"\tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"ens5\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n",
	"proc/net/fib_trie": "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 192.0.2.9\n        /32 host " +
		"LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n" +
		"     |-- 192.0.2.255\n        /32 link BROADCAST\n",
	"proc/net/if_inet6": "20010db8000000000000000000000009 02 40 00 80     " +
		"ens5\nfe800000000000000000000000000009 02 40 20 80     ens5\n",
	"proc/net/tcp": socketHead +
		"   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0       " +
		" 0 11 1 0 100 0 0 10 0\n" +
		"   1: 0100007F:0CEA 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0       " +
		" 0 12 1 0 100 0 0 10 0\n" +
		"   2: 090200C0:0016 077100CB:C350 01 00000000:00000000 00:00000000 00000000     0       " +
		" 0 13 1 0 100 0 0 10 0\n" +
		"   3: 090200C0:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0       " +
		" 0 14 1 0 100 0 0 10 0\n",
	"proc/net/tcp6": socketHead +
		"   0: 00000000000000000000000000000000:01BB 00000000000000000000000000000000:0000 0A " +
		"00000000:00000000 00:00000000 00000000     0        0 15 1 0 100 0 0 10 0\n",
	"proc/net/udp": socketHead + // the first has an inode, and is no process's
		"   0: 00000000:CA6C 00000000:0000 07 00000000:00000000 00:00000000 00000000     0       " +
		" 0 20 2 0 0\n" +
		"   1: 00000000:A000 00000000:0000 07 00000000:00000000 00:00000000 00000000     0       " +
		" 0 16 2 0 0\n" +
		"   2: 00000000:0044 00000000:0000 07 00000000:00000000 00:00000000 00000000     0       " +
		" 0 17 2 0 0\n",
	"proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
	"proc/sys/net/ipv4/ip_forward":          "1\n",
	"proc/100/comm":                         "sshd\n",
	"proc/100/fd/3":                         "-> socket:[11]",
	"proc/200/comm":                         "nginx\n",
	"proc/200/fd/6":                         "-> socket:[15]",
	"proc/300/comm":                         "odd \"name\\\n",
	"proc/300/fd/6":                         "-> socket:[14]",
	"etc/resolv.conf":                       "# by systemd\nnameserver 127.0.0.53\n",
	"run/systemd/resolve/resolv.conf": "nameserver 169.254.169.253\nnameserver " +
		"2001:db8:53::53%ens5\n",
	"run/systemd/netif/leases/2":      "ADDRESS=192.0.2.9\n",
	"sys/class/net/wg0/uevent":        "DEVTYPE=wireguard\nINTERFACE=wg0\n",
	"sys/class/net/docker0/uevent":    "DEVTYPE=bridge\nINTERFACE=docker0\n",
	"sys/class/net/docker0/flags":     "0x1003\n",
	"sys/class/net/veth1/flags":       "0x1003\n",
	"sys/class/net/veth1/master":      "-> ../docker0",
	"sys/class/net/lo/flags":          "0x9\n",
	"sys/class/net/ens5/uevent":       "INTERFACE=ens5\n",
	"sys/class/net/ens5/flags":        "0x1003\n",
	"sys/class/net/ens5.7/flags":      "0x1003\n",
	"sys/class/net/ens5.7/lower_ens5": "-> ../ens5",
	"sys/class/net/sit1/type":         "776\n",
	"sys/class/net/sit1/flags":        "0x91\n",
	"sys/class/net/gre0/type":         "778\n", // there as long as the module, and down
	"sys/class/net/gre0/flags":        "0x80\n",
	"proc/net/raw": socketHead +
		"   1: 00000000:0001 00000000:0000 07 00000000:00000000 00:00000000 00000000     0       " +
		" 0 18 2 0 0\n" +
		" 112: 00000000:0070 00000000:0000 07 00000000:00000000 00:00000000 00000000     0       " +
		" 0 19 2 0 0\n",
	"proc/400/comm": "keepalived\n",
	"proc/400/fd/3": "-> socket:[19]",
	"proc/500/comm": "ntpdate\n",
	"proc/500/fd/3": "-> socket:[16]",
}

func TestWhatAServerUsesIsFound(t *testing.T) {
	m, err := Read(tree(t, server), "")
	if err != nil {
		t.Fatal(err)
	}
	any4 := netip.IPv4Unspecified()
	want := []Listener{
		{"tcp", any4, 22, "sshd"},
		{"tcp", netip.MustParseAddr("192.0.2.9"), 8080, `odd "name\`},
		{"tcp", any4, 443, "nginx"},
		{"udp", any4, 51820, "kernel"},
	}
	if !slices.Equal(m.Listeners, want) {
		t.Errorf("listeners %v, want %v", m.Listeners, want)
	}
	if len(m.Transient) != 1 || m.Transient[0].Port != 40960 {
		t.Errorf("transient %v", m.Transient)
	}
	if m.Dev != "ens5" || !slices.Equal(m.SSH, []netip.Addr{netip.MustParseAddr("203.0.113.7")}) ||
		!m.Forwards ||
		len(m.Addresses) != 2 || len(m.Resolvers) != 2 || len(m.DHCP) != 1 ||
		len(m.WireGuard) != 1 || !slices.Equal(m.Above, []string{"ens5", "ens5.7"}) ||
		!slices.Equal(m.Behind, []string{"docker0", "sit1"}) ||
		!slices.Equal(m.Raw, []Protocol{{41, "sit1"}, {112, "keepalived"}}) {
		t.Errorf("%+v", m)
	}
	text := m.Policy()
	for _, want := range []string{
		"interface ens5\n",
		"set sessions = { 203.0.113.7 }\nprotect tcp from sessions port 22 as \"session\"\n",
		"drop to { 224.0.0.0/4, ff00::/8 } as \"multicast\"\n",
		"drop not reverse-path strict as \"spoofed\"\n",
		"pass not to self as \"forwarded\"\n\ndefault drop\n",
		"    packet tcp syn from 203.0.113.7 to 192.0.2.9 port 443 expect pass\n",
		"pass proto 41 as \"sit1-proto-41\"\n",
		"pass proto 112 ttl 255 as \"keepalived-proto-112\"\n",
		"pass tcp to 192.0.2.9 port 8080 as \"oddname-tcp-8080\"\n",
		"pass udp port 51820 as \"kernel-udp-51820\"\n",
		"# udp port 40960 of ntpdate-udp-40960 looks like one that waits for an answer",
		"set resolvers = { 169.254.169.253, 2001:db8:53::53 }\n",
		"# Lease: /run/systemd/netif/leases/2\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the draft lacks %q:\n%s", want, text)
		}
	}
}

// Systemd listens for an SSH server that is begun for each session, and so does nobody for ESP,
// which an IKE daemon has the kernel take.
func TestWhatNoListenerTellsIsFound(t *testing.T) {
	sock := func(at, with, state, inode string) string {
		return "   0: " + at + " " + with + " " + state +
			" 00000000:00000000 00:00000000 00000000     0        0 " + inode + " 1 0\n"
	}
	files := map[string]string{
		"proc/net/tcp": socketHead + sock("00000000:08AE", "00000000:0000", "0A", "11") +
			sock("090200C0:08AE", "077100CB:C350", "01", "12") +
			sock("090200C0:A000", "087100CB:0016", "01", "13"),
		"proc/net/udp": socketHead + sock("00000000:01F4", "00000000:0000", "07", "14"),
		"proc/1/comm":  "systemd\n", "proc/1/fd/3": "-> socket:[11]",
		"proc/200/comm": "sshd-session\n", "proc/200/fd/3": "-> socket:[12]",
		"proc/200/fd/4": "-> socket:[13]", // that it forwards
		"proc/300/comm": "charon\n", "proc/300/fd/3": "-> socket:[14]",
	}
	m, err := Read(tree(t, files), "eth0")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.SSHPorts, []uint16{2222}) ||
		!slices.Equal(m.SSH, []netip.Addr{netip.MustParseAddr("203.0.113.7")}) {
		t.Errorf("sessions from %v, at %v", m.SSH, m.SSHPorts)
	}
	if !slices.Equal(m.Raw, []Protocol{{50, "charon"}, {51, "charon"}}) {
		t.Errorf("protocols %v", m.Raw)
	}
}

// TestWhoRoutesMulticastKeepsIt: it is not for programs of the machine alone.
func TestWhoRoutesMulticastKeepsIt(t *testing.T) {
	files := maps.Clone(server)
	files["proc/net/ip_mr_vif"] = "Interface BytesIn\n 0 ens5 0\n"
	m, err := Read(tree(t, files), "")
	if err != nil || !m.RoutesMulticast || strings.Contains(m.Policy(), "224.0.0.0/4") {
		t.Errorf("%v:\n%s", err, m.Policy())
	}
}

// TestADraftHadPacketsFromBehindPassThrough: a router took what came in by its uplink with an
// address of the networks behind it, and with its own. One that does not forward is told no routes.
func TestADraftHadPacketsFromBehindPassThrough(t *testing.T) {
	two := maps.Clone(server)
	two["proc/net/route"] += "wan2\t00000000\t01020304\t0003\t0\t0\t9\t00000000\t0\t0\t0\n"
	host := maps.Clone(server)
	host["proc/sys/net/ipv4/ip_forward"] = "0\n"
	for _, c := range []struct {
		what  string
		files map[string]string
		want  string
	}{
		{"one uplink", server, "drop not reverse-path strict as \"spoofed\"\n"},
		{"two uplinks", two, "drop not reverse-path loose as \"spoofed\"\n"},
		{"a host", host, ""},
	} {
		m, err := Read(tree(t, c.files), "ens5")
		if err != nil {
			t.Fatal(err)
		}
		text := m.Policy()
		if asks := strings.Contains(text, "reverse-path"); asks != (c.want != "") ||
			!strings.Contains(text, c.want) {
			t.Errorf("%s: the draft lacks %q, or has too much:\n%s", c.what, c.want, text)
		}
	}
}

// A default route by which nothing goes, as some tunnels add, is none.
func TestAnUnreachableDefaultIsNoRoute(t *testing.T) {
	route := "*\t00000000\t00000000\t0201\t0\t0\t9\t00000000\t0\t0\t0\n"
	_, err := Read(tree(t, map[string]string{"proc/net/route": route}), "")
	if err == nil || !strings.Contains(err.Error(), "--dev") {
		t.Error(err)
	}
}

// TestTheDraftOfAResolverEndedItsLookUps: only answers of the resolvers in resolv.conf passed, of
// which a machine that resolves names itself has none, and those of no other server over UDP.
func TestTheDraftOfAResolverEndedItsLookUps(t *testing.T) {
	const any4, loopback, home = "00000000:0000", "0100007F:0035", "090200C0:9C40"
	for _, c := range []struct {
		what, at, with, state, comm string
		asks                        bool
	}{
		{"a resolver for itself", loopback, any4, "07", "unbound", true},
		{"systemd-resolved", "3500007F:0035", any4, "07", "systemd-resolve", false},
		{"a client of RADIUS", home, "077100CB:0714", "01", "radclient", true},
		{"a tunnel without a port of its own", "00000000:9C40", any4, "07", "openvpn", true},
		{"a question to the resolver", home, "350200C0:0035", "01", "dig", false},
		{"a question to a name server", home, "077100CB:0035", "01", "dig", true},
		{"a clock", home, "077100CB:007B", "01", "chronyd", false},
		{"a client of DHCP, as of NetworkManager", "090200C0:0044", "010200C0:0043", "01",
			"NetworkManager", false},
		{"one of the machine itself", "0100007F:9C40", "0100007F:0714", "01", "radclient", false},
	} {
		m, err := Read(tree(t, map[string]string{
			"etc/resolv.conf":                       "nameserver 192.0.2.53\n",
			"proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
			"proc/7/comm":                           c.comm + "\n",
			"proc/7/fd/3":                           "-> socket:[14]",
			"proc/net/udp": socketHead + "   0: " + c.at + " " + c.with + " " + c.state +
				" 00000000:00000000 00:00000000 00000000     0        0 14 1 0\n",
		}), "eth0")
		if err != nil {
			t.Fatal(err)
		}
		text := m.Policy()
		if got := strings.Contains(text, "\npass established"); got != c.asks {
			t.Errorf("%s: answers pass: %t, want %t:\n%s", c.what, got, c.asks, text)
		}
	}
}

// TestTheDraftOfAReceiverLostItsGroup: behind a switch that snoops, some minutes later.
func TestTheDraftOfAReceiverLostItsGroup(t *testing.T) {
	word := func(a string) string {
		b := netip.MustParseAddr(a).As4()
		return fmt.Sprintf("%08X", binary.NativeEndian.Uint32(b[:]))
	}
	for group, dev := range map[string]string{"239.1.2.3": "eth0", "224.0.0.251": "eth0",
		"239.1.2.4": "eth1"} {
		m, err := Read(tree(t, map[string]string{
			"proc/net/igmp": "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n" +
				"2\teth0      :     1      V3\n" +
				"\t\t\t\t" + word("224.0.0.1") + "     1 0:00000000\t\t0\n" +
				"3\t" + dev + "      :     2      V3\n" +
				"\t\t\t\t" + word(group) + "     1 0:00000000\t\t0\n",
		}), "eth0")
		if err != nil {
			t.Fatal(err)
		}
		text, want := m.Policy(), group == "239.1.2.3"
		if got := strings.Contains(text, "\npass igmp ttl 1"); got != want {
			t.Errorf("%s on %s: IGMP passes: %t, want %t:\n%s", group, dev, got, want, text)
		}
	}
}

func TestAMachineWithoutAnythingIsNoError(t *testing.T) {
	if _, err := Read(tree(t, nil), ""); err == nil || !strings.Contains(err.Error(), "--dev") {
		t.Errorf("without a default route: %v", err)
	}
	m, err := Read(tree(t, nil), "eth9")
	if err != nil || len(m.Listeners) != 0 || !strings.Contains(m.Policy(), "interface eth9\n") {
		t.Errorf("%+v, %v", m, err)
	}
}
