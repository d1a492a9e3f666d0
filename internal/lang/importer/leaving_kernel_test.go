package importer_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/iptables"
	"levee/internal/lang/importer/nft"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
)

// leaving is observer at the hook output.
var leaving = strings.ReplaceAll(observer, "hook input", "hook output")

// packetOut is a packet that inner sends: one that the random rules are about, with its ends the
// other way round.
func (k *kernelSide) packetOut(rnd *rand.Rand, i int) []byte {
	b := k.packet(rnd, i)
	ip, n := b[14:], 4
	at := 12
	if ip[0]>>4 == 6 {
		at, n = 8, 16
	}
	from := slices.Clone(ip[at : at+n])
	copy(ip[at:], ip[at+n:at+2*n])
	copy(ip[at+n:], from)
	number(b, n == 16, uint16(k.round+i+1)) // with the checksum, which stays the same
	return b
}

// leave has inner send the frames and tells which netfilter lets go.
func (k *kernelSide) leave(frames [][]byte) map[int]bool {
	k.t.Helper()
	k.run("flush set inet observer in4; flush set inet observer in6; flush set inet observer "+
		"ok4; flush set inet observer ok6", "nft", "-f", "-")
	k.sent = len(frames)
	k.sendOut(frames)
	got := k.arrived(len(frames))
	k.passed(got)
	return got
}

// sendOut has inner send the frames, from their network layer on.
func (k *kernelSide) sendOut(frames [][]byte) {
	k.t.Helper()
	dev := k.inner.Device("eth0")
	err := k.inner.Do(func() error {
		four, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(four)
		six, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(six)
		for _, s := range []int{four, six} {
			if err := unix.BindToDevice(s, dev.Name); err != nil {
				return err
			}
		}
		for i, f := range frames {
			ip := f[14:]
			s, to := four, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte(ip[16:20])})
			if ip[0]>>4 == 6 {
				s, to = six, &unix.SockaddrInet6{Addr: [16]byte(ip[24:40])}
			}
			// EPERM is a drop of netfilter
			if err := unix.Sendto(s, ip, 0, to); err != nil && err != unix.EPERM {
				return fmt.Errorf("frame %d: %w", i, err)
			}
			if i%64 == 63 {
				await.Pass(time.Millisecond, "the neighbour takes packets")
			}
		}
		return nil
	})
	if err != nil {
		k.t.Fatal(err)
	}
}

// outLimits are the limits of a policy for what leaves.
var outLimits = regexp.MustCompile(`(?m)^out limit (.*) rate .* as ".*"$`)

// compareOut sends packets and fails where the policy drops what the kernel lets leave, and, where
// all rules are as in the source, where it passes what the kernel drops.
func (k *kernelSide) compareOut(rnd *rand.Rand, text []byte, rep importer.Imported,
	source string) {
	k.t.Helper()
	p, diags := resolve.Parse("imported.levee", text, setfile.None)
	if err := diags.Err(); err != nil {
		k.t.Fatal(err)
	}
	frames := make([][]byte, 1000)
	for i := range frames {
		frames[i] = k.packetOut(rnd, i)
	}
	got := k.leave(frames)
	if len(got) < len(frames)*9/10 {
		k.t.Fatalf("%d of %d packets came to OUTPUT", len(got), len(frames))
	}
	e := oracle.New(p)
	e.Tell(field.Local, 1)
	e.Tell(field.UID, 0) // these tests need root
	e.Tell(field.GID, 0)
	var slow strings.Builder // what is above a limit depends on the time
	for i, m := range outLimits.FindAllStringSubmatch(string(text), -1) {
		fmt.Fprintf(&slow, "pass %s as \"%d\"\n", strings.ReplaceAll(m[1], " local", ""), i)
	}
	limited, diags := resolve.Parse("limited.levee", []byte(slow.String()+
		"essential off\ndefault drop\n"), setfile.None)
	if err := diags.Err(); err != nil {
		k.t.Fatal(err)
	}
	slower := oracle.New(limited)
	exact := rep.Leaving.Changed == 0 && rep.Leaving.LeftOut == 0
	dropped, wide := 0, 0
	for i, ok := range got {
		var rec oracle.Record
		res := e.LeaveInto(&rec, frames[i])
		pass := res.Action == action.Pass
		switch {
		case ok && !pass && slower.Eval(frames[i]).Action == action.Pass:
			wide++
		case ok && !pass, !ok && pass && exact && e.Leaving():
			k.t.Fatalf("packet %d %x: the kernel lets it leave: %v, the policy: %v\n%s\n%s", i,
				frames[i], ok, pass, source, text)
		case !ok && pass:
			wide++
		case !ok:
			dropped++
		}
	}
	k.t.Logf("%d packets: %d dropped by both, %d leave as the import says; %+v", len(got), dropped,
		wide, rep.Leaving)
}

