//go:build proof

package service

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
	"levee/internal/lab/labtest"
	"levee/internal/lab/talk"
	"levee/internal/packet/template"
)

// real is a server and a client that others wrote, behind a profile. In commands, $AT is the
// server's address, $REAL the directory of what comes from registries, $TMP one of the test's with
// c.pem and k.pem, and $PY scripts/profiles.
type real struct {
	name    string
	use     string // a profile with parameters, or what policy is for
	policy  string // in the place of a profile
	port    uint16
	version string // command that tells what it is
	serve   string // runs until its input ends, or it is killed; a line with ready says it serves
	ready   string
	join    string
	joined  string
	first   string // what the first client writes besides
	again   bool   // the profile has strangers come again, and the client does
	floods  string // protocol of the flood, for a profile that the lab has no service of
	forged  string // what stands behind the port in such a flood
}

const (
	resolverConf = `server:
  interface: $AT
  access-control: 198.18.0.0/15 allow
  use-syslog: no
  chroot: ""
  username: ""
  pidfile: ""
  do-daemonize: no
  local-zone: "example." static
  local-data: "www.example. A 192.0.2.1"
  verbosity: 1
  logfile: ""
remote-control:
  control-enable: no
`
	serverConf = `server:
  ip-address: $AT
  username: ""
  zonesdir: $TMP
  database: ""
  pidfile: $TMP/nsd.pid
  xfrdfile: $TMP/xfrd.state
  zonelistfile: $TMP/zone.list
  server-count: 1
remote-control:
  control-enable: no
zone:
  name: example.
  zonefile: zone
`
	zoneFile = `$ORIGIN example.
@ 300 IN SOA ns hostmaster 1 3600 600 86400 300
@ 300 IN NS ns
ns 300 IN A 192.0.2.53
www 300 IN A 192.0.2.1
`
	// A telephone of baresip: where it listens, what it plays to the other end, and who it is.
	phoneConf = `module_path /usr/lib/baresip/modules
module g711.so
module aufile.so
module_tmp account.so
module_app menu.so
rtp_ports 10000-20000
audio_source aufile,$TMP/tone.wav
audio_player aufile,$TMP/heard.wav
audio_alert aufile,$TMP/alert.wav
`
	// docs/reference/profiles.md has the line that proves.
	dtlsPolicy = `prove "dtls" udp port 4433 reply payload at 0 16 payload at 13 03 ` +
		`echo 16 bytes at 28 in request at 61, 93
pass udp port 4433 proven flow as "proven"
greylist udp port 4433 after 200ms within 60s above 1kpps as "first"
limit udp port 4433 rate 5kpps as "strangers"
pass udp port 4433 as "stranger"`
	// It serves one client after the other.
	dtlsServer = "cd $TMP; exec 3<&0; (trap 'kill $p; exit' TERM; " +
		"while openssl s_server -dtls -listen -naccept 1 -accept $AT:4433 -cert c.pem -key k.pem " +
		"<&3 >&- 2>&- & p=$!; wait $p; do :; done) >&- 2>&- &\n" +
		"trap 'kill $!' EXIT INT\n" +
		"timeout 10 sh -c 'until ss -Hlun sport 4433 | grep -q .; do sleep 0.1; done'\n" +
		"echo ready; cat"
	// A ClientHello of DTLS 1.2 without a cookie.
	dtlsHello = `payload hex "16feff000000000000000000360100002a000000000000002afefd` +
		`00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00000002c02c0100"`
	// The first packet of a client of ENet: a header without a peer, and its request to connect.
	enetConnect = `payload hex "8fff000182ff00010000ffff00000578000100000000000100000000` +
		`00000000000013880000000200000002a1b2c3d400000000"`
	invite = "INVITE sip:server@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.2:5060;" +
		"branch=z9hG4bK1\r\nFrom: <sip:a@192.0.2.2>;tag=1\r\nTo: <sip:server@192.0.2.1>\r\n" +
		"Call-ID: 1\r\nCSeq: 1 INVITE\r\nContact: <sip:a@192.0.2.2>\r\nContent-Length: 0\r\n\r\n"
	nameQueries = "cat > $TMP/zone <<'E'\n" + zoneFile + "E\ncat > $TMP/nsd.conf <<E\n" +
		serverConf + "E\nexec nsd -d -c $TMP/nsd.conf"
)

