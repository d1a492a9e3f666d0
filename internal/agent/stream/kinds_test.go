package stream

import (
	"encoding/binary"
	"testing"
)

// kindTests has at least one test of each kind.
func kindTests(t testing.TB) []kindTest {
	t.Helper()
	all := []kindTest{
		{&ssh, sshHello("SSH-2.0-OpenSSH_9.2p1 Debian-2", "curve25519-sha256", "ssh-ed25519",
			"aes128-ctr", "aes256-ctr", "hmac-sha2-256", "hmac-sha1", "none", "zlib", "", ""),
			`"software_version":"OpenSSH_9.2p1"`},
		{&ssh, []byte("SSH-2.0-Go\r\n"), `"proto_version":"2.0"`},
	}
	seen := map[*Kind]bool{}
	for _, test := range all {
		seen[test.kind] = true
	}
	for _, k := range Kinds {
		if !seen[k] {
			t.Errorf("%s has no test", k.Name)
		}
	}
	return all
}

func sshHello(version string, lists ...string) []byte {
	body := append([]byte{4, sshKexInit}, make([]byte, 16)...)
	for _, l := range lists {
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(l))), l...)
	}
	body = append(body, make([]byte, 5+4)...)
	out := append([]byte(version), "\r\n"...)
	return append(binary.BigEndian.AppendUint32(out, uint32(len(body))), body...)
}

// FuzzStreams: a parser says the same of whole streams and of bytes, keeps no more than it is
// given, and never fails.
func FuzzStreams(f *testing.F) {
	for _, test := range kindTests(f) {
		f.Add(test.says)
	}
	f.Fuzz(func(t *testing.T, says []byte) {
		says = says[:min(len(says), Limit)]
		for _, k := range Kinds {
			whole, bytes := k.New(), k.New()
			a, b := More, More
			if len(says) > 0 {
				a = whole.Feed(says)
			}
			for i := 0; i < len(says) && b == More; i++ {
				if b = bytes.Feed(says[i : i+1]); bytes.Held() > i+1 {
					t.Fatalf("%s holds %d bytes of %d", k.Name, bytes.Held(), i+1)
				}
			}
			if k.Datagrams {
				continue
			}
			if a != b || whole.End() != bytes.End() {
				t.Fatalf("%s: %d of the whole, %d of bytes", k.Name, a, b)
			}
			if (a == Done || a == More && whole.End()) && len(whole.Record()) == 0 {
				t.Fatalf("%s: an empty record", k.Name)
			}
		}
	})
}
