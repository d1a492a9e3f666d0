package profile

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"levee/internal/dataplane/judge"
	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// recorded are exchanges of real clients and servers: those of levee's by what recorded them, in
// profiles/captures, and those of others where they are at hand, in LEVEE_DATA.
var recorded = []struct {
	file   string
	policy string
	port   uint16
	proves bool // some packet of the client's proves it
}{
	{"wireguard-go.pcap", "use wireguard", 51820, true},
	{"openvpn-plain.pcap", "use openvpn", 1194, true},
	{"openvpn-tls-auth-sha1.pcap", "use openvpn", 1194, true},
	{"openvpn-tls-auth-sha256.pcap", "use openvpn", 1194, true},
	{"openvpn-tls-auth-sha512.pcap", "use openvpn", 1194, true},
	{"openvpn-tls-crypt.pcap", "use openvpn", 1194, false}, // the identifier is encrypted
	{"openvpn-tls-crypt-v2.pcap", "use openvpn", 1194, false},
	{"raknet-go.pcap", "use raknet", 19132, true},
	{"enet.pcap", "use fivem", 30120, false}, // of which FiveM's sessions are
	{"quic-go-retry.pcap", "use quic", 443, true},
	// quic-go takes an ID that nobody else has seen as soon as it is given one.
	{"quic-go-zero.pcap", "use quic", 443, false},
	{"dtls-openssl.pcap", dtlsPolicy, 4433, true},
	{"ikev2-libreswan.pcap", ikePolicy, 500, true},
	{"protocols/quic-29.pcap", "use quic", 443, true},
	{"protocols/raknet.pcap", "use raknet port 60030", 60030, false}, // without cookies
	{"protocols/source_engine.pcap", "use source-engine", 27015, false},
	{"protocols/mullvad_wireguard.pcap", "use wireguard port 5060", 5060, false}, // no handshake
	{"protocols/ssh.pcap", "use ssh", 22, false},
	{"protocols/dns.pcap", "use dns-authoritative", 53, false},
}

// Policies for what has no profile, as docs/reference/profiles.md has them.
const (
	dtlsPolicy = `prove "dtls" udp port 4433 reply payload at 0 16 payload at 13 03 ` +
		`echo 16 bytes at 28 in request at 61, 93
pass udp port 4433 proven flow as "proven"
pass udp port 4433 as "stranger"`
	ikePolicy = `prove "ike" udp port 500 reply payload at 16 29 payload at 34 4006 ` +
		`echo 8 bytes at 36 in request at 36
pass udp port 500 proven flow as "proven"
pass udp port 500 as "stranger"`
)

// TestRecordedClientsAreServed replays exchanges: each packet of the client's passes, and those
// behind the proof as proven. The same packets from another port, where no answer went, prove
// nobody.
func TestRecordedClientsAreServed(t *testing.T) {
	for _, r := range recorded {
		t.Run(filepath.Base(r.file), func(t *testing.T) {
			t.Parallel()
			file := filepath.Join("../../profiles/captures", r.file)
			if strings.Contains(r.file, "/") {
				file = filepath.Join(dataDir(), r.file)
				if _, err := os.Stat(file); err != nil {
					t.Skip("this capture is not at hand")
				}
			}
			text := r.policy + "\npass fragments\ndefault drop\n"
			p, ds := resolve.Parse("edge.levee", []byte(text), nil)
			if p == nil {
				t.Fatal(ds)
			}
			if got := replay(t, p, file, r.port, true); slices.Contains(got, "proven") != r.proves {
				t.Errorf("packets are decided by %q", got)
			}
			if got := replay(t, p, file, r.port, false); slices.Contains(got, "proven") {
				t.Errorf("a replay where no answer goes is decided by %q", got)
			}
		})
	}
}

func dataDir() string {
	if dir := os.Getenv("LEVEE_DATA"); dir != "" {
		return dir
	}
	return "../../../shared/data"
}

// replay judges the packets to a port, and returns by which rules they pass. Without answers, those
// of the service are left out.
func replay(t *testing.T, p *policy.Policy, file string, port uint16, answers bool) (by []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := packet.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	engine := judge.Both
	if !answers || os.Getuid() != 0 || kernel.Privileged() != nil {
		engine = judge.Oracle
	}
	j, err := judge.New(p, engine)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	slots := j.Slots()
	var service netip.Addr // of IKE the client has the same port
	for {
		rec, err := c.Next()
		if errors.Is(err, io.EOF) {
			return by
		}
		if err != nil {
			t.Fatal(err)
		}
		frame := slices.Clone(rec.Data)
		j.At(rec.Time)
		var pkt packet.Packet
		packet.Decode(frame, &pkt)
		if pkt.DstPort == port && !service.IsValid() {
			service = pkt.Dst
		}
		switch {
		case pkt.SrcPort == port && pkt.Src == service && answers:
			if _, err := j.Leave(frame); err != nil {
				t.Fatal(err)
			}
		case pkt.DstPort == port && pkt.Dst == service:
			v, err := j.Frame(frame)
			if err != nil {
				t.Fatal(err)
			}
			label := p.LabelOf(slots[v.Slot])
			if answers && v.Action != action.Pass || v.Differs {
				t.Errorf("packet %d is decided by %q: %v", rec.Number, label, v)
			}
			_, name, _ := strings.Cut(label, "/")
			if by = append(by, label); name != "" {
				by[len(by)-1] = name
			}
		}
	}
}