var reals = []real{
	{name: "python-a2s, a server of the lab", use: "source-engine", again: true, port: 27015,
		version: "$REAL/venv/bin/pip list 2>&1 | grep a2s", join: "$REAL/venv/bin/python " +
			"$PY/query.py $AT 27015", joined: "joined"},
	{name: "gamedig, a server of the lab", use: "source-engine asked 1/s", again: true, port: 27015,
		version: `grep '"version"' $REAL/node_modules/gamedig/package.json`,
		join:    "cd $REAL && node $PY/query.mjs $AT 27015", joined: "joined"},
	{name: "bedrock-protocol", use: "raknet", port: 19132,
		version: `grep '"version"' $REAL/node_modules/bedrock-protocol/package.json`,
		serve:   "NODE_PATH=$REAL/node_modules exec node $PY/bedrock.js serve $AT 19132",
		ready:   "ready", joined: "joined",
		join: "NODE_PATH=$REAL/node_modules exec node $PY/bedrock.js join $AT 19132"},
	{name: "minecraft-protocol", use: "minecraft-java", port: 25565,
		version: `grep '"version"' $REAL/node_modules/minecraft-protocol/package.json`,
		serve:   "NODE_PATH=$REAL/node_modules exec node $PY/java.js serve $AT 25565",
		ready:   "ready", joined: "joined",
		join:   "NODE_PATH=$REAL/node_modules exec node $PY/java.js join $AT 25565",
		floods: "tcp syn"},
	{name: "TeamSpeak, a server by its client's ciphers", use: "teamspeak3", again: true,
		port:    9987,
		version: `grep '"version"' $REAL/node_modules/@honeybbq/teamspeak-client/package.json`,
		serve:   "NODE_PATH=$REAL/node_modules exec node $PY/teamspeak.js serve $AT 9987",
		ready:   "ready", joined: "joined",
		join: "NODE_PATH=$REAL/node_modules exec node $PY/teamspeak.js join $AT 9987"},
	{name: "aioquic", use: "quic", again: true, port: 443,
		version: "$REAL/venv/bin/pip list 2>&1 | grep aioquic",
		serve: "exec $REAL/venv/bin/python $PY/quic.py serve $AT 443 $TMP/c.pem " +
			"$TMP/k.pem",
		ready: "ready", join: "$REAL/venv/bin/python $PY/quic.py join $AT 443", joined: "joined"},
	{name: "aioquic with Retry", use: "quic", again: true, port: 443,
		version: "$REAL/venv/bin/pip list 2>&1 | grep aioquic",
		serve: "exec $REAL/venv/bin/python $PY/quic.py serve $AT 443 $TMP/c.pem " +
			"$TMP/k.pem retry",
		ready: "ready", join: "$REAL/venv/bin/python $PY/quic.py join $AT 443", joined: "joined"},
	{name: "aioquic with 0-RTT, and from another port", use: "quic", again: true, port: 443,
		version: "$REAL/venv/bin/pip list 2>&1 | grep aioquic",
		serve: "exec $REAL/venv/bin/python $PY/quic.py serve $AT 443 $TMP/c.pem " +
			"$TMP/k.pem",
		ready: "ready", joined: "joined",
		join: "$REAL/venv/bin/python $PY/quic.py join $AT 443 early move"},
	{name: "curl, a server of aioquic's HTTP/3", use: "quic", port: 443,
		version: "$REAL/curl --version | head -1; $REAL/venv/bin/pip list 2>&1 | grep aioquic",
		serve: "exec $REAL/venv/bin/python $PY/over_quic.py h3 $AT 443 $TMP/c.pem " +
			"$TMP/k.pem",
		ready: "ready", joined: "joined",
		join: "$REAL/curl --http3-only -sSk -m 20 --retry 3 --retry-all-errors https://$AT/"},
	{name: "kdig, a server of aioquic's QUIC", use: "quic port 853", port: 853,
		version: "$REAL/kdig --version; $REAL/venv/bin/pip list 2>&1 | grep aioquic",
		serve: "exec $REAL/venv/bin/python $PY/over_quic.py doq $AT 853 $TMP/c.pem " +
			"$TMP/k.pem",
		ready: "ready", joined: "192.0.2.1",
		join: "$REAL/kdig +quic @$AT www.example A +short"},
	{name: "OpenVPN", use: "openvpn", again: true, port: 1194,
		version: "openvpn --version | head -1",
		serve: "exec openvpn --dev tun --server 10.78.0.0 255.255.255.0 --duplicate-cn " +
			"--proto udp " +
			"--connect-freq-initial 5000 1 " +
			"--local $AT --port 1194 --dh none --cert $TMP/c.pem --key $TMP/k.pem " +
			"--peer-fingerprint $(cat $TMP/print)",
		ready: "Initialization Sequence Completed",
		join: "rm -f $TMP/log; touch $TMP/log\n" +
			"openvpn --dev null --client --ifconfig-noexec --route-noexec --proto udp " +
			"--remote $AT 1194 --nobind --cert $TMP/c.pem --key $TMP/k.pem " +
			"--peer-fingerprint $(cat $TMP/print) > $TMP/log & trap 'kill $!' EXIT INT\n" +
			"timeout 25 sh -c 'until grep Initialization $TMP/log; " +
			"do sleep 0.1; done'",
		joined: "Initialization Sequence Completed"},
	{name: "wireguard-go", use: "wireguard", again: true, port: 51820,
		version: "go version -m $REAL/wireguard | grep -m 1 mod",
		serve: "wg genkey > $TMP/s; wg genkey > $TMP/p\n$REAL/wireguard -f lvwgs &\n" +
			"trap 'kill $!' EXIT INT\n" +
			"timeout 10 sh -c 'until wg show lvwgs >&- 2>&-; do sleep 0.1; done'\n" +
			"wg set lvwgs listen-port 51820 private-key $TMP/s peer $(wg pubkey < $TMP/p) " +
			"allowed-ips 10.77.0.2/32\nip addr add 10.77.0.1/24 dev lvwgs\nip link set lvwgs up\n" +
			"echo ready\ncat",
		ready: "ready",
		join: "$REAL/wireguard -f lvwgc &\ntrap 'kill $!' EXIT INT\n" +
			"timeout 10 sh -c 'until wg show lvwgc >&- 2>&-; do sleep 0.1; done'\n" +
			"wg set lvwgc private-key $TMP/p peer $(wg pubkey < $TMP/s) endpoint $AT:51820 " +
			"allowed-ips 10.77.0.1/32\nip addr add 10.77.0.2/24 dev lvwgc\nip link set lvwgc up\n" +
			"ping -c 3 -w 20 10.77.0.1 && echo joined",
		joined: "joined"},
	{name: "NSD, dig", use: "dns-authoritative", port: 53, version: "nsd -v 2>&1 | head -1; dig -v",
		serve: nameQueries, ready: "nsd started",
		join:   "dig +tries=3 +time=2 @$AT www.example A +short",
		joined: "192.0.2.1"},
	{name: "NSD, kdig, asked again over TCP", use: "dns-authoritative queries 1/s", port: 53,
		version: "nsd -v 2>&1 | head -1; kdig --version", serve: nameQueries, ready: "nsd started",
		join:   "for i in 1 2 3 4; do kdig +retry=2 +time=2 @$AT www.example A; done",
		joined: "192.0.2.1", first: "(TCP)"}, // it is known from then on
	{name: "Unbound, dig", use: "dns-recursive clients { 198.18.0.0/15 }", port: 53,
		version: "unbound -V | head -1; dig -v",
		serve: "cat > $TMP/unbound.conf <<E\n" + resolverConf +
			"E\nexec unbound -d -c $TMP/unbound.conf",
		ready: "start of service", join: "dig +tries=3 +time=2 @$AT www.example A +short",
		joined: "192.0.2.1", floods: "udp"},
	{name: "coturn", use: "turn", again: true, port: 3478,
		version: "turnserver --version | tail -1",
		serve: "cd $TMP; turnserver -n --listening-ip=$AT --relay-ip=$AT --user u:p --realm r " +
			"--lt-cred-mech --no-cli --no-tls --no-dtls --pidfile=$TMP/pid " +
			"--log-file=$TMP/turn.log >&- 2>&- &\ntrap 'kill $!' EXIT INT\n" +
			"timeout 10 sh -c 'until ss -Hlun sport 3478 | grep -q .; do sleep 0.1; done'\n" +
			"echo ready; cat",
		ready: "ready", joined: "both hear",
		join: "timeout 30 turnutils_uclient -u u -w p -y -n 5 -c $AT 2>&1 | " +
			"grep -q 'recv_msgs=[1-9]' && echo both hear",
		floods: "udp", forged: `payload hex "000300002112a4425a5a5a5a5a5a5a5a5a5a5a5a"`},
	{name: "DTLS of OpenSSL", use: "dtls", policy: dtlsPolicy, again: true, port: 4433,
		version: "openssl version", serve: dtlsServer, ready: "ready", joined: "Cipher is ECDHE",
		join: "for i in 1 2 3 4 5; do (sleep 0.3; echo Q) | timeout 20 openssl s_client -dtls " +
			"-connect $AT:4433 2>&1 | grep \"Cipher is ECDHE\" && break; sleep 0.2; done",
		floods: "udp", forged: dtlsHello},
	{name: "DTLS of GnuTLS, a server of OpenSSL's", use: "dtls", policy: dtlsPolicy, again: true,
		port: 4433, version: "gnutls-cli --version | head -1; openssl version",
		serve: dtlsServer, ready: "ready", joined: "Handshake was completed",
		join: "for i in 1 2 3 4 5; do (sleep 0.3; echo hello) | timeout 20 gnutls-cli --udp " +
			"--insecure -p 4433 $AT 2>&1 | grep \"Handshake was completed\" " +
			"&& break; sleep 0.2; done",
		floods: "udp", forged: dtlsHello},
	{name: "ENet", use: "fivem", again: true, port: 30120,
		version: "dpkg-query -W python3-enet libenet7",
		serve:   "exec /usr/bin/python3 $PY/over_enet.py serve $AT 30120", ready: "ready",
		join: "/usr/bin/python3 $PY/over_enet.py join $AT 30120", joined: "joined",
		floods: "udp", forged: enetConnect},
	{name: "SIPp", use: "sip", port: 5060, version: "sipp -v | grep SIPp",
		serve: "cd $TMP; sipp -sn uas -i $AT -p 5060 -rtp_echo -mi $AT -mp 10000 -nostdin " +
			">&- 2>&- &\n" +
			"trap 'kill $!' EXIT INT; echo ready; cat",
		ready: "ready", joined: "all", again: true,
		join: "cd $TMP; sipp -sn uac $AT:5060 -m 3 -d 300 -timeout 20 -nostdin >&- 2>&- && " +
			"echo all",
		floods: "udp", forged: hexLine(invite)},
	{name: "baresip, which rings and talks", use: "sip", port: 5060,
		version: "baresip -h 2>&1 | grep -o 'baresip v[0-9.]*'",
		serve: phone + "phone $TMP/s server auto \"sip_listen $AT:5060\"\n" +
			"baresip -v -f $TMP/s >> $TMP/s.log 2>&1 < /dev/null &\ntrap 'kill $!' EXIT INT\n" +
			"timeout 10 sh -c 'until grep -q \"baresip is ready\" $TMP/s.log; " +
			"do sleep 0.1; done'\n" +
			"echo ready; cat",
		ready: "ready", joined: "both hear", again: true,
		join: phone + "phone $TMP/c client manual; : > $TMP/c.log\n: > $TMP/s.log\n" +
			"baresip -v -f $TMP/c -e \"/dial sip:server@$AT\" > $TMP/c.log 2>&1 < /dev/null &\n" +
			"trap 'kill $!' EXIT INT\n" +
			"timeout 20 sh -c 'until grep -q \"incoming rtp\" $TMP/c.log && " +
			"grep -q \"incoming rtp\" $TMP/s.log; do sleep 0.1; done' && echo both hear\n" +
			"tail -n 9 $TMP/c.log $TMP/s.log",
		floods: "udp", forged: hexLine(invite)},
}