// routed has inner send all packets to outer, which answers nobody.
func (k *kernelSide) routed() {
	d := k.outer.Device("eth0")
	for _, via := range []string{d.IPv4.Addr().String(), d.IPv6.Addr().String()} {
		k.run("", "ip", "route", "replace", "default", "via", via, "dev", "eth0")
	}
}

// arriving are rules that iptables takes in chains for what arrives alone, or that have no word.
var arriving = regexp.MustCompile(`(?m)^.* -m (mac|pkttype) .*\n`)

// TestWhatLeavesAgreesWithTheKernel loads random rules for what leaves into the kernel, imports
// what the tools dump, and compares the verdicts for packets that the machine sends.
func TestWhatLeavesAgreesWithTheKernel(t *testing.T) {
	const seed = 20261129
	t.Logf("seed %d", seed)
	k := newKernelSide(t)
	k.routed()
	k.run(leaving, "nft", "-f", "-")
	out := strings.NewReplacer("saddr", "daddr", "iifname", "oifname", "iif ", "oif ",
		"hook input", "hook output", "chain input", "chain output", "-s ", "-d ", "-i ", "-o ",
		" src", " dst", "--src-range", "--dst-range", "INPUT", "OUTPUT")
	carried := 0
	states := []string{"ct state new", "ct state established", "ct state related,established",
		"ct state invalid", "ct state != new", "ct state { new, established } udp dport 53"}
	k.rounds(t, "nft", 8, seed, 0, func(t *testing.T, rnd *rand.Rand) {
		var others []string
		if carried > 0 && rnd.IntN(2) == 0 {
			others = states
		}
		rules := strings.Replace(out.Replace(randomNFT(rnd, others)), "chain two",
			"chain arrives { type filter hook input priority 0; policy accept; }\nchain two", 1)
		if rnd.IntN(2) == 0 { // rules are about what the machine sends itself then
			rules = strings.Replace(rules, "chain two", "chain forwards { type filter hook "+
				"forward priority 0; policy accept; udp dport 53 accept; }\nchain two", 1)
		}
		k.run(rules, "nft", "-f", "-")
		defer k.run("delete table inet filter", "nft", "-f", "-")
		dump := k.run("", "nft", "-j", "list", "table", "inet", "filter")
		var text bytes.Buffer
		rep, err := nft.Import(importer.Source{Name: "dump", R: strings.NewReader(dump)}, &text,
			importer.Rulesets{Device: "eth0"})
		if err != nil {
			t.Fatalf("%v\n%s", err, rules)
		}
		carried += rep.Leaving.Same
		k.compareOut(rnd, text.Bytes(), rep, rules)
	})
	k.t = t
	k.run(setsOfRules, "ipset", "restore")
	sets := k.run("", "ipset", "save")
	k.rounds(t, "iptables", 6, seed, 100, func(t *testing.T, rnd *rand.Rand) {
		four := arriving.ReplaceAllString(out.Replace(randomIPTables(rnd, false, nil)), "")
		if rnd.IntN(2) == 0 {
			four = strings.Replace(four, "COMMIT", "-A FORWARD -p udp -j ACCEPT\nCOMMIT", 1)
		}
		six := arriving.ReplaceAllString(out.Replace(randomIPTables(rnd, true, nil)), "")
		k.run(four, "iptables-restore")
		k.run(six, "ip6tables-restore")
		defer k.run("*filter\n:OUTPUT ACCEPT\n:FORWARD ACCEPT\nCOMMIT\n", "iptables-restore")
		defer k.run("*filter\n:OUTPUT ACCEPT\nCOMMIT\n", "ip6tables-restore")
		in := []importer.Source{{Name: "v4", R: strings.NewReader(k.run("", "iptables-save"))},
			{Name: "v6", R: strings.NewReader(k.run("", "ip6tables-save"))},
			{Name: "sets", R: strings.NewReader(sets)}}
		var text bytes.Buffer
		rep, err := iptables.Import(in, &text, importer.Rulesets{Device: "eth0"})
		if err != nil {
			t.Fatalf("%v\n%s", err, four+six)
		}
		carried += rep.Leaving.Same
		k.compareOut(rnd, text.Bytes(), rep, four+six)
	})
	k.t = t
	if carried < 50 {
		t.Errorf("%d rules carried", carried)
	}
}
