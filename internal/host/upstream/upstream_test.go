package upstream

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"levee/internal/host/hosttest"
)

// TestServersThatFilesName: a forged alert about a resolver or a time server put it into a set.
func TestServersThatFilesName(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"etc/resolv.conf": "# nameserver 192.0.2.99\nsearch example\nnameserver 127.0.0.53\n" +
			"nameserver 192.0.2.53\nnameserver fe80::1%eth0\n",
		"run/systemd/resolve/resolv.conf":     "nameserver 2001:db8::53\n",
		"etc/chrony/chrony.conf":              "pool Pool.example iburst\n#server no.example\n",
		"etc/chrony/sources.d/local.sources":  "server 192.0.2.123 prefer\npeer time.example\n",
		"etc/systemd/timesyncd.conf":          "[Time]\n#NTP=\n#FallbackNTP=0.example 1.example\n",
		"etc/systemd/timesyncd.conf.d/a.conf": "[Time]\nNTP = [2001:db8::123] clock.example\n",
		"run/systemd/timesync/synchronized":   "",
		"etc/ntp.conf":                        strings.Repeat("x", 100_000),
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := New()
	if err := s.files(dir); err == nil || !strings.Contains(err.Error(), "token too long") {
		t.Errorf("a line of 100,000 bytes: %v", err)
	}
	var addrs []string
	for a := range s.Addresses {
		addrs = append(addrs, a.String())
	}
	slices.Sort(addrs)
	if got, want := strings.Join(addrs, " "), "192.0.2.123 192.0.2.53 2001:db8::123 2001:db8::53 "+
		"fe80::1"; got != want {
		t.Errorf("addresses %s, want %s", got, want)
	}
	names := slices.Sorted(maps.Keys(s.Names))
	if got, want := strings.Join(names, " "), "0.example 1.example clock.example pool.example "+
		"time.example"; got != want {
		t.Errorf("names %s, want %s", got, want)
	}
	what := s.Addresses[netip.MustParseAddr("192.0.2.53")]
	if what != "a resolver of this machine" {
		t.Errorf("192.0.2.53 is %q", what)
	}
}

// TestGateways: so was the gateway, and the machine was alone.
func TestGateways(t *testing.T) {
	hosttest.Enter(t)
	for _, args := range []string{"link add dm0 type veth peer name dm1", "link set dm0 up",
		"link set dm1 up",
		"addr add 192.0.2.2/24 dev dm0", "addr add 2001:db8::2/64 dev dm0 nodad",
		"route add default via 192.0.2.1", "route add 198.51.100.0/24 via 192.0.2.7",
		"route add 203.0.113.0/24 nexthop via 192.0.2.8 nexthop via 192.0.2.9",
		"-6 route add default via 2001:db8::1", "route add 10.0.0.0/8 via inet6 2001:db8::3",
		"route add default via 192.0.2.10 table 7"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	s := New()
	if err := s.gateways(); err != nil {
		t.Fatal(err)
	}
	got := slices.SortedFunc(maps.Keys(s.Addresses), netip.Addr.Compare)
	if want := "[192.0.2.1 192.0.2.7 192.0.2.8 192.0.2.9 192.0.2.10 2001:db8::1 2001:db8::3]"; fmt.
		Sprint(got) != want {
		t.Errorf("gateways %v, want %s", got, want)
	}
}