// phone is a shell's function that writes the configuration of a telephone.
const phone = "phone() {\nmkdir -p $1; : > $1/contacts\n" +
	"echo \"<sip:$2@localhost>;regint=0;answermode=$3;audio_codecs=pcmu\" > $1/accounts\n" +
	"cat > $1/config <<E\n" + phoneConf + "$4\nE\n" +
	"python3 -c \"import wave; w = wave.open('$TMP/tone.wav', 'wb'); w.setnchannels(1); " +
	"w.setsampwidth(2); w.setframerate(8000); w.writeframes(bytes(range(256)) * 1250)\"\n}\n"

// hexLine is a payload as templates have it.
func hexLine(text string) string {
	return fmt.Sprintf("payload hex %q", hex.EncodeToString([]byte(text)))
}

// realRate is that of the floods, in packets a second. Servers and clients share two cores with
// them.
const realRate = 50_000

const quiet = "quiet"

// TestProofOfRealClients: each client is served through its profile, in a quiet lab, while first
// packets of clients come in the names of other clients, and where the profile has strangers come
// again, while they come from drawn addresses.
func TestProofOfRealClients(t *testing.T) {
	labtest.NeedRoot(t)
	dir := os.Getenv("LEVEE_REAL")
	if dir == "" {
		t.Skip("make profiles-proof installs the programs")
	}
	for _, r := range reals {
		t.Run(r.name, func(t *testing.T) {
			// Not of the test's context, which ends before what is cleaned up within the lab.
			l, err := lab.New(context.Background(), lab.Standard())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
			h, w := l.Host(lab.Server), l.Host(lab.World)
			at := h.Devices[0].IPv4.Addr()
			scripts, err := filepath.Abs("../../../scripts/profiles")
			if err != nil {
				t.Fatal(err)
			}
			tmp := t.TempDir()
			env := []string{"AT=" + at.String(), "REAL=" + dir, "TMP=" + tmp, "PY=" + scripts}
			keys := exec.Command("sh", "-c", "cd $TMP && openssl req -x509 -newkey ec -pkeyopt "+
				"ec_paramgen_curve:prime256v1 -nodes -keyout k.pem -out c.pem -days 2 "+
				"-subj /CN=lab 2>&1 && openssl x509 -in c.pem -noout -fingerprint -sha256 | "+
				"cut -d= -f2 > print")
			keys.Env = append(os.Environ(), env...)
			if out, err := keys.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if r.policy == "" {
				r.policy = "use " + r.use
			}
			inForce(t, h, r.use, r.policy+"\ndrop fragments\ndefault drop\n")
			// A veth device hears what XDP sends back only where it has a program itself. What is
			// answered to others is for others: a client's socket may be of all addresses.
			names := listed(w.Devices[0].Clients4[:len(w.Devices[0].Clients4)/2])
			inForce(t, w, "heard", "drop to { "+names+" }\ndefault pass\n")
			served(t, h, &r, env)
			joins(t, w, &r, env, quiet)
			beside(t, h, w, &r, env, "in the names of others", "{ "+names+" }")
			if r.again {
				beside(t, h, w, &r, env, "from drawn addresses", "16.0.0.0/4")
			}
			version := exec.Command("sh", "-c", r.version)
			version.Env = append(os.Environ(), env...)
			out, _ := version.CombinedOutput()
			t.Logf("%s: %s", r.use, strings.Join(strings.Fields(string(out)), " "))
		})
	}
}

