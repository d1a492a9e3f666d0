package importer_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/importer"
)

// byHand is a file for iptables-restore as people may write it: the target of a rule stands
// anywhere, commands and options have long names, and rules are inserted.
func byHand(rnd *rand.Rand, in string) string {
	long := map[string]string{"-p": "--protocol", "-s": "--source", "-i": "--in-interface",
		"-m": "--match", "-j": "--jump", "-g": "--goto", "-A": "--append",
		"--dport": "--destination-port", "--sport": "--source-port", "-f": "--fragment"}
	var b strings.Builder
	for line := range strings.Lines(in) {
		w := strings.Fields(line)
		if len(w) < 3 || w[0] != "-A" {
			b.WriteString(line)
			continue
		}
		head, rest := w[:2], w[2:]
		if n := len(rest); rest[max(0, n-2)] == "-j" || rest[max(0, n-2)] == "-g" {
			var places []int
			for i, x := range rest {
				if (x == "!" || x[0] == '-') && (i == 0 || rest[i-1] != "!") {
					places = append(places, i)
				}
			}
			target := slices.Clone(rest[n-2:])
			rest = slices.Insert(slices.Clone(rest[:n-2]), pick(rnd, places...), target...)
		}
		w = append(slices.Clone(head), rest...)
		if rnd.IntN(8) == 0 {
			w[0] = pick(rnd, "-I", "--insert")
		}
		for i, x := range w {
			if l, ok := long[x]; ok && rnd.IntN(4) == 0 {
				w[i] = l
			}
		}
		b.WriteString(strings.Join(w, " ") + "\n")
	}
	return b.String()
}

// TestKernelAndFilesForRestoreAgree imports files that iptables-restore reads, not what
// iptables-save makes of them, and compares the verdicts.
func TestKernelAndFilesForRestoreAgree(t *testing.T) {
	const seed = 20261126
	t.Logf("seed %d", seed)
	k := newKernelSide(t)
	k.run(observer, "nft", "-f", "-")
	k.run("create nets hash:net\nadd nets 10.0.0.0/8\nadd nets 10.200.0.0/16 nomatch\ncreate svc "+
		"hash:ip,port\nadd svc 192.0.2.1,tcp:80\ncreate low bitmap:port range 0-1023\nadd low 22\n"+
		"create pn hash:net,port\nadd pn 192.0.2.0/29,udp:53\ncreate said hash:ip\nadd said "+
		"192.0.2.5\ncreate bits bitmap:ip range 192.0.2.0/28\nadd bits 192.0.2.2-192.0.2.6\n"+
		"create masked hash:ip netmask 30\nadd masked 192.0.2.9\ncreate three hash:ip,port,net\n"+
		"add three 192.0.2.1,tcp:80,0.0.0.0/1\ncreate both list:set\nadd both said\n",
		"ipset", "restore")
	sets := k.run("", "ipset", "save")
	k.rounds(t, "by hand", 8, seed, 0, func(t *testing.T, rnd *rand.Rand) {
		file := byHand(rnd, randomIPTables(rnd, false, nil))
		k.run(file, "iptables-restore")
		defer k.run("*filter\n:INPUT ACCEPT\nCOMMIT\n", "iptables-restore")
		in := []importer.Source{{Name: "v4", R: strings.NewReader("# by iptables-save\n" + file)},
			{Name: "sets", R: strings.NewReader(sets)}}
		k.compareImport(t, rnd, in, file)
	})
}
