package procnet

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// TestTheLineOfASocketOfThisMachine, of both families.
func TestTheLineOfASocketOfThisMachine(t *testing.T) {
	for file, at := range map[string]string{"tcp": "127.0.0.1:0", "tcp6": "[::1]:0"} {
		l, err := net.Listen(file[:3], at)
		if err != nil {
			t.Logf("%s: %v", file, err) // a kernel without IPv6
			continue
		}
		defer l.Close()
		b, err := os.ReadFile("/proc/thread-self/net/" + file)
		if err != nil {
			t.Fatal(err)
		}
		want := netip.MustParseAddrPort(l.Addr().String())
		found := false
		for line := range strings.Lines(string(b)) {
			s, ok := Parse(line)
			if ok && s.Local == want {
				found = s.State == 10 && s.Inode != 0 && s.UID == uint32(os.Geteuid())
			}
		}
		if !found {
			t.Errorf("%s: %v is not in\n%s", file, want, b)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range []string{"", "  sl  local_address", "0: 0100007F:0016 00000000:0000 0A " +
		"00000000:00000000 00:00000000 00000000 0 0 17 1", "0: 0:0 0:0 0A 0 0 0 -1 0 x"} {
		f.Add(line)
	}
	f.Fuzz(func(_ *testing.T, line string) { Parse(line) })
}