// listed are addresses as templates have them.
func listed(all []netip.Addr) string {
	var names []string
	for _, a := range all {
		names = append(names, a.String())
	}
	return strings.Join(names, ", ")
}

// beside runs the client three times beside a flood from some addresses.
func beside(t *testing.T, h, w *lab.Host, r *real, env []string, when, from string) {
	t.Helper()
	c := flooded(t, h, w, r, from)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan gen.Report, 1)
	began := make(chan struct{})
	c.Progress = func(gen.Progress) {
		select {
		case <-began:
		default:
			close(began)
		}
	}
	go func() {
		sent, err := gen.Run(ctx, c)
		if err != nil {
			t.Error(err)
		}
		ended <- sent
	}()
	<-began
	joins(t, w, r, env, when)
	stop()
	sent := <-ended
	t.Logf("%s: %d packets of a flood %s, %.0f a second", r.use, sent.Sent, when, sent.Achieved)
}

// inForce has a policy at a host's device until the test ends.
func inForce(t *testing.T, h *lab.Host, name, text string) {
	t.Helper()
	d := contender.Levee(name, []byte(text))
	site := contender.Site{Host: h, Device: h.Devices[0].Name}
	if err := d.Install(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// served starts the server until the test ends.
func served(t *testing.T, h *lab.Host, r *real, env []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if r.serve == "" {
		profile, _, _ := strings.Cut(r.use, " ")
		s, err := talk.Find(profile)
		if err != nil {
			t.Fatal(err)
		}
		ready, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- h.Do(func() error {
				return s.Serve(ctx, h.Devices[0].IPv4.Addr(), func() { close(ready) })
			})
		}()
		t.Cleanup(func() { cancel(); <-ended })
		<-ready
		return
	}
	cmd := h.Command(ctx, "sh", "-c", r.serve)
	cmd.Env = append(os.Environ(), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Signal(os.Interrupt)
		kill := time.AfterFunc(5*time.Second, cancel)
		_ = cmd.Wait() // it was interrupted
		kill.Stop()
		cancel()
	})
	var said []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		said = append(said, lines.Text())
		if strings.Contains(lines.Text(), r.ready) {
			go func() {
				for lines.Scan() { // or it waits for a reader
				}
			}()
			return
		}
	}
	t.Fatalf("the server does not start: %s", strings.Join(said, "\n"))
}

// joins runs the client three times.
func joins(t *testing.T, w *lab.Host, r *real, env []string, when string) {
	t.Helper()
	for i := range 3 {
		began := time.Now()
		cmd := w.Command(t.Context(), "sh", "-c", r.join)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), r.joined) {
			t.Errorf("%s: not served: %v\n%s", when, err, out)
			return
		}
		if i == 0 && when == quiet && !strings.Contains(string(out), r.first) {
			t.Errorf("the first client does not say %q:\n%s", r.first, out)
		}
		t.Logf("%s: served, %.2f s", when, time.Since(began).Seconds())
	}
}

// flooded is a flood of first packets from drawn ports of some addresses, none of which is that of
// the client that joins.
func flooded(t *testing.T, h, w *lab.Host, r *real, from string) gen.Config {
	t.Helper()
	out := w.Devices[0]
	profile, _, _ := strings.Cut(r.use, " ")
	proto, lines := "udp", []string{r.forged}
	if s, err := talk.Find(profile); err == nil {
		lines = s.Forged
	} else {
		proto = r.floods
	}
	var text strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&text, "ipv4 %s from %s random to %s ttl 64 from port 1024-65535 random "+
			"port %d %s\n", proto, from, h.Devices[0].IPv4.Addr(), r.port, line)
	}
	packets, ds := template.Parse("flood", []byte(text.String()))
	if ds.HasErrors() {
		t.Fatal(ds)
	}
	return gen.Config{Namespace: w.Namespace, Device: out.Name, CPU: out.CPU, Template: packets,
		Rate: realRate, Duration: time.Minute}
}
